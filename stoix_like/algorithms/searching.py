"""Search joined to an environment and a network: the model that is searched, and policies that act by searching.

Any network can be searched, so a PPO run can be evaluated this way too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.config import SPOSectionConfig
from stoix_like.errors import ConfigError
from stoix_like.search import smc
from stoix_like.search.plan import Plan, after_step, better_plan, no_plan
from stoix_like.search.smc import Root, SearchConfig, SearchModel, SearchOutput, Temperature
from stoix_like.types import (
    Array,
    Environment,
    EnvState,
    Key,
    MemoryPolicy,
    Network,
    NetworkParams,
    Observation,
    Params,
    Policy,
)

LEAST_DEVIATION = 1e-3  # reward units, of mode `std`: rust_rl's own


def search_model(
    env: Environment, network: Network, *, reward_scale: Array | float = 1.0, rekey: bool | str = "auto"
) -> SearchModel:
    """The environment's own rules and a network's opinions, over `NetworkParams`.

    Args:
        env: stepped raw: a search never resets.
        network: what is asked.
        reward_scale: factor on rewards, the one the values were learned with.
        rekey: whether particles get randomness of their own; "auto" if the environment is not deterministic. Without
            it a search of a stochastic environment sees the future that will come true.
    """
    batched = jax.vmap(env.step)

    def step(states: EnvState, actions: Array) -> tuple[EnvState, Any]:
        states, timestep = batched(states, actions)
        return states, timestep._replace(reward=timestep.reward * reward_scale)

    rekeys = not env.deterministic if rekey == "auto" else bool(rekey)
    return SearchModel(
        step=step,
        logits=network.actor,
        value=network.critic,
        rekey=jax.vmap(env.rekey) if rekeys else None,
        logits_and_value=network.actor_critic,
    )


def search_config(env: Environment, section: SPOSectionConfig, gamma: float, gae_lambda: float) -> SearchConfig:
    """The `spo:` section as the search wants it; null gamma and lambda become the learner's own."""
    shared = {field.name for field in dataclasses.fields(section)} & set(SearchConfig._fields)
    return SearchConfig(**{name: getattr(section, name) for name in shared})._replace(
        max_depth=env.time_limit,
        gamma=gamma if section.search_gamma is None else section.search_gamma,
        gae_lambda=gae_lambda if section.search_gae_lambda is None else section.search_gae_lambda,
        dirichlet_alpha=section.root_exploration_dirichlet_alpha,
        dirichlet_fraction=section.root_exploration_dirichlet_fraction,
    )


def deterministic(config: SearchConfig) -> SearchConfig:
    """The same search without noise at the root: what is drawn without replacement becomes the most probable."""
    root = "topk" if config.root == "gumbel_topk" else config.root
    return config._replace(dirichlet_fraction=0.0, root=root)


def deviation(advantages: Array) -> Array:
    """The temperature [N] of mode `std`: the standard deviation over the particles [N, P], as rust_rl has it."""
    return jnp.maximum(jnp.std(advantages, axis=-1), LEAST_DEVIATION)


def search_policy(
    model: SearchModel,
    config: SearchConfig,
    network_params: Callable[[Params], NetworkParams],
    temperature: Callable[[Params], Temperature],
) -> Policy:
    """A policy that searches: the action of the largest weight and no noise if deterministic, else one drawn by weight.

    Args:
        model, config: see `smc.search`.
        network_params: takes the network's parameters out of the learner's.
        temperature: likewise.
    """

    def policy(
        params: Params, env_state: EnvState, observation: Observation, key: Key, is_deterministic: bool
    ) -> Array:
        chosen = deterministic(config) if is_deterministic else config._replace(dirichlet_fraction=0.0)
        output: SearchOutput = smc.search(
            model, network_params(params), key, Root(env_state, observation), temperature(params), chosen
        )
        return smc.best_action(output) if is_deterministic else output.action

    return policy


def planning_policy(
    env: Environment,
    model: SearchModel,
    config: SearchConfig,
    network_params: Callable[[Params], NetworkParams],
    temperature: Callable[[Params], Temperature],
) -> MemoryPolicy:
    """`search_policy` that follows the best finished path any search of the episode has found, while there is one.

    Such a path needs a depth to the end of the episode. An episode then returns at least what the best path promised.

    Raises:
        ConfigError: the environment is stochastic, so that a path found is not a path that can be followed.
    """
    if not env.deterministic:
        raise ConfigError(
            f"search: {env.task_id} is stochastic, and a plan can only be followed where steps are deterministic",
            "search without the incumbent plan",
        )
    recording = config._replace(record_paths=True)

    def init(num_envs: int) -> Plan:
        return no_plan(num_envs, smc.depth_of(config), env.action_spec.shape)

    def act(
        params: Params, plan: Plan, env_state: EnvState, observation: Observation, key: Key, is_deterministic: bool
    ) -> tuple[Array, Plan]:
        chosen = deterministic(recording) if is_deterministic else recording._replace(dirichlet_fraction=0.0)
        output = smc.search(
            model, network_params(params), key, Root(env_state, observation), temperature(params), chosen
        )
        action = smc.best_action(output) if is_deterministic else output.action
        if output.paths is not None:  # always: they are recorded
            plan = better_plan(plan, output.paths, config.gamma)
        has_plan = (plan.remaining > 0).reshape(-1, *(1,) * (action.ndim - 1))
        return jnp.where(has_plan, plan.actions[:, 0], action), after_step(plan)

    return MemoryPolicy(init, act)
