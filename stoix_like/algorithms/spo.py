"""SPO: every action is searched for, and the network learns what the search found. All in one pure `update`.

Source: Sequential Monte Carlo Policy Optimisation (Macfarlane et al. 2024, arXiv 2402.07963). What differs from the
public implementations, and why, is in docs/spo-training-loop.md.
Left out: continuous actions, recurrent networks, priorities, searching again at replay time.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like import replay
from stoix_like.algorithms import ppo, rollout, searching, spo_learning
from stoix_like.algorithms.optimizer import init_dual_optimizer, init_optimizer, linear_decay
from stoix_like.algorithms.rollout import RolloutState, Transition
from stoix_like.algorithms.spo_params import first_duals
from stoix_like.algorithms.spo_state import (
    Duals,
    ReplayStep,
    SearchTargets,
    SPOHyper,
    SPOParams,
    SPOSettings,
    SPOState,
    is_weighted,
    smallest_unsigned,
    targets_of,
)
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.runs import SPOConfig
from stoix_like.envs.auto_reset import AutoReset, auto_reset_for
from stoix_like.errors import ConfigError
from stoix_like.ops.environment_contract import check_environment
from stoix_like.ops.phases import phase
from stoix_like.replay import Buffer
from stoix_like.search import smc
from stoix_like.search.diagnostics import SearchDiagnostics
from stoix_like.search.model import Root, SearchConfig, SearchModel, Temperature, check, may_resample
from stoix_like.types import (
    Array,
    Environment,
    EnvState,
    Key,
    Learner,
    Metrics,
    Network,
    Observation,
    Params,
    role_key,
)


def make(env: Environment, network: Network, config: SPOConfig) -> Learner:
    """An SPO learner for the environment: `init(key)`, `update(state)`, the search's policy and the network's own.

    The state's leaves over environments have leading axis N = num_envs. Both functions are pure.

    Raises:
        ConfigError: sizes of the replay that cannot work together, a search that does not fit the environment, or a
            configuration of another algorithm.
        UnsupportedEnvironmentError: see `check_environment`.
    """
    if not isinstance(config, SPOConfig):
        raise ConfigError(f"spo.make: a {type(config).__name__} has no section spo", "make it with spo_config(...)")
    check_environment(env)
    settings = settings_of(env, config)
    check(settings.search, factored=settings.factored)
    environment, core = config.environment, config.training_core
    auto_reset = auto_reset_for(env, environment.num_envs, core.rollout_length, environment.reset_pool_size)
    buffer = make_buffer(env, config)
    duals = first_duals(config)
    rekey = config.spo.rekey_particles
    scale = config.optimization.reward_scale
    model = searching.search_model(env, network, reward_scale=scale, rekey=rekey)
    return Learner(
        init=functools.partial(init, env, auto_reset, network, buffer, settings, make_hyper(config), duals),
        update=functools.partial(update, env, auto_reset, network, buffer, settings, rekey),
        policy=searching.search_policy(
            model, settings.search, lambda p: p.online, functools.partial(temperature_of, settings)
        ),
        network_policy=functools.partial(_network_policy, network, settings.factored),
        volatile=("replay",),
        sharded=(*rollout.SHARDED, "replay.experience"),
    )


def settings_of(env: Environment, config: SPOConfig) -> SPOSettings:
    """The fixed part of the program for this environment and configuration."""
    core, optimization = config.training_core, config.optimization
    return SPOSettings(
        rollout_length=core.rollout_length,
        gradient_steps=core.epochs * core.num_minibatches,
        sequence_length=config.spo.sample_sequence_length,
        factored=env.action_spec.num_factors is not None,
        can_truncate=env.can_truncate,
        decays_rates=optimization.decay_learning_rates,
        constrains_root=config.spo.kl_constraint == "root",
        temperature_mode=config.spo.temperature_mode,
        search=searching.search_config(env, config.spo, core.gamma, core.gae_lambda),
    )


def make_buffer(env: Environment, config: SPOConfig) -> Buffer:
    """The replay of a configuration. A sequence has one step more than is learned from, unless it stores what
    followed each step, as it must where episodes can be truncated.

    Raises:
        ConfigError: sizes that cannot work together.
    """
    section, num_envs = config.spo, config.environment.num_envs
    return replay.make_buffer(
        num_envs=num_envs,
        capacity_steps=section.replay_buffer_size,
        rollout_length=config.training_core.rollout_length,
        sequence_length=section.sample_sequence_length + (not env.can_truncate),
        batch_size=section.batch_size,
        sample_period=section.sample_period,
        num_shards=replay.num_logical_shards(num_envs, section.batch_size),
    )


def make_hyper(config: SPOConfig) -> SPOHyper:
    """The numbers of the configuration, float32 on the host; a null gamma or lambda of the search is the learner's."""
    core = config.training_core
    fallback = {"search_gamma": core.gamma, "search_gae_lambda": core.gae_lambda}
    values: dict[str, Any] = {}
    for name in SPOHyper._fields:
        value = get_leaf(config, name)
        values[name] = np.float32(fallback[name] if value is None else value)
    return SPOHyper(**values)


