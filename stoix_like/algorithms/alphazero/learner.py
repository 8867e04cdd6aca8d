"""AlphaZero composed: self-play by Gumbel search, a ring of finished positions, learning. All in one pure `update`.

Sources: Silver et al. 2018 (doi 10.1126/science.aar6404); Danihelka et al. 2022 (openreview.net/forum?id=bERaNdoegnO)
for the search and its improved policy. What differs, and why, is in docs/alphazero-training-loop.md.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.alphazero import learning, window_learner
from stoix_like.algorithms.alphazero import self_play as playing
from stoix_like.algorithms.alphazero.learning import Learning, LearningSetup
from stoix_like.algorithms.alphazero.self_play import PlaySetup
from stoix_like.algorithms.alphazero.state import (
    AlphaZeroHyper,
    AlphaZeroParams,
    AlphaZeroSettings,
    AlphaZeroState,
    LearningBudget,
    example_sample,
    first_state,
    longest_game,
)
from stoix_like.algorithms.optimizer import linear_decay
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.checks.alphazero import num_replay_shards
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.errors import ConfigError
from stoix_like.games import BoardGame, GameState
from stoix_like.ops import distributions
from stoix_like.ops.game_contract import check_game
from stoix_like.ops.phases import phase
from stoix_like.replay import Ring, make_ring
from stoix_like.search import gumbel
from stoix_like.search.gumbel import GameModel, GumbelConfig, GumbelOutput
from stoix_like.types import (
    Array,
    Environment,
    EnvState,
    Key,
    Learner,
    Metrics,
    Network,
    NetworkParams,
    Observation,
    Policy,
    role_key,
)

SHARDED = ("self_play.games", "self_play.ply", "self_play.recorded", "self_play.history", "replay")


def make(game: BoardGame, network: Network, config: AlphaZeroConfig) -> Learner:
    """An AlphaZero learner of the game: `init(key)`, `update(state)`, the search's policy and the network's own.

    The policies act in environments whose state has the game's in a field `game`, as those of `versus` have.

    Args:
        game: its rules.
        network: its critic predicts outcomes [B, P], see `networks.build.make(..., num_players=P)`.
        config: sizes, search, rates.

    Raises:
        ConfigError: not a game, a configuration of another algorithm, a network that predicts no outcomes, or sizes
            of the replay that cannot work together.
        UnsupportedEnvironmentError: a game that breaks its contract.
    """
    if isinstance(game, Environment):
        raise ConfigError("alphazero.make: it was given an environment instead of a game", "give env.game")
    if not isinstance(config, AlphaZeroConfig):
        what = f"alphazero.make: a {type(config).__name__} has no section alphazero"
        raise ConfigError(what, "make it with alphazero_config(...)")
    check_game(game)
    _check_network(game, network)
    settings, num_games = settings_of(config), config.environment.num_envs
    check_replay(game, config)
    ring = make_ring(
        capacity=config.alphazero.replay_buffer_size, batch_size=settings.batch_size, num_shards=settings.num_shards
    )
    parts, hyper = (game, network, ring, settings), make_hyper(config)
    learner = Learner(
        init=functools.partial(init, *parts, hyper, num_games),
        update=functools.partial(update, *parts),
        policy=make_search_policy(game, network, settings.search),
        network_policy=functools.partial(network_policy, network),
        volatile=("replay",),
        sharded=SHARDED,
    )
    return learner if config.alphazero.self_play else window_learner.without_play(learner, *parts, hyper)


def settings_of(config: AlphaZeroConfig) -> AlphaZeroSettings:
    """The fixed part of the program for this configuration."""
    section, core, num_games = config.alphazero, config.training_core, config.environment.num_envs
    search = GumbelConfig(
        num_simulations=section.num_simulations,
        max_num_considered_actions=section.max_considered_actions,
        gumbel_scale=section.gumbel_scale,
        value_scale=section.value_scale,
        maxvisit_init=section.maxvisit_init,
        rescale_values=section.rescale_values,
    )
    quick = section.quick_simulations
    return AlphaZeroSettings(
        rollout_length=core.rollout_length,
        random_plies=section.random_plies,
        temperature_plies=section.temperature_plies,
        batch_size=section.batch_size,
        most_gradient_steps=gradient_steps(config),
        num_shards=num_replay_shards(num_games, section.batch_size, section.replay_buffer_size),
        full_search_share=section.full_search_share,
        use_symmetries=section.use_symmetries,
        decays_rates=config.optimization.decay_learning_rates,
        search=search,
        quick_search=None if quick is None else search._replace(num_simulations=quick),
        max_game_plies=section.max_game_plies,
    )


def match_search(config: AlphaZeroConfig, num_simulations: int | None = None) -> GumbelConfig:
    """The search of a configuration in matches: without noise, with so many simulations if they are given."""
    search = settings_of(config).search._replace(gumbel_scale=0.0)
    return search if num_simulations is None else search._replace(num_simulations=num_simulations)


def gradient_steps(config: AlphaZeroConfig) -> int:
    """The most gradient steps of an update: so many that all positions played can be used `max_reuse` times."""
    section = config.alphazero
    played = config.environment.num_envs * config.training_core.rollout_length
    return math.ceil(section.max_reuse * played / section.batch_size)


def make_hyper(config: AlphaZeroConfig) -> AlphaZeroHyper:
    """The numbers of the configuration, float32 on the host."""
    values: dict[str, Any] = {name: np.float32(get_leaf(config, name)) for name in AlphaZeroHyper._fields}
    return AlphaZeroHyper(**values)


def _check_network(game: BoardGame, network: Network) -> None:
    observation = jax.eval_shape(lambda: jax.tree.map(lambda x: x[None], game.observe(game.init())))
    params = jax.eval_shape(network.init, jax.random.key(0), observation)
    logits, values = jax.eval_shape(network.actor_critic, params, observation)
    wanted = (1, game.num_actions), (1, game.num_players)
    if (logits.shape, values.shape) != wanted:
        raise ConfigError(
            f"alphazero.make: the network gives logits {logits.shape} and values {values.shape}, and {game.name} needs"
            f" {wanted[0]} and {wanted[1]}",
            "make it with make_network(env, config) of an AlphaZero configuration",
        )


def check_replay(game: BoardGame, config: AlphaZeroConfig) -> None:
    """Raises ConfigError if the replay is too small for all positions of the game that can be complete at once."""
    longest = longest_game(game, config.alphazero.max_game_plies)
    most = config.environment.num_envs * (longest + config.training_core.rollout_length)
    if config.alphazero.replay_buffer_size < most:
        raise ConfigError(
            f"alphazero.replay_buffer_size: {config.alphazero.replay_buffer_size:,} is less than the {most:,} positions"
            f" that can be complete at once, num_envs * (plies of the longest game + rollout_length)",
            f"use at least {most:,}, or fewer games at a time, or a max_game_plies below {longest:,}",
        )


def init(
    game: BoardGame,
    network: Network,
    ring: Ring,
    settings: AlphaZeroSettings,
    hyper: AlphaZeroHyper,
    num_games: int,
    key: Key,
) -> AlphaZeroState:
    """A fresh state from the root key, its replay empty. Use under jit."""
    self_play = playing.start(game, settings, num_games, role_key(key, "reset"))
    params = network.init(role_key(key, "params"), jax.vmap(game.observe)(self_play.games))
    zero = jnp.float32(0.0)
    budget = LearningBudget(zero, jnp.copy(zero), jnp.copy(zero))
    return first_state(params, hyper, key, self_play, budget, ring.init(example_sample(game)))


def update(
    game: BoardGame, network: Network, ring: Ring, settings: AlphaZeroSettings, state: AlphaZeroState
) -> tuple[AlphaZeroState, Metrics]:
    """(the state one update later, metrics): play `rollout_length` plies of every game, store, learn."""
    assert state.self_play is not None  # narrows the type
    key, hyper = functools.partial(role_key, state.key, step=state.step), state.hyper
    search = self_play_search(GameModel(game, network.actor_critic), settings, state.params.average)
    self_play, samples, counts, metrics = playing.play(
        PlaySetup(game, search, settings, hyper.play_temperature), state.self_play, state.step, key("rollout")
    )
    with phase("replay"):
        replay = ring.add(state.replay, samples, counts)
    num_added = jnp.sum(counts.astype(jnp.float32))
    budget = learning.add_to_budget(state.budget, num_added, settings, hyper.max_reuse)
    factor = linear_decay(settings.decays_rates, state.step, hyper.num_updates)
    before = Learning(state.params, state.optimizer, budget)
    setup = LearningSetup(game, network, ring, settings)
    with phase("optimise"):
        after, learning_metrics = learning.learn(setup, hyper, factor, before, replay, state.step, key("replay"))
    metrics |= learning_metrics
    metrics["trainer/samples_added_sum"] = num_added
    metrics["trainer/learning_rate"] = hyper.actor_lr * factor
    state = state._replace(**after._asdict(), self_play=self_play, replay=replay, step=state.step + 1)
    return state, metrics


def self_play_search(model: GameModel, settings: AlphaZeroSettings, params: NetworkParams) -> playing.SearchFunction:
    """The search of self-play: always in full, or for a share of the plies of all games at once (playout caps, Wu 2019,
    arXiv 1902.10565, §3.1)."""

    def full(key: Key, states: GameState) -> GumbelOutput:
        return gumbel.search(model, params, key, states, settings.search)

    def search(key: Key, states: GameState) -> tuple[GumbelOutput, Array]:
        quick = settings.quick_search
        if quick is None:
            return full(key, states), jnp.bool_(True)
        coin_key, search_key = jax.random.split(key)
        is_full = jax.random.bernoulli(coin_key, settings.full_search_share)
        quickly = functools.partial(gumbel.search, model, params, config=quick)
        return jax.lax.cond(is_full, full, quickly, search_key, states), is_full

    return search


def make_search_policy(game: BoardGame, network: Network, config: GumbelConfig) -> Policy:
    """The policy that searches the game with the averaged network, see `search_policy`."""
    return functools.partial(search_policy, GameModel(game, network.actor_critic), config)


def search_policy(
    model: GameModel,
    config: GumbelConfig,
    params: AlphaZeroParams,
    env_state: EnvState,
    _observation: Observation,
    key: Key,
    deterministic: bool,
) -> Array:
    """Actions [N] of a search with the averaged network: without noise, or with the Gumbel noise of self-play."""
    scale = 0.0 if deterministic else config.gumbel_scale
    found = gumbel.search(model, params.average, key, env_state.game, config._replace(gumbel_scale=scale))
    return found.action


def network_policy(
    network: Network,
    params: AlphaZeroParams,
    _env_state: EnvState,
    observation: Observation,
    key: Key,
    deterministic: bool,
) -> Array:
    """Actions [N] of the averaged network alone."""
    return distributions.act(key, network.actor(params.average, observation), deterministic)
