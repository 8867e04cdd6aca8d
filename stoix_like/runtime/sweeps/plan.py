"""What a sweep file asks for, checked as a whole before anything is trained.

A sweep file names a run (a preset or a file), the leaves it fixes, the space that is searched (`space.py`), and
how trials are compared. Every problem is told at once, with its line. Knows nothing of the library that searches, which
is `study.py`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stoix_like.config.checks import check_leaf, leaf_sections, leaf_types, replace_leaves, resolve
from stoix_like.config.dicts import config_to_dict
from stoix_like.config.sections import PPOConfig, SPOConfig, leaf
from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.config import merge_layers
from stoix_like.runtime.loading.documents import Layer, read_yaml
from stoix_like.runtime.loading.presets import find_config, sweep_paths
from stoix_like.runtime.loading.strict_yaml import read_tree
from stoix_like.runtime.sweeps.space import (
    SEARCHED_SECTIONS,
    Dimension,
    SweepFile,
    bounds,
    plain_value,
    read_fixed,
    read_space,
)

CONFIG_TYPES: dict[str, type] = {"ppo": PPOConfig, "spo": SPOConfig}
HINT = "docs/how-to/sweep.md explains a sweep file, and docs/configuration.md every leaf"
#: Leaves by which updates of two trials are different amounts of experience.
_PACE = frozenset({"num_envs", "rollout_length", "num_updates", "total_timesteps"})


@dataclass(frozen=True)
class SweepSettings:
    """The keys of a sweep file beside `fixed` and `space`."""

    algorithm: Literal["ppo", "spo"] = leaf("ppo", "what trains")
    config: str | None = leaf(None, "preset or file that every trial changes; null = <algorithm>/quick")
    metric: str = leaf("evaluator/mean_return", "of EVALUATOR rows; at the end its mean over seeds is a trial's value")
    direction: Literal["maximize", "minimize"] = leaf("maximize", "which values are better")
    num_trials: int = leaf(20, "trials in all", low=1)
    num_seeds: int = leaf(1, "seeds of each trial, trained side by side", low=1)
    sampler: Literal["tpe", "random"] = leaf("tpe", "tree-structured Parzen estimator, or independent draws")
    sampler_seed: int = leaf(0, "root of the sampler's randomness", low=0, high=2**31 - 1)
    pruner: Literal["median", "none"] = leaf("median", "median: ends a trial that stays below the median of the others")
    pruner_startup_trials: int = leaf(5, "complete trials before the first is pruned", low=1)
    pruner_warmup_evaluations: int = leaf(1, "evaluations of a trial before it may be pruned", low=0)


class SweepPlan(NamedTuple):
    """A checked sweep file.

    Attributes:
        path: the file.
        settings: its keys.
        layers: leaves of the run's file, and those that are fixed, num_seeds included.
        space: what each searched leaf may be.
        example: the configuration at one corner of the space, for what all trials share; None while it is checked.
    """

    path: Path
    settings: SweepSettings
    layers: tuple[Layer, Layer]
    space: dict[str, Dimension]
    example: Any = None

    @property
    def config_type(self) -> type:
        return CONFIG_TYPES[self.settings.algorithm]

    def config_of(self, parameters: Mapping[str, Any], **leaves: Any) -> Any:
        """The checked configuration of a trial with these parameters, and with leaves that the sweep decides.

        Raises:
            ConfigError: the combination is impossible.
        """
        given = {name: (value, "") for name, value in (dict(parameters) | leaves).items()}
        values, _, problems = merge_layers([*self.layers, given])
        if problems:
            raise ConfigError(problems, HINT)
        return resolve(replace_leaves(self.config_type(), values))

    def fingerprint(self) -> dict[str, Any]:
        """What makes the values of trials comparable, as plain JSON values: it stays while a study grows."""
        values, _, _ = merge_layers([*self.layers])
        sections = config_to_dict(replace_leaves(self.config_type(), values))
        told: dict[str, Any] = {name: getattr(self.settings, name) for name in ("algorithm", "metric", "direction")}
        told |= {f"space.{name}": plain_value(dimension) for name, dimension in self.space.items()}
        for section in (*SEARCHED_SECTIONS, "evaluation"):
            told |= {name: value for name, value in sections.get(section, {}).items() if name not in self.space}
        identity: dict[str, Any] = json.loads(json.dumps(told))
        return identity


def fingerprint_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for everything in which two identities differ."""
    names = [*before, *(name for name in now if name not in before)]
    said = [(name, *(json.dumps(of[name]) if name in of else "not there" for of in (now, before))) for name in names]
    return [f"{name} is {is_now}, and was {was} when the study began" for name, is_now, was in said if is_now != was]


def find_sweep(name: str) -> Path:
    """The sweep file of that name, or the shipped one: `my_sweep.yaml`, `sweep/ppo_maze`.

    Raises:
        ConfigError: there is neither.
    """
    shipped = sweep_paths()
    if Path(name).is_file():
        return Path(name)
    if name.removesuffix(".yaml") in shipped:
        return shipped[name.removesuffix(".yaml")]
    what = "is a folder, not a sweep file" if Path(name).is_dir() else f"is no sweep file{nearest(name, shipped)}"
    raise ConfigError(f"'{name}' {what}", f"give a YAML file; shipped: {', '.join(shipped)}")