def init(
    env: Environment,
    auto_reset: AutoReset,
    network: Network,
    buffer: Buffer,
    settings: SPOSettings,
    hyper: SPOHyper,
    duals: Duals,
    key: Key,
) -> SPOState:
    """A fresh state from the root key, its replay empty. Use under jit."""
    playing = rollout.start(auto_reset, role_key(key, "reset"))
    online = network.init(role_key(key, "params"), playing.observation)
    duals = jax.tree.map(jnp.asarray, duals)
    return SPOState(
        params=SPOParams(online, jax.tree.map(jnp.copy, online), duals),
        hyper=jax.tree.map(jnp.asarray, hyper),
        key=key,
        step=jnp.int32(0),
        optimizer=init_optimizer(online),
        dual_optimizer=init_dual_optimizer(duals),
        rollout=playing,
        replay=buffer.init(example_step(env, settings, playing.observation)),
    )


def example_step(env: Environment, settings: SPOSettings, observation: Observation) -> ReplayStep:
    """One stored step as shapes and types, from observations [N, ...]."""
    config, spec = settings.search, env.action_spec

    def shape(dtype: Any, *axes: int) -> Any:
        return jax.ShapeDtypeStruct(axes, dtype)

    one = jax.tree.map(lambda x: shape(x.dtype, *x.shape[1:]), observation)
    numbers = shape(jnp.float32, config.num_particles)
    actions = shape(smallest_unsigned(spec.num_values), config.num_particles, *spec.shape)
    targets = SearchTargets(
        root_actions=actions,
        root_weights=numbers,
        initial_root_actions=actions if may_resample(config) else None,
        advantages=numbers,
        log_prior_ratio=numbers if is_weighted(config) else None,
    )
    scalar, next_observation = shape(jnp.float32), one if settings.can_truncate else None
    return ReplayStep(one, scalar, scalar, shape(jnp.bool_), targets, next_observation)


def update(
    env: Environment,
    auto_reset: AutoReset,
    network: Network,
    buffer: Buffer,
    settings: SPOSettings,
    rekey: bool | str,
    state: SPOState,
) -> tuple[SPOState, Metrics]:
    """(the state one update later, metrics): search and play `rollout_length` steps, store them, learn when warm."""
    model = searching.search_model(env, network, reward_scale=state.hyper.reward_scale, rekey=rekey)
    playing, transitions, metrics = collect(auto_reset, model, settings, env.action_spec.num_values, state)
    targets, diagnostics = transitions.record
    with phase("replay"):
        stored = buffer.add(state.replay, _replay_steps(transitions, targets))
    state = state._replace(rollout=playing, replay=stored)
    factor = linear_decay(settings.decays_rates, state.step, state.hyper.num_updates)

    def learn(state: SPOState) -> tuple[SPOState, Metrics]:
        return spo_learning.optimize(network, buffer, settings, state, factor)

    def wait(state: SPOState) -> tuple[SPOState, Metrics]:
        _, shapes = jax.eval_shape(learn, state)
        return state, jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    is_warm = buffer.can_sample(state.replay)
    with phase("optimise"):
        state, learning_metrics = jax.lax.cond(is_warm, learn, wait, state)
    metrics |= learning_metrics | search_metrics(diagnostics)
    metrics["trainer/learning_rate"] = state.hyper.actor_lr * factor
    metrics["trainer/gradient_steps_sum"] = jnp.where(is_warm, jnp.float32(settings.gradient_steps), 0.0)
    return state._replace(step=state.step + 1), metrics


