"""The half of AlphaZero that learns, as a Learner of its own: from a window of positions that were played before.

The window is the `replay` of the state, of fixed capacity and with a count, so that another one compiles nothing.
`init` leaves it empty; whoever trains puts the positions there (`window_of`), before the first update and again after a
resume, since checkpoints leave it out. An update makes as many gradient steps as one of `learner.update` at most does.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.algorithms.alphazero import learning
from stoix_like.algorithms.alphazero.learning import Learning, LearningSetup
from stoix_like.algorithms.alphazero.state import (
    AlphaZeroHyper,
    AlphaZeroSettings,
    AlphaZeroState,
    LearningBudget,
    Sample,
    example_sample,
    first_state,
)
from stoix_like.algorithms.optimizer import linear_decay
from stoix_like.games import BoardGame
from stoix_like.ops.phases import phase
from stoix_like.replay import Ring, RingState, filled
from stoix_like.types import Key, Learner, Metrics, Network, Observation, role_key


def without_play(
    learner: Learner, game: BoardGame, network: Network, ring: Ring, settings: AlphaZeroSettings, hyper: AlphaZeroHyper
) -> Learner:
    """The learner with self-play left out."""
    return learner._replace(
        init=functools.partial(init, game, network, ring, settings, hyper),
        update=functools.partial(update, game, network, ring, settings),
        sharded=("replay",),
    )


def window_of(state: AlphaZeroState, samples: Sample) -> AlphaZeroState:
    """The state with these samples [M, ...], on the host, as its window. Raises ConfigError if they do not fit."""
    template: RingState = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state.replay)
    return state._replace(replay=filled(template, samples))


def init(
    game: BoardGame, network: Network, ring: Ring, settings: AlphaZeroSettings, hyper: AlphaZeroHyper, key: Key
) -> AlphaZeroState:
    """A fresh state from the root key, its window empty. Use under jit."""
    observation: Observation = jax.tree.map(lambda x: x[None], game.observe(game.init()))
    params = network.init(role_key(key, "params"), observation)
    return first_state(params, hyper, key, None, _full_budget(settings), ring.init(example_sample(game)))


def update(
    game: BoardGame, network: Network, ring: Ring, settings: AlphaZeroSettings, state: AlphaZeroState
) -> tuple[AlphaZeroState, Metrics]:
    """(the state `most_gradient_steps` gradient steps later, metrics)."""
    factor = linear_decay(settings.decays_rates, state.step, state.hyper.num_updates)
    before = Learning(state.params, state.optimizer, _full_budget(settings))
    setup = LearningSetup(game, network, ring, settings)
    with phase("optimise"):
        key = role_key(state.key, "replay", step=state.step)
        after, metrics = learning.learn(setup, state.hyper, factor, before, state.replay, state.step, key)
    for name in ("trainer/sample_reuse", "trainer/sample_age"):  # facts of games and iterations, which the state lacks
        del metrics[name]
    metrics["trainer/learning_rate"] = state.hyper.actor_lr * factor
    budget = _full_budget(settings)
    return state._replace(**after._replace(budget=budget)._asdict(), step=state.step + 1), metrics


def _full_budget(settings: AlphaZeroSettings) -> LearningBudget:
    """Enough for all gradient steps of an update."""
    samples: Any = jnp.float32(settings.most_gradient_steps * settings.batch_size)
    return LearningBudget(samples, jnp.float32(0.0), jnp.float32(0.0))
