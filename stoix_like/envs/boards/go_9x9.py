"""Go on 9 x 9 points with 7.5 points of komi, by pgx's rules. Actions are the points, row by row, then the pass.

Rules of pgx's `go_9x9` (pgx 2.6): area scoring without removing dead stones; no suicide; the simple ko is illegal; who
repeats a position otherwise loses at once (positional superko); two passes or 162 plies end the game. The state is
pgx's own without what follows from it, in the smallest types: 2 kB instead of 6. Importing pgx starts the JAX backend,
so it is imported when the game is made.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.boards import tables
from stoix_like.errors import MissingExtraError
from stoix_like.games import BoardGame, BoardLayout
from stoix_like.types import Array, Observation

SIZE, NUM_CELLS, PASS, KOMI, MAX_PLIES, HISTORY = 9, 81, 81, 7.5, 162, 8
NEIGHBORS = tables.square_neighbors(SIZE, SIZE)  # [81, 8]
_SIDES, _CORNERS = NEIGHBORS[:, [1, 3, 4, 6]], NEIGHBORS[:, [0, 2, 5, 7]]  # each [81, 4]
_IS_BESIDE = np.zeros((NUM_CELLS, NUM_CELLS), np.float32)  # 1 where two points are neighbours
_IS_BESIDE[np.repeat(np.arange(NUM_CELLS), 4)[_SIDES.reshape(-1) >= 0], _SIDES[_SIDES >= 0]] = 1.0
_OUTSIDE = np.int8(127)  # no chain has this number
_PASS_WORTH = -1000.0


def _lines_off() -> np.ndarray:
    """How far each point is from the third line of the board. [81]."""
    row, column = np.divmod(np.arange(NUM_CELLS), SIZE)
    line = np.minimum(np.minimum(row, SIZE - 1 - row), np.minimum(column, SIZE - 1 - column))
    return abs(line - 2).astype(np.float32)


_LINES_OFF = _lines_off()


class GoState(NamedTuple):
    """A position and those before it."""

    chains: Array  # [81] int8, 0: empty; the same number for connected stones: above 0 black, below 0 white
    history: Array  # [8, 81] int8, the last positions, the latest first: 1 black, -1 white; 2 before the first move
    hashes: Array  # [162, 2] uint32, of all positions so far
    num_plies: Array  # [] int16
    num_passes: Array  # [] int8, passes since the last stone
    ko: Array  # [] int8, the point where a stone would retake a ko; -1: none
    is_repeated: Array  # [] bool: the last move repeated a position


def make_go_9x9() -> BoardGame:
    """Go, with the rules and the planes of pgx's `go_9x9`.

    Raises:
        MissingExtraError: pgx is not installed.
    """
    rules = _pgx_rules()
    game = rules.Game(size=SIZE, komi=KOMI, history_length=HISTORY, max_termination_steps=MAX_PLIES)

    def of_pgx(function: Callable[..., Array]) -> Callable[[GoState], Array]:
        return lambda state: function(_unpacked(rules, state))

    def step(state: GoState, action: Array) -> GoState:
        with jax.numpy_rank_promotion("allow"):
            return _packed(game.step(_unpacked(rules, state), action))

    legal_actions = _strictly(of_pgx(game.legal_action_mask))
    planes = _strictly(of_pgx(game.observe))
    return BoardGame(
        name="go_9x9",
        num_players=2,
        num_actions=NUM_CELLS + 1,
        max_plies=MAX_PLIES,
        init=lambda: _packed(game.init()),
        step=step,
        observe=lambda state: Observation(planes(state).reshape(NUM_CELLS, 2 * HISTORY + 1), legal_actions(state)),
        legal_actions=legal_actions,
        player=_player,
        outcome=_strictly(of_pgx(game.rewards)),
        is_over=of_pgx(game.is_terminal),
        cells=lambda state: jnp.where(state.chains > 0, 0, jnp.where(state.chains < 0, 1, -1)).astype(jnp.int8),
        preference=_preference,
        layout=BoardLayout((SIZE, SIZE), "square", NEIGHBORS, tables.cell_names(SIZE, SIZE, "pass")),
        symmetries=tables.square_symmetries(SIZE, num_other_actions=1),
    )


def _pgx_rules() -> ModuleType:
    try:
        from pgx._src.games import go
    except ImportError as error:
        raise MissingExtraError("go_9x9", "boardgames", "pip install 'stoix_like[boardgames]'") from error
    return go


def _strictly(function: Callable[[GoState], Array]) -> Callable[[GoState], Array]:
    """The function, also where ranks may not be promoted, as pgx does."""

    def call(state: GoState) -> Array:
        with jax.numpy_rank_promotion("allow"):
            return function(state)

    return call


def _unpacked(rules: ModuleType, state: GoState) -> Any:
    """pgx's state. The numbers of captured stones, which no rule reads, are 0."""
    return rules.GameState(
        step_count=state.num_plies.astype(jnp.int32),
        board=state.chains.astype(jnp.int32),
        board_history=state.history.astype(jnp.int32),
        num_captured=jnp.zeros((2,), jnp.int32),
        consecutive_pass_count=state.num_passes.astype(jnp.int32),
        ko=state.ko.astype(jnp.int32),
        is_psk=state.is_repeated,
        hash_history=state.hashes,
    )