def collect(
    auto_reset: AutoReset, model: SearchModel, settings: SPOSettings, num_values: int, state: SPOState
) -> tuple[RolloutState, Transition, Metrics]:
    """One rollout of the searching policy: (where playing stopped, transitions [T, N, ...] whose record is
    `(SearchTargets, SearchDiagnostics)`, `actor/` metrics)."""
    config = _with_hyper(settings.search, state.hyper)
    is_fixed = settings.temperature_mode == "fixed"  # the dual takes it up with the first gradient step only
    temperature = state.hyper.fixed_temperature if is_fixed else temperature_of(settings, state.params)

    def search_action(env_state: EnvState, observation: Observation, key: Key) -> tuple[Array, Any]:
        root = Root(env_state, observation)
        output = smc.search(model, state.params.online, key, root, temperature, config)
        diagnostics = output.diagnostics
        sizes = jnp.swapaxes(diagnostics.effective_sample_size, 0, 1)  # [N, H]: over time the first axis is N
        record = targets_of(output, config, num_values), diagnostics._replace(effective_sample_size=sizes)
        return output.action, record

    play_key = role_key(state.key, "search", state.step)
    pool_key = role_key(state.key, "pool", state.step)
    return rollout.collect(auto_reset, search_action, state.rollout, play_key, pool_key, settings.rollout_length)


def temperature_of(settings: SPOSettings, params: Params) -> Temperature:
    """The temperature the search uses: what the dual holds, or each search's own deviation."""
    return searching.deviation if settings.temperature_mode == "std" else params.duals.temperature


def _with_hyper(config: SearchConfig, hyper: SPOHyper) -> SearchConfig:
    has_noise = config.dirichlet_fraction != 0.0
    return config._replace(
        gamma=hyper.search_gamma,
        gae_lambda=hyper.search_gae_lambda,
        dirichlet_alpha=hyper.root_exploration_dirichlet_alpha,
        dirichlet_fraction=hyper.root_exploration_dirichlet_fraction if has_noise else 0.0,
        resampling_ess_threshold=hyper.resampling_ess_threshold,
    )


def _replay_steps(transitions: Transition, targets: SearchTargets) -> ReplayStep:
    return ReplayStep(
        transitions.observation,
        transitions.reward,
        transitions.discount,
        transitions.is_last,
        targets,
        transitions.next_observation,
    )


def search_metrics(diagnostics: SearchDiagnostics) -> Metrics:
    """Means over a rollout's searches; effective sample sizes at every depth, of a deep search at 1, 2, 4, ... and the
    last one, over the searches that got there (0 if none did)."""
    sizes = diagnostics.effective_sample_size  # [T, N, H]
    horizon = sizes.shape[-1]
    depths = range(1, horizon + 1) if horizon <= 8 else sorted({1, 2, 4, 8, 16, horizon} & set(range(horizon + 1)))
    metrics = {f"trainer/effective_sample_size_depth_{d}": _mean_where_reached(sizes[..., d - 1]) for d in depths}
    for name in ("distinct_root_actions", "surviving_root_actions"):
        metrics[f"trainer/{name}"] = jnp.mean(getattr(diagnostics, name).astype(jnp.float32))
    for name in ("trajectory_kl", "root_kl"):
        metrics[f"trainer/search_{name}"] = jnp.mean(getattr(diagnostics, name))
    metrics["trainer/model_steps_sum"] = jnp.sum(diagnostics.model_steps.astype(jnp.float32))
    return metrics


def _mean_where_reached(sizes: Array) -> Array:
    return jnp.sum(sizes) / jnp.maximum(jnp.sum(sizes > 0.0), 1)


def _network_policy(
    network: Network,
    factored: bool,
    params: SPOParams,
    env_state: EnvState,
    observation: Observation,
    key: Key,
    deterministic: bool,
) -> Array:
    return ppo.act(network, factored, params.online, env_state, observation, key, deterministic)
