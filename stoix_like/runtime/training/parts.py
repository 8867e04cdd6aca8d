"""What a run consists of, built and checked before its folder is created or changed."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from stoix_like.config.dicts import config_from_dict
from stoix_like.errors import ConfigError
from stoix_like.runtime.evaluators.items import ItemEvaluator
from stoix_like.runtime.evaluators.scores import Evaluator, make_levels
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.hardware.process_group import ProcessGroup
from stoix_like.runtime.loading.config import LoadedConfig
from stoix_like.runtime.runs import inputs
from stoix_like.runtime.telemetry import QueuedSink, Sink
from stoix_like.runtime.telemetry.selected_sinks import sinks_from_config
from stoix_like.runtime.training import start
from stoix_like.runtime.training.callbacks import Callback, RunClock
from stoix_like.runtime.training.start import RunStart
from stoix_like.search.model import SearchConfig
from stoix_like.types import Environment, Learner

if TYPE_CHECKING:
    from stoix_like.runtime.runs.build import Algorithm, Prepared, RunComponents


class RunParts(NamedTuple):
    """The parts of a run."""

    group: ProcessGroup
    plan: RunStart
    loaded: LoadedConfig
    run_devices: list[jax.Device]
    algorithm: Algorithm  # its entry in the table
    env: Environment
    learner: Learner
    search: SearchConfig | None  # of the learner's policy; None if it does not search
    evaluators: Sequence[
        Evaluator | ItemEvaluator
    ]  # of the policy, its network alone if it searches, sampled actions, further opponents; none without episodes
    template: Any  # shapes, types and shardings of the state
    state: Any  # the first one, new or of the checkpoint that is resumed
    clock: RunClock  # at its update
    callbacks: Sequence[Callback]  # of the caller
    sinks: Sequence[Sink]  # of the caller
    selected_sinks: Sequence[QueuedSink]  # those that the configuration selects, on process 0
    prepared: Prepared  # what runs of the caller share
    input_hashes: Mapping[str, str]  # {path of the state: hash} of what is placed in it and never saved
    is_part: bool = False  # of a program that says itself what comes next

    @property
    def config(self) -> Any:
        """The configuration of the run."""
        return self.loaded.config


def build_parts(
    group: ProcessGroup,
    plan: RunStart,
    loaded: LoadedConfig,
    callbacks: Sequence[Callback],
    sinks: Sequence[Sink],
    prepared: Prepared | None = None,
) -> RunParts:
    """The parts of a run. Raises StoixError if the device, the environment or the checkpoint cannot be used."""
    config = loaded.config
    run_devices = devices.select(config.hardware, config.logging, compile_cache=loaded.options.is_cached)
    devices.check_divisible(config.environment.num_envs, run_devices)
    from stoix_like.runtime.runs import build  # starts the backend, so it is imported after the device is selected

    algorithm = build.ALGORITHMS[plan.algorithm]
    prepared = prepared or build.Prepared()
    built = prepared.build(plan.algorithm, config)
    prepared.initial = prepared.initial or start.initial_state(built.learner, config, run_devices)
    make_state, template = prepared.initial
    evaluators = list(_evaluators(built, config, algorithm))
    given = _inputs(group, plan, algorithm, config, built.env)
    state = start.first_state(group, plan, config, built.learner, make_state, template, given)
    before = config_from_dict(type(config), plan.resumed.config) if plan.resumed else prepared.config
    state = start.with_hyper(state, algorithm.make_hyper(before), algorithm.make_hyper(config))
    selected = group.run_on_primary(lambda: sinks_from_config(config.logging, config.checkpointing.save_dir)) or []
    return RunParts(
        group,
        plan,
        loaded,
        run_devices,
        algorithm,
        built.env,
        built.learner,
        algorithm.search(built.env, config),
        evaluators,
        template,
        state,
        _clock(plan, config.training_core.num_updates, algorithm.steps_per_update(config)),
        *(callbacks, sinks, selected, prepared, inputs.hashes(given)),
    )


def _inputs(group: ProcessGroup, plan: RunStart, algorithm: Algorithm, config: Any, env: Environment) -> dict[str, Any]:
    """The arrays that the run is given.

    Raises ConfigError if its processes are given different ones, and CheckpointError if it began with another bank.
    """
    if plan.resumed is not None:
        inputs.check_bank(env.bank_hash, plan.resumed, plan.path)
    given = algorithm.inputs(config)
    if group.count > 1 and (given or env.bank_hash):
        hashes = [inputs.hashes(given), env.bank_hash]
        if group.sync(stop=group.broadcast_object(lambda: hashes) != hashes).stop:
            raise ConfigError("the processes of this run were given different inputs", "give all the same files")
    return given


def _clock(plan: RunStart, last: int, steps_per_update: int) -> RunClock:
    update = plan.resumed.update if plan.resumed else 0
    return RunClock(update, last, steps_per_update, plan.progress.elapsed_seconds, plan.progress.evaluated_at)


def _item_evaluators(learner: Learner, num_at_once: int, num_seeds: int) -> Iterator[ItemEvaluator]:
    if learner.score is None or learner.items is None:
        raise ConfigError(
            "the learner has neither a policy nor `score` and `items`", "--num-eval-episodes 0 trains without"
        )
    yield ItemEvaluator(learner.score, learner.items, num_at_once, num_seeds, seeds=learner.seeds)


def _evaluators(built: RunComponents, config: Any, algorithm: Algorithm) -> Iterator[Evaluator | ItemEvaluator]:
    learner, env, num_seeds = built.learner, built.env, config.training_core.num_seeds
    evaluation = config.evaluation
    if evaluation.num_eval_episodes == 0:
        return
    if learner.policy is None:
        yield from _item_evaluators(learner, evaluation.num_eval_envs, num_seeds)
        return
    levels = make_levels(env, evaluation.level_set, evaluation.num_eval_episodes)
    sizes = levels, evaluation.num_eval_envs, num_seeds
    make = functools.partial(Evaluator, seeds=learner.seeds)
    policy, network_policy = learner.policies
    yield make(env, policy, *sizes)
    if network_policy is not policy:
        yield make(env, network_policy, *sizes, mode="network")
    if evaluation.evaluate_sampled:
        yield make(env, policy, *sizes, mode="sampled")
    for mode, further in algorithm.further_envs(env, config).items():
        levels = make_levels(further, evaluation.level_set, evaluation.num_eval_episodes)
        yield make(further, policy, levels, evaluation.num_eval_envs, num_seeds, mode=mode)