def read_plan(path: Path, **replaced: Any) -> SweepPlan:
    """The checked plan of a sweep file, some of its keys replaced by values that are checked already.

    Raises:
        ConfigError: everything wrong with it, at once.
    """
    data, places, problems = read_tree(path)
    sheet = SweepFile(str(path), data, places, problems, PPOConfig)
    settings = dataclasses.replace(_settings(sheet), **replaced)
    sheet.config_type = CONFIG_TYPES[settings.algorithm]
    run = _leaves_of_run(sheet, settings)
    fixed = read_fixed(sheet) | {"num_seeds": (settings.num_seeds, places.get("num_seeds", str(path)))}
    plan = SweepPlan(path, settings, (run, fixed), read_space(sheet))
    if not sheet.problems:
        plan = plan._replace(example=_example(sheet, plan))
    if not sheet.problems:
        _check_scores(sheet, plan)
    if sheet.problems:
        raise ConfigError(sheet.problems, HINT)
    return plan


def _settings(sheet: SweepFile) -> SweepSettings:
    known = [*leaf_types(SweepSettings), "fixed", "space"]
    values: dict[str, Any] = {}
    for name, given in sheet.data.items():
        if name in leaf_types(SweepSettings):
            value, problem = check_leaf(SweepSettings, name, given)
            if problem is None:
                values[name] = value
            else:
                sheet.problem(name, problem)
        elif name in leaf_sections(SPOConfig):
            sheet.unknown(name, f"unknown key '{name}'; it is a leaf, which stands under 'fixed' or 'space'")
        elif name not in known:
            sheet.unknown(name, f"unknown key '{name}'{nearest(name, known)}")
    return SweepSettings(**values)


def _leaves_of_run(sheet: SweepFile, settings: SweepSettings) -> Layer:
    """The leaves of the file that every trial changes."""
    try:
        found = find_config(settings.config or f"{settings.algorithm}/quick", settings.algorithm)
    except ConfigError as error:
        sheet.problem("config", f"{error.what.removeprefix('--config: ')}; {error.hint}")
        return {}
    layer, problems = read_yaml(found, sheet.config_type)
    sheet.problems += problems
    return layer


def _example(sheet: SweepFile, plan: SweepPlan) -> Any:
    """The configuration at the first values of the space, at its last ones, or with those of the run's own file.

    If none of them is possible, most likely no trial would be: that is a problem.
    """
    first, last = ({name: bounds(dimension)[i] for name, dimension in plan.space.items()} for i in (0, 1))
    problems: list[str] = []
    for parameters in (first, last, {}):
        try:
            return plan.config_of(parameters)
        except ConfigError as error:
            problems = problems or error.problems
    sheet.problems += [f"{sheet.shown}: at the first values of the space: {problem}" for problem in problems]
    return None


def _check_scores(sheet: SweepFile, plan: SweepPlan) -> None:
    """Whether trials tell the metric, and early enough for the pruner."""
    metric, evaluation = plan.settings.metric, plan.example.evaluation
    prefix, _, name = metric.rpartition("/")
    if prefix not in ("evaluator", "evaluator_sampled", "evaluator_network"):
        sheet.problem("metric", f"'{metric}' is not of evaluations; did you mean 'evaluator/{name}'?")
    elif prefix == "evaluator_sampled" and not evaluation.evaluate_sampled:
        sheet.problem("metric", f"'{metric}' needs 'evaluate_sampled: true' under 'fixed'")
    elif prefix == "evaluator_network" and plan.settings.algorithm != "spo":
        sheet.problem("metric", f"'{metric}' is of SPO, whose policy searches; PPO's network is 'evaluator/{name}'")
    interval, last = evaluation.eval_interval, plan.example.training_core.num_updates
    if plan.settings.pruner != "none" and not 0 < interval < last:
        sheet.problem(
            "pruner",
            f"nothing is evaluated before the end: eval_interval is {interval} and num_updates {last};"
            " fix a lower eval_interval, or give 'pruner: none'",
        )


def check_metric(plan: SweepPlan, told: Collection[str]) -> None:
    """Nothing, if the metric is among those that evaluations of the task tell.

    Raises:
        ConfigError: it is not.
    """
    prefix, _, name = plan.settings.metric.rpartition("/")
    if name not in told:
        task = plan.example.environment.task_id
        what = f"{plan.path}: metric: evaluations of {task} tell no '{name}'{nearest(name, told)}"
        raise ConfigError(what, f"they tell {', '.join(f'{prefix}/{each}' for each in told)}")


def pace_note(plan: SweepPlan) -> str | None:
    """What to know where an update is not the same amount of experience in all trials; or None."""
    paced = sorted(_PACE & plan.space.keys())
    if not paced or plan.settings.pruner == "none":
        return None
    return f"trials differ in {', '.join(paced)}, and the pruner compares them at the same update"
