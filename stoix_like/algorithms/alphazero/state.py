"""What AlphaZero keeps: parameters, numbers, games on their way, positions and samples.

Axis letters beside those of `types` and `games`: G games played side by side, H the most plies of a game of self-play.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.alphazero.packing import PackedObservation, pack
from stoix_like.algorithms.optimizer import OptimizerState, init_optimizer
from stoix_like.games import BoardGame, GameState
from stoix_like.replay import RingState
from stoix_like.search.gumbel import GumbelConfig
from stoix_like.types import Array, Key, NetworkParams, Observation


class AlphaZeroParams(NamedTuple):
    """The network that is trained, and the average over its past, which plays."""

    online: NetworkParams
    average: NetworkParams  # follows `online` at rate tau


class AlphaZeroHyper(NamedTuple):
    """Numbers that may differ between lanes of a vmap and that a sweep may replace without recompiling. [] float32."""

    actor_lr: Array
    critic_lr: Array
    max_grad_norm: Array
    weight_decay: Array  # of kernels, per gradient step and unit of rate
    vf_coef: Array
    tau: Array
    play_temperature: Array
    root_value_weight: Array
    max_reuse: Array  # may be lowered; the most gradient steps of an update were compiled for the configuration's
    num_updates: Array  # updates over which the rates fall to 0


class AlphaZeroSettings(NamedTuple):
    """What the compiled program is made for."""

    rollout_length: int  # plies per game and update
    random_plies: int
    temperature_plies: int
    batch_size: int
    most_gradient_steps: int  # per update
    num_shards: int
    full_search_share: float
    use_symmetries: bool
    decays_rates: bool
    search: GumbelConfig
    quick_search: GumbelConfig | None  # None: every move is searched in full
    max_game_plies: int | None = None  # after which a game is cut; None: as the game says


class Position(NamedTuple):
    """One position of a game of self-play and what followed, as `packing.pack` keeps it."""

    observation: Observation | PackedObservation  # [...], planes and legal actions for the mover
    policy: Array  # [..., A] float32, or [..., K] float16 of the legal ones, improved by the search
    root_values: Array  # [..., P] float32, the search's, the mover's first
    predicted: Array  # [...] float32, the network's for the mover, before the search
    player: Array  # [...] int8, the mover
    is_full: Array  # [...] bool, searched in full, so that the policy is learned from
    is_last: Array  # [...] bool, the game ended with the move made here
    outcome: Array  # [..., P] float32, of the game if it ended here


class SelfPlay(NamedTuple):
    """Games on their way, and the positions of them that wait for their outcome."""

    games: GameState  # [G, ...]
    ply: Array  # [G] int32, plies played, random ones included
    recorded: Array  # [G] int32, positions of the game in `history`
    history: Position  # [G, H, ...], the newest last


class Sample(NamedTuple):
    """What is learned from: a position whose outcome is known."""

    observation: Observation | PackedObservation
    policy: Array  # [..., A] float32, or [..., K] float16
    root_values: Array  # [..., P] float32, of the player i seats after the mover, as the search expected
    outcome: Array  # [..., P] float32, of the player i seats after the mover
    is_full: Array  # [...] bool
    step: Array  # [...] int32, the update in which the game ended


class LearningBudget(NamedTuple):
    """How much may be learned from what has been played, so that no position is reused too often. [] float32 each."""

    samples: Array  # that may still be drawn
    recently_added: Array  # sums that decay over about 100 updates
    recently_drawn: Array


class AlphaZeroState(NamedTuple):
    """Everything that an update reads and writes; a checkpoint is this, with or without `replay`."""

    params: AlphaZeroParams
    hyper: AlphaZeroHyper
    key: Key  # the root, never changed
    step: Array  # [] int32, updates done
    optimizer: OptimizerState
    self_play: SelfPlay | None  # None where nothing is played
    budget: LearningBudget
    replay: RingState


def first_state(
    params: NetworkParams,
    hyper: AlphaZeroHyper,
    key: Key,
    self_play: SelfPlay | None,
    budget: LearningBudget,
    replay: RingState,
) -> AlphaZeroState:
    """The state before the first update, whose average equals its network. Use under jit."""
    return AlphaZeroState(
        params=from_published(params),
        hyper=jax.tree.map(jnp.asarray, hyper),
        key=key,
        step=jnp.int32(0),
        optimizer=init_optimizer(params),
        self_play=self_play,
        budget=budget,
        replay=replay,
    )


def with_network(params: AlphaZeroParams, network_params: NetworkParams) -> AlphaZeroParams:
    """The parameters with another network, its average beginning as its equal."""
    return params._replace(online=network_params, average=jax.tree.map(jnp.copy, network_params))


def from_published(network_params: NetworkParams) -> AlphaZeroParams:
    """Parameters that act as the network that was published."""
    return AlphaZeroParams(network_params, jax.tree.map(jnp.copy, network_params))


def params_template(network_params: NetworkParams, _num_seeds: int) -> AlphaZeroParams:
    """The shapes of the parameters around a network's."""
    return AlphaZeroParams(network_params, network_params)


def longest_game(game: BoardGame, max_game_plies: int | None) -> int:
    """H, the most plies of a game of self-play: the game's own bound, or where games are cut."""
    most = game.self_play_plies if max_game_plies is None else max_game_plies
    return game.max_plies if most is None else min(most, game.max_plies)


def cuts_games(game: BoardGame, max_game_plies: int | None) -> bool:
    """Whether a game of self-play may be cut before it is over."""
    return longest_game(game, max_game_plies) < game.max_plies


def are_cut(game: BoardGame, settings: AlphaZeroSettings, is_over: Array, plies: Array) -> Array:
    """[G] bool, whether games end after so many plies [G] though they are not over [G]."""
    if not cuts_games(game, settings.max_game_plies):
        return jnp.zeros_like(is_over)
    return ~is_over & (plies >= longest_game(game, settings.max_game_plies))


def example_position(game: BoardGame) -> Position:
    """One position as shapes and types."""
    observation, policy = jax.eval_shape(lambda: _kept_example(game))

    def shape(dtype: Any, *axes: int) -> Any:
        return jax.ShapeDtypeStruct(axes, dtype)

    return Position(
        observation,
        policy=policy,
        root_values=shape(jnp.float32, game.num_players),
        predicted=shape(jnp.float32),
        player=shape(jnp.int8),
        is_full=shape(jnp.bool_),
        is_last=shape(jnp.bool_),
        outcome=shape(jnp.float32, game.num_players),
    )


def _kept_example(game: BoardGame) -> tuple[Observation | PackedObservation, Array]:
    seen = jax.tree.map(lambda x: x[None], game.observe(game.init()))
    kept: tuple[Observation | PackedObservation, Array] = jax.tree.map(
        lambda x: x[0], pack(game, seen, jnp.zeros((1, game.num_actions)))
    )
    return kept


def example_sample(game: BoardGame) -> Sample:
    """One sample as shapes and types."""
    position = example_position(game)
    step: Any = jax.ShapeDtypeStruct((), jnp.int32)
    return Sample(position.observation, position.policy, position.root_values, position.outcome, position.is_full, step)
