"""A board game against fixed players as an environment, so that every learner and evaluation of environments plays it.

One opponent has all other seats, or each of several has one. Nothing here assumes two players, or that they alternate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.games import BoardGame, GameState, Player
from stoix_like.ops.game_contract import check_game
from stoix_like.types import FIRST, LAST, MID, ActionSpec, Array, Environment, Key, Observation, TimeStep


class VersusState(NamedTuple):
    """A game in which it is our turn, or that is over."""

    game: GameState
    seat: Array  # [] int32, the player that we are
    key: Key  # of the opponents


def versus(game: BoardGame, opponent: Player | Sequence[Player], openings: np.ndarray | Array) -> Environment:
    """The game against `opponent` as an environment: a step is our action and the answers to it.

    `reset` draws an opening and our seat uniformly and plays until it is our turn. The reward is our outcome, at the
    end of the game. A game may be over at once, by a decided opening or where others move more than once before us;
    then every action is shown as legal, and the first step ends the episode without changing the game. Raises
    UnsupportedEnvironmentError if the game breaks its contract, and ValueError for openings of another shape, or
    another number of opponents.

    Args:
        game: the rules.
        opponent: a `Player` without parameters: it is called with None and states [1, ...]. Of P - 1 of them the first
            has the seat after ours, and so on around the board.
        openings: [M, k] int32, legal first moves of M openings, M at least 1; k may be 0.
    """
    check_game(game)
    opponents, openings = _opponents(game, opponent), _openings(openings)

    def reset(key: Key) -> tuple[VersusState, TimeStep]:
        return _reset(game, opponents, openings, key)

    def step(state: VersusState, action: Array) -> tuple[VersusState, TimeStep]:
        answer_key, state_key = jax.random.split(state.key)
        is_over = game.is_over(state.game)
        after = game.step(state.game, action)
        after = jax.tree.map(lambda old, new: jnp.where(is_over, old, new), state.game, after)
        after = _answered(game, opponents, after, state.seat, answer_key)
        return VersusState(after, state.seat, state_key), _timestep(game, after, state.seat)

    return Environment(
        reset,
        step,
        ActionSpec(game.num_actions),
        task_id=game.name,
        episode_metrics=lambda state, _timestep: _result(game.outcome(state.game), state.seat),
        rekey=lambda state, key: state._replace(key=key),
        observation_adapter=_adapter(game),
        game=game,
        time_limit=game.max_plies,
    )


def _opponents(game: BoardGame, opponent: Player | Sequence[Player]) -> tuple[Player, ...]:
    opponents = tuple(opponent) if isinstance(opponent, Sequence) else (opponent,)
    if len(opponents) not in (1, game.num_players - 1):
        raise ValueError(f"{game.name} has {game.num_players - 1} other seats, got {len(opponents)} opponents")
    return opponents


def _openings(openings: np.ndarray | Array) -> np.ndarray:
    openings = np.asarray(openings, np.int32)
    if openings.ndim != 2 or len(openings) == 0:
        raise ValueError(f"openings must have the shape [M, k] with at least one opening, got {openings.shape}")
    return openings


def _adapter(game: BoardGame) -> str:
    """The network that fits the board."""
    if game.layout.action_places is not None:
        return "action_planes"
    return "board" if game.layout.lines is None else "lines"


def _reset(
    game: BoardGame, opponents: tuple[Player, ...], openings: np.ndarray, key: Key
) -> tuple[VersusState, TimeStep]:
    opening_key, seat_key, answer_key, state_key = jax.random.split(key, 4)
    moves = jnp.asarray(openings)[jax.random.randint(opening_key, (), 0, len(openings))]  # [k]
    seat = jax.random.randint(seat_key, (), 0, game.num_players)
    state, _ = jax.lax.scan(lambda state, move: (game.step(state, move), None), game.init(), moves)
    state = _answered(game, opponents, state, seat, answer_key)
    timestep = _timestep(game, state, seat)
    first = timestep._replace(
        step_type=jnp.int8(FIRST), reward=jnp.zeros_like(timestep.reward), discount=jnp.ones_like(timestep.discount)
    )
    return VersusState(state, seat, state_key), first


def _result(outcome: Array, seat: Array) -> dict[str, Array]:
    """Whether we won, whether nobody did, and the score of the first player from 0 to 1, from the `outcome` [P]."""
    ours = outcome[seat]
    return {
        "win": (ours == 1.0).astype(jnp.float32),
        "draw": jnp.all(outcome == 0.0).astype(jnp.float32),
        "first_player": (outcome[0] + 1.0) / 2.0,
    }


def _answered(game: BoardGame, opponents: tuple[Player, ...], state: GameState, seat: Array, key: Key) -> GameState:
    """The game after the opponents' moves, when it is the turn of `seat` or over."""

    def is_their_turn(carry: tuple[Any, Key, Array]) -> Array:
        state, _, num_moves = carry
        return ~game.is_over(state) & (game.player(state) != seat) & (num_moves < game.max_plies)

    def move(carry: tuple[Any, Key, Array]) -> tuple[Any, Key, Array]:
        state, key, num_moves = carry
        key, move_key = jax.random.split(key)
        batch = jax.tree.map(lambda leaf: leaf[None], state)  # [1, ...]
        actions = jnp.stack([opponent(None, batch, move_key)[0] for opponent in opponents])
        place = (game.player(state) - seat - 1) % game.num_players  # around the board from us; 0 is next
        action = actions[place if len(opponents) > 1 else 0]
        return game.step(state, action), key, num_moves + 1

    return jax.lax.while_loop(is_their_turn, move, (state, key, jnp.int32(0)))[0]


def _timestep(game: BoardGame, state: GameState, seat: Array) -> TimeStep:
    is_over = game.is_over(state)
    view, mask = game.observe(state)
    return TimeStep(
        step_type=jnp.where(is_over, jnp.int8(LAST), jnp.int8(MID)),
        reward=jnp.where(is_over, game.outcome(state)[seat], 0.0).astype(jnp.float32),
        discount=jnp.where(is_over, 0.0, 1.0).astype(jnp.float32),
        observation=Observation(view, mask | is_over),
        extras={},
    )