def _packed(state: Any) -> GoState:
    return GoState(
        chains=state.board.astype(jnp.int8),
        history=state.board_history.astype(jnp.int8),
        hashes=state.hash_history,
        num_plies=state.step_count.astype(jnp.int16),
        num_passes=jnp.int8(state.consecutive_pass_count),
        ko=state.ko.astype(jnp.int8),
        is_repeated=state.is_psk,
    )


def _player(state: GoState) -> Array:
    return state.num_plies.astype(jnp.int32) % 2


def _preference(state: GoState) -> Array:
    """Taking stones (10 and 1 a stone), saving own ones from it (8), threatening to take (3), else the third line (-1 a
    line off), and not into danger (-6); a pass comes last, but before the filling of an own eye. Frozen: ratings are
    anchored on it."""
    sign = (1 - 2 * _player(state)).astype(jnp.int8)
    chains = state.chains * sign  # [81], above 0 own
    is_same = (chains[:, None] == chains[None, :]) & (chains != 0)[:, None]  # [81, 81]
    touches = (is_same.astype(jnp.float32) @ _IS_BESIDE) > 0  # [81, 81], by stone, the points beside its chain
    num_liberties = jnp.sum(touches & (chains == 0)[None, :], axis=1)  # [81]
    size = jnp.sum(is_same, axis=1)  # [81]

    beside = jnp.where(_SIDES >= 0, chains[_SIDES], _OUTSIDE)  # [81, 4]
    is_own, is_other = (beside > 0) & (beside != _OUTSIDE), beside < 0
    liberties = num_liberties[_SIDES]  # [81, 4]
    taken = jnp.max(jnp.where(is_other & (liberties == 1), 10 + size[_SIDES], 0), axis=1)  # [81]
    saved = jnp.any(is_own & (liberties == 1), axis=1) & jnp.any((beside == 0) | (is_own & (liberties > 2)), axis=1)
    threatened = jnp.any(is_other & (liberties == 2), axis=1)
    is_safe = (jnp.sum(beside == 0, axis=1) >= 2) | jnp.any(is_own & (liberties > 2), axis=1) | (taken > 0)
    worth = taken + 8.0 * saved + 3.0 * threatened - 6.0 * ~is_safe - _LINES_OFF
    return jnp.append(jnp.where(_is_own_eye(chains, is_own), 2 * _PASS_WORTH, worth), _PASS_WORTH).astype(jnp.float32)


def _is_own_eye(chains: Array, is_own: Array) -> Array:
    """Points that only own stones surround, so that the other's stones at the corners cannot make it false. [81]."""
    num_corners = jnp.sum(jnp.where(_CORNERS >= 0, chains[_CORNERS] < 0, False), axis=1)
    is_at_edge = jnp.any(_SIDES < 0, axis=1)
    return jnp.all(is_own | (_SIDES < 0), axis=1) & (num_corners + is_at_edge <= 1)
