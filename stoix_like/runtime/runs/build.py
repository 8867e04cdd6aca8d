"""Builds environment, network and learner from a configuration. Import it after `devices.select`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax

from stoix_like.algorithms import ppo, spo, spo_params
from stoix_like.config.sections import ArchitectureConfig, EnvironmentConfig, PPOConfig, SPOConfig
from stoix_like.envs import registry
from stoix_like.errors import CheckpointError
from stoix_like.networks import build as networks
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.search.model import SearchConfig
from stoix_like.types import Environment, Learner, Network, NetworkParams, Params


class Algorithm(NamedTuple):
    """One entry of the table of algorithms."""

    config_type: type
    make: Callable[[Environment, Network, Any], Learner]
    make_hyper: Callable[[Any], Any]  # configuration -> the `hyper` of a state, float32 on the host
    network_params: Callable[[Params], NetworkParams]  # the network's part of the learner's parameters
    with_network: Callable[[Params, NetworkParams], Params]  # the learner's parameters with another network
    template: Callable[[NetworkParams, int], Params]  # (shapes of the network, number of seeds) -> of the parameters
    published: Callable[[Params], Any]  # what the policies read, the network's fields at the top; also of shapes
    from_published: Callable[[Any], Params]  # parameters that act like the published ones


ALGORITHMS: dict[str, Algorithm] = {
    "ppo": Algorithm(
        PPOConfig,
        ppo.make,
        ppo.make_hyper,
        network_params=lambda params: params,
        with_network=lambda _, network: network,
        template=lambda network, _: network,
        published=lambda params: params,
        from_published=lambda params: params,
    ),
    "spo": Algorithm(
        SPOConfig,
        spo.make,
        spo.make_hyper,
        network_params=lambda params: params.online,
        with_network=spo_params.with_network,
        template=spo_params.params_template,
        published=spo_params.published,
        from_published=spo_params.from_published,
    ),
}
"""All algorithms by key. Your own program may add to it."""


class RunComponents(NamedTuple):
    """Environment, network and learner of a configuration."""

    env: Environment
    network: Network
    learner: Learner


def make_env(config: EnvironmentConfig) -> Environment:
    """The environment of a configuration section, with its time limit if one is set. Raises as `registry.make`."""
    return registry.make(
        config.task_id,
        max_episode_steps=config.max_episode_steps,
        max_items=config.max_items,
        max_ems=config.max_ems,
        kwargs=config.kwargs,
        exact_reference=config.exact_reference,
    )


class HasArchitecture(Protocol):
    """Any algorithm's configuration."""

    @property
    def architecture(self) -> ArchitectureConfig: ...


def make_network(env: Environment, config: HasArchitecture) -> Network:
    """The network of `config.architecture` for the environment, or of `observation_adapter` if that is set.

    Raises:
        ConfigError: the adapter does not fit the observation.
    """
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    architecture = config.architecture
    adapter = architecture.observation_adapter or env.observation_adapter
    return networks.make(
        timestep.observation, env.action_spec, architecture, adapter=adapter, time_limit=env.time_limit
    )


def build(algorithm: str, config: Any) -> RunComponents:
    """Environment, network and learner of a run. Nothing is computed yet."""
    env = make_env(config.environment)
    network = make_network(env, config)
    return RunComponents(env, network, ALGORITHMS[algorithm].make(env, network, config))


def search_config(algorithm: str, env: Environment, config: Any) -> SearchConfig | None:
    """The search of the learner, or None if it does not search."""
    return spo.settings_of(env, config).search if algorithm == "spo" else None


def known_algorithm(path: Path, algorithm: str, version: str) -> Algorithm:
    """The algorithm of a run or of published parameters, written by stoix_like `version`.

    Raises CheckpointError if this version has no such algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise CheckpointError(
            f"{path} is of {algorithm_title(algorithm)}, which this version does not know",
            f"use the version of stoix_like {version}",
        )
    return ALGORITHMS[algorithm]
