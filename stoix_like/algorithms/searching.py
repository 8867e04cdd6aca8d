"""Search joined to an environment and a network: the model that is searched, and policies that act by searching.

Any network can be searched, so a PPO run can be evaluated this way too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.config.sections.spo import SPOSectionConfig
from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.search import smc
from stoix_like.search.model import Root, SearchConfig, SearchModel, Temperature, depth_of
from stoix_like.search.particles import Paths
from stoix_like.search.plan import Plan, after_step, better_plan, no_plan
from stoix_like.search.smc import SearchOutput
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

    Raises:
        ConfigError: see `check_searchable`.
    """
    check_searchable(env)
    batched = jax.vmap(env.step)

    def step(states: EnvState, actions: Array) -> tuple[EnvState, Any]:
        states, timestep = batched(states, actions)
        return states, timestep._replace(reward=timestep.reward * reward_scale)

    rekeys = not env.deterministic if rekey == "auto" else bool(rekey)
    return SearchModel(
        step=step,
        logits=network.actor,
        value=network.critic,
        rekey=None if env.rekey is None or not rekeys else jax.vmap(env.rekey),
        logits_and_value=network.actor_critic,
        deterministic=env.deterministic or not rekeys,
    )


def check_searchable(env: Environment) -> None:
    """Refuses an environment whose randomness a search can neither replace nor do without.

    Raises:
        ConfigError: it is not deterministic and has no `rekey`.
    """
    if env.rekey is None and not env.deterministic:
        raise ConfigError(
            f"search: {env.task_id} has no rekey and is not declared deterministic, so a search would see the"
            " randomness that will come true",
            "give its Environment rekey=lambda state, key: ..., or deterministic=True if its step draws nothing",
        )


def check_followable(env: Environment) -> None:
    """Refuses an environment in which a path that a search found cannot be followed.

    Raises:
        ConfigError: it is not deterministic.
    """
    if not env.deterministic:
        raise ConfigError(
            f"search: {env.task_id} is stochastic, and a plan can only be followed where steps are deterministic",
            "search without the incumbent plan",
        )


def hidden_note(env: Environment) -> str | None:
    """One line to print before a search of an environment whose state holds what no player can know, or None."""
    if env.hidden_state is None:
        return None
    return (
        f"a search steps the state of {env.task_id}, which holds {env.hidden_state}: its scores are not those of a"
        " player who only sees the observations"
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


def decide(
    model: SearchModel,
    config: SearchConfig,
    params: NetworkParams,
    temperature: Temperature,
    key: Key,
    root: Root,
    is_deterministic: bool,
) -> tuple[Array, SearchOutput]:
    """(actions [N] or [N, F], the search they come from): of the largest weight, or drawn by weight; without noise."""
    chosen = deterministic(config) if is_deterministic else config._replace(dirichlet_fraction=0.0)
    output = smc.search(model, params, key, root, temperature, chosen)
    return (smc.best_action(output) if is_deterministic else output.action), output


def follow(plan: Plan, action: Array, paths: Paths, gamma: Array | float) -> tuple[Array, Plan]:
    """(the action of the best plan known, the plan for the next decision); `action` where no path has finished."""
    plan = better_plan(plan, paths, gamma)
    return trees.where(plan.remaining > 0, plan.actions[:, 0], action), after_step(plan)


def search_policy(
    model: SearchModel,
    config: SearchConfig,
    network_params: Callable[[Params], NetworkParams],
    temperature: Callable[[Params], Temperature],
) -> Policy:
    """A policy that searches, see `decide`.

    Args:
        model: what `smc.search` searches.
        config: of the search.
        network_params: the learner's parameters -> those of the network.
        temperature: the learner's parameters -> the temperature of the search.
    """

    def policy(
        params: Params, env_state: EnvState, observation: Observation, key: Key, is_deterministic: bool
    ) -> Array:
        asked = network_params(params), temperature(params)
        return decide(model, config, *asked, key, Root(env_state, observation), is_deterministic)[0]

    return policy


class SearchMemory(NamedTuple):
    """The memory of a `counting_policy` within an episode."""

    plan: Plan | None  # None if the search follows none
    model_steps: Array  # [N] int32, so far


def counting_policy(
    env: Environment,
    model: SearchModel,
    config: SearchConfig,
    network_params: Callable[[Params], NetworkParams],
    temperature: Callable[[Params], Temperature],
    *,
    follows_plan: bool = False,
) -> MemoryPolicy:
    """`search_policy` that counts its model steps, or `planning_policy` if it follows a plan. Its memory is a
    `SearchMemory`.

    Raises:
        ConfigError: see `check_followable`.
    """
    if follows_plan:
        check_followable(env)
    config = config._replace(record_paths=follows_plan)

    def init(num_envs: int) -> SearchMemory:
        plan = no_plan(num_envs, depth_of(config), env.action_spec.shape) if follows_plan else None
        return SearchMemory(plan, jnp.zeros((num_envs,), jnp.int32))

    def act(
        params: Params,
        memory: SearchMemory,
        env_state: EnvState,
        observation: Observation,
        key: Key,
        is_deterministic: bool,
    ) -> tuple[Array, SearchMemory]:
        asked, root = (network_params(params), temperature(params)), Root(env_state, observation)
        action, output = decide(model, config, *asked, key, root, is_deterministic)
        plan = memory.plan
        if plan is not None:
            action, plan = follow(plan, action, recorded_paths(output), config.gamma)
        return action, SearchMemory(plan, memory.model_steps + output.diagnostics.model_steps)

    return MemoryPolicy(init, act)


def planning_policy(
    env: Environment,
    model: SearchModel,
    config: SearchConfig,
    network_params: Callable[[Params], NetworkParams],
    temperature: Callable[[Params], Temperature],
) -> MemoryPolicy:
    """`search_policy` that follows the best finished path any search of the episode has found, while there is one.

    Such a path needs a depth to the end of the episode. The discounted return then is at least what the best path
    promised.

    Raises:
        ConfigError: see `check_followable`.
    """
    return counting_policy(env, model, config, network_params, temperature, follows_plan=True)


def recorded_paths(output: SearchOutput) -> Paths:
    """The paths of a search that records them."""
    if output.paths is None:
        raise ValueError("the search did not record its paths: set record_paths")
    return output.paths
