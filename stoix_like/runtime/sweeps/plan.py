"""The plan of a sweep: its file, checked as a whole before anything is trained.

A sweep file names a configuration (a preset or a file), the leaves it fixes, the search space (`space.py`), and how
trials are compared. All problems are reported at once, each with its line. Only `study.py` uses Optuna.
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
from stoix_like.config.roles import Role, leaves_with
from stoix_like.config.sections import PPOConfig, SPOConfig, leaf
from stoix_like.config.values import nearest
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.config import merge_layers
from stoix_like.runtime.loading.documents import Layer, read_yaml
from stoix_like.runtime.loading.presets import find_config, sweep_paths
from stoix_like.runtime.loading.strict_yaml import read_tree
from stoix_like.runtime.sweeps.space import (
    Dimension,
    SweepFile,
    bounds,
    plain_value,
    read_fixed,
    read_space,
)

CONFIG_TYPES: dict[str, type] = {"ppo": PPOConfig, "spo": SPOConfig}
HINT = "docs/how-to/sweep.md explains a sweep file, and docs/configuration.md every leaf"


@dataclass(frozen=True)
class SweepSettings:
    """The keys of a sweep file other than `fixed` and `space`."""

    algorithm: Literal["ppo", "spo"] = leaf("ppo", "what trains")
    config: str | None = leaf(None, "preset or file that every trial changes; null = <algorithm>/quick")
    metric: str = leaf("evaluator/mean_return", "of EVALUATOR rows; at the end its mean over seeds is a trial's value")
    direction: Literal["maximize", "minimize"] = leaf("maximize", "which values are better")
    num_trials: int = leaf(20, "trials in all", low=1)
    num_seeds: int = leaf(1, "seeds of each trial, trained side by side", low=1)
    sampler: Literal["tpe", "random"] = leaf("tpe", "tree-structured Parzen estimator, or independent draws")
    sampler_seed: int = leaf(0, "root of the sampler's randomness", low=0, high=2**31 - 1)
    pruner: Literal["median", "none"] = leaf("median", "median: prunes a trial that stays below the median of others")
    pruner_startup_trials: int = leaf(5, "complete trials before the first is pruned", low=1)
    pruner_warmup_evaluations: int = leaf(1, "evaluations of a trial before it may be pruned", low=0)


class SweepPlan(NamedTuple):
    """A checked sweep file.

    Attributes:
        path: the file.
        settings: its keys.
        layers: the leaves of the configuration file, and the fixed ones including num_seeds.
        space: {leaf: its dimension} of the searched leaves.
        example: the configuration at one corner of the space, to read what all trials share; None while it is checked.
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
        """The checked configuration of a trial with these parameters, and with `leaves` that the sweep sets.

        Raises:
            ConfigError: the combination of leaves is not valid.
        """
        given = {name: (value, "") for name, value in (dict(parameters) | leaves).items()}
        values, _, problems = merge_layers([*self.layers, given])
        if problems:
            raise ConfigError(problems, HINT)
        return resolve(replace_leaves(self.config_type(), values))

    def fingerprint(self) -> dict[str, Any]:
        """Everything that must be equal for trials to be comparable, as plain JSON values.

        It does not contain what may change while a study grows, such as the number of trials.
        """
        values, _, _ = merge_layers([*self.layers])
        sections = config_to_dict(replace_leaves(self.config_type(), values))
        content: dict[str, Any] = {name: getattr(self.settings, name) for name in ("algorithm", "metric", "direction")}
        content |= {f"space.{name}": plain_value(dimension) for name, dimension in self.space.items()}
        apart = leaves_with(self.config_type, Role.MACHINE | Role.PROCESS) | self.space.keys()
        for leaves in sections.values():
            content |= {name: value for name, value in leaves.items() if name not in apart}
        fingerprint: dict[str, Any] = json.loads(json.dumps(content))
        return fingerprint


def fingerprint_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for each entry in which two fingerprints differ."""
    names = [*before, *(name for name in now if name not in before)]
    texts = [(name, *(json.dumps(of[name]) if name in of else "missing" for of in (now, before))) for name in names]
    return [f"{name} is {is_now}, and was {was} when the study began" for name, is_now, was in texts if is_now != was]


def find_sweep(name: str) -> Path:
    """The path of a sweep file, `my_sweep.yaml`, or of a shipped one, `sweep/ppo_maze`. ConfigError if not found."""
    shipped = sweep_paths()
    if Path(name).is_file():
        return Path(name)
    if name.removesuffix(".yaml") in shipped:
        return shipped[name.removesuffix(".yaml")]
    reason = "is a folder, not a sweep file" if Path(name).is_dir() else f"is no sweep file{nearest(name, shipped)}"
    raise ConfigError(f"'{name}' {reason}", f"give a YAML file; shipped: {', '.join(shipped)}")


def read_plan(path: Path, **replaced: Any) -> SweepPlan:
    """The checked plan of a sweep file.

    Args:
        path: the file.
        replaced: keys with checked values that replace those of the file.

    Raises:
        ConfigError: lists everything that is wrong with the file.
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
            sheet.unknown(name, f"unknown key '{name}'; it is a leaf, which belongs under 'fixed' or 'space'")
        elif name not in known:
            sheet.unknown(name, f"unknown key '{name}'{nearest(name, known)}")
    return SweepSettings(**values)


def _leaves_of_run(sheet: SweepFile, settings: SweepSettings) -> Layer:
    """The leaves of the configuration that every trial starts from."""
    try:
        found = find_config(settings.config or f"{settings.algorithm}/quick", settings.algorithm)
    except ConfigError as error:
        sheet.problem("config", f"{error.what.removeprefix('--config: ')}; {error.hint}")
        return {}
    layer, problems = read_yaml(found, sheet.config_type)
    sheet.problems += problems
    return layer


def _example(sheet: SweepFile, plan: SweepPlan) -> Any:
    """The configuration at the first values of the space, at its last values, or without any searched leaf.

    If none of these is valid, probably no trial would be: that is reported as a problem.
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
    """Adds a problem if trials do not report the metric, or report it too late for the pruner."""
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


def check_metric(plan: SweepPlan, metrics: Collection[str]) -> None:
    """Raises ConfigError if the metric is not among those that evaluations of the task report."""
    prefix, _, name = plan.settings.metric.rpartition("/")
    if name not in metrics:
        task = plan.example.environment.task_id
        message = f"{plan.path}: metric: evaluations of {task} report no '{name}'{nearest(name, metrics)}"
        raise ConfigError(message, f"they report {', '.join(f'{prefix}/{metric}' for metric in metrics)}")


def pace_note(plan: SweepPlan) -> str | None:
    """A note if updates of the trials contain different amounts of experience and a pruner compares them; or None."""
    paced = sorted(leaves_with(plan.config_type, Role.PACE) & plan.space.keys())
    if not paced or plan.settings.pruner == "none":
        return None
    return f"trials differ in {', '.join(paced)}, and the pruner compares them at the same update"
