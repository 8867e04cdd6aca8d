"""Builds environment, network and learner from a configuration. Import it after `devices.select`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax

from stoix_like.algorithms import alphazero, ppo, spo, spo_params, tasks
from stoix_like.algorithms.alphazero import state as alphazero_state
from stoix_like.algorithms.text import fine_tuning, pretraining, token_state
from stoix_like.config.checks.board_games import GAMES
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, LanguageConfig, PretrainConfig
from stoix_like.config.sections.runs import AlphaZeroConfig, EnvironmentConfig, PPOConfig, SPOConfig
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.networks import build as networks
from stoix_like.networks.transformer.model import with_policy
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.runs import agents, games
from stoix_like.runtime.runs.bank_files import with_bank
from stoix_like.runtime.runs.checkpoint import CheckpointMeta
from stoix_like.search.model import SearchConfig
from stoix_like.types import Environment, Learner, Network, NetworkParams, Params


class Algorithm(NamedTuple):
    """One entry of the table of algorithms."""

    config_type: type
    make: Callable[[Environment, Network, Any], Learner] | None
    make_hyper: Callable[[Any], Any]  # configuration -> the `hyper` of a state, float32 on the host
    samples_per_update: Callable[[Any], int]  # (configuration) -> steps that an update learns from, with repetitions
    # By default the learner's parameters are those of the network:
    network_params: Callable[[Params], NetworkParams] = lambda params: params  # the network's part of the parameters
    with_network: Callable[[Params, NetworkParams], Params] = lambda _, network: network  # with another network
    template: Callable[[NetworkParams, int], Params] = lambda network, _: network  # of shapes; int: number of seeds
    # what the policies read, the network's fields at the top; also of shapes:
    published: Callable[[Params], Any] = lambda params: params
    from_published: Callable[[Any], Params] = lambda params: params  # parameters that act like the published ones
    # how environment, network and learner are made, if not by `make`: (configuration) -> RunComponents
    build: Callable[[Any], RunComponents] | None = None
    check: Callable[[Any], None] = lambda _: None  # (configuration) -> ConfigError, before anything is computed
    # arrays that are neither learned nor saved: (configuration) -> {path of the State: host arrays}, see `inputs`
    inputs: Callable[[Any], dict[str, Any]] = lambda _: {}
    steps_per_update: Callable[[Any], int] = steps_per_update  # (configuration) -> environment steps of one seed
    search: Callable[[Environment, Any], SearchConfig | None] = lambda *_: None  # of the learner's policy
    speaks: bool = False  # its episodes are text
    # (configuration) -> {leaf: number} on which the function of parameters depends, and which their shapes do not show:
    hidden_sizes: Callable[[Any], dict[str, float]] = lambda _: {}
    # (configuration, metadata of the checkpoint that a new run's parameters are from, or None if they are fresh) ->
    # what the user should know of it:
    origin_notes: Callable[[Any, CheckpointMeta | None], list[str]] = lambda *_: []
    # further environments that the policy is evaluated in, by mode such as vs_random
    further_envs: Callable[[Environment, Any], dict[str, Environment]] = lambda *_: {}


def _replayed_samples(config: Any) -> int:
    core, section = config.training_core, config.spo
    return int(core.epochs * core.num_minibatches * section.batch_size * section.sample_sequence_length)


def _make_agent(config: LanguageConfig) -> RunComponents:
    env = make_env(config.environment)
    world = agents.make_text_world(env, config.agent)
    return RunComponents(world.env, cast(Network, None), agents.make_learner(world, config))


def _language_inputs(config: LanguageConfig) -> dict[str, Any]:
    return agents.language_inputs(agents.make_text_world(make_env(config.environment), config.agent), config)


_LANGUAGE: dict[str, Any] = {
    "make": None,
    "build": _make_agent,
    "inputs": _language_inputs,
    "speaks": True,
    "hidden_sizes": agents.hidden_sizes,
}
"""What all algorithms of language models share."""

ALGORITHMS: dict[str, Algorithm] = {
    "ppo": Algorithm(
        PPOConfig,
        ppo.make,
        ppo.make_hyper,
        samples_per_update=lambda config: config.training_core.epochs * steps_per_update(config),
    ),
    "spo": Algorithm(
        SPOConfig,
        spo.make,
        spo.make_hyper,
        _replayed_samples,
        network_params=lambda params: params.online,
        with_network=spo_params.with_network,
        template=spo_params.params_template,
        published=spo_params.published,
        from_published=spo_params.from_published,
        search=lambda env, config: spo.settings_of(env, config).search,
    ),
    "alphazero": Algorithm(
        AlphaZeroConfig,
        games.make_alphazero,
        alphazero.make_hyper,
        samples_per_update=lambda config: int(config.alphazero.max_reuse * steps_per_update(config)),
        network_params=lambda params: params.average,
        with_network=alphazero_state.with_network,
        template=alphazero_state.params_template,
        published=lambda params: params.average,
        from_published=alphazero_state.from_published,
        check=games.check_replay,
        further_envs=games.anchor_envs,
    ),
    "agent": Algorithm(
        AgentConfig,
        make_hyper=token_state.make_hyper,
        samples_per_update=lambda config: config.training_core.epochs * steps_per_update(config),
        network_params=agents.policy_params,
        with_network=with_policy,
        origin_notes=agents.base_notes,
        **_LANGUAGE,
    ),
    "pretrain": Algorithm(
        PretrainConfig,
        make_hyper=pretraining.make_hyper,
        samples_per_update=steps_per_update,
        **_LANGUAGE,
    ),
    "sft": Algorithm(
        FineTuneConfig,
        make_hyper=fine_tuning.make_hyper,
        samples_per_update=fine_tuning.rows_per_update,
        steps_per_update=fine_tuning.rows_per_update,
        origin_notes=agents.fine_tune_notes,
        **_LANGUAGE,
    ),
}
"""All algorithms by key. Your own program may add to it."""


class RunComponents(NamedTuple):
    """Environment, network and learner of a configuration."""

    env: Environment
    network: Network  # of observations; None if the learner reads none
    learner: Learner


def make_env(config: EnvironmentConfig) -> Environment:
    """The environment of a configuration section, with its time limit if one is set. Raises as `tasks.make`."""
    return tasks.make(
        config.task_id,
        opponent=config.opponent,
        opening_plies=config.opening_plies,
        max_episode_steps=config.max_episode_steps,
        max_items=config.max_items,
        max_ems=config.max_ems,
        kwargs=with_bank(config.task_id, config.kwargs),
        exact_reference=config.exact_reference,
    )


def make_network(env: Environment, config: Any) -> Network:
    """The network of `config.architecture` for the environment, or of `observation_adapter` if that is set.

    `config` is that of any algorithm. AlphaZero's network predicts the outcome of every player.

    Raises:
        ConfigError: the adapter does not fit the observation, or AlphaZero is to play what is no board game.
    """
    plays_itself = isinstance(config, AlphaZeroConfig)
    if plays_itself and env.game is None:
        raise ConfigError(
            f"environment.task_id: AlphaZero plays board games against itself, and {env.task_id} is none",
            f"choose one of {', '.join(GAMES)}",
        )
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    architecture = config.architecture
    adapter = architecture.observation_adapter or env.observation_adapter
    return networks.make(
        timestep.observation,
        env.action_spec,
        architecture,
        adapter=adapter,
        time_limit=env.time_limit,
        layout=None if env.game is None else env.game.layout,
        num_players=env.game.num_players if plays_itself else None,
    )


def build(algorithm: str, config: Any) -> RunComponents:
    """Environment, network and learner of a run. Of board games, whose openings are made here, a little is computed."""
    row = ALGORITHMS[algorithm]
    row.check(config)
    if row.build is not None:
        return row.build(config)
    if row.make is None:
        raise ConfigError(f"the algorithm {algorithm} has neither `make` nor `build`", "give its row one of them")
    env = make_env(config.environment)
    network = make_network(env, config)
    return RunComponents(env, network, row.make(env, network, config))


class Prepared:
    """What several runs in one process share, made by the first of them: what it consists of, and compiled programs.

    Their configurations may differ in the numbers of a state's `hyper` alone, such as `num_updates`. Whoever hands it
    over answers for that.

    Attributes:
        config: of the first run, whose numbers the learner puts into a new state.
        initial: (what makes the first state, its template), see `start.initial_state`.
        program: of a chunk of updates.
    """

    def __init__(self) -> None:
        self.config: Any = None
        self.initial: tuple[Callable[..., Any], Any] | None = None
        self.program: Any = None
        self._built: RunComponents | None = None

    def build(self, algorithm: str, config: Any) -> RunComponents:
        """As `build`, or what it made for the first run."""
        if self._built is None:
            self.config, self._built = config, build(algorithm, config)
        return self._built


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
