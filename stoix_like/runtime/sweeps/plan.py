"""The plan of a sweep: its file, checked as a whole before anything is trained.

A sweep file names a configuration (a preset or a file), the leaves it fixes, the search space (`space.py`), and how
trials are compared. All problems are reported at once, each with its line. Only `study.py` and `cma_es.py` use Optuna.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from stoix_like.config.checks.access import leaf_sections, leaf_types, replace_leaves
from stoix_like.config.checks.alphazero import anchor_names
from stoix_like.config.checks.values import nearest
from stoix_like.config.dicts import config_to_dict
from stoix_like.config.layers import Layer, config_from_layers, merge_layers
from stoix_like.config.sections.agent_runs import AgentConfig, PretrainConfig
from stoix_like.config.sections.leaves import leaf
from stoix_like.config.sections.roles import Role, leaves_with
from stoix_like.config.sections.runs import AlphaZeroConfig, PPOConfig, SPOConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.text import algorithm_title, shown_path
from stoix_like.runtime.loading.documents import read_leaves, read_yaml
from stoix_like.runtime.loading.presets import DEFAULT_PRESETS, find
from stoix_like.runtime.loading.strict_yaml import YamlFile, root_node
from stoix_like.runtime.sweeps.space import (
    Dimension,
    bounds,
    plain_value,
    read_space,
    settable_leaves,
    unknown_leaf,
)

CONFIG_TYPES: dict[str, type] = {
    "ppo": PPOConfig,
    "spo": SPOConfig,
    "alphazero": AlphaZeroConfig,
    "agent": AgentConfig,
    "pretrain": PretrainConfig,
}
_SEARCHING = ("spo", "alphazero")  # whose policies search, so that their networks are scored as well
HINT = "docs/how-to/sweep.md explains a sweep file, and docs/configuration.md every leaf"


@dataclass(frozen=True)
class SweepSettings:
    """The keys of a sweep file other than `fixed` and `space`."""

    algorithm: Literal["ppo", "spo", "alphazero", "agent", "pretrain"] = leaf("ppo", "what trains")
    config: str | None = leaf(
        None, "preset or file that every trial changes; null = what the algorithm trains with by default"
    )
    metric: str = leaf("evaluator/mean_return", "of EVALUATOR rows; at the end its mean over seeds is a trial's value")
    direction: Literal["maximize", "minimize"] = leaf("maximize", "which values are better")
    num_trials: int = leaf(20, "trials in all", low=1)
    num_seeds: int = leaf(1, "seeds of each trial, trained side by side", low=1)
    sampler: Literal["tpe", "random"] = leaf("tpe", "tree-structured Parzen estimator, or independent draws")
    sampler_seed: int = leaf(0, "root of the sampler's randomness", low=0, high=2**31 - 1)
    pruner: Literal["median", "none"] = leaf("median", "median: prunes a trial that stays below the median of others")
    pruner_startup_trials: int = leaf(5, "complete trials before the first is pruned", low=1)
    pruner_warmup_evaluations: int = leaf(1, "evaluations of a trial before it may be pruned", low=0)

    @property
    def preset(self) -> str:
        """The file or preset that every trial changes."""
        return self.config or DEFAULT_PRESETS[self.algorithm]


class SweepPlan(NamedTuple):
    """A checked sweep file."""

    path: Path
    settings: SweepSettings
    layers: tuple[Layer, Layer]  # of the configuration file, and the fixed leaves including num_seeds
    space: dict[str, Dimension]  # {searched leaf: its dimension}
    example: Any = None  # the configuration at a corner of the space, with what all trials share; None while checked

    @property
    def config_type(self) -> type:
        return CONFIG_TYPES[self.settings.algorithm]

    def config_of(self, parameters: Mapping[str, Any], **leaves: Any) -> Any:
        """The checked configuration of a trial with these parameters, and with `leaves` that the sweep sets.

        Raises ConfigError if the combination of leaves is not valid.
        """
        given = {name: (value, "") for name, value in (dict(parameters) | leaves).items()}
        return config_from_layers(self.config_type(), *self.layers, given)

    def fingerprint(self) -> dict[str, Any]:
        """Everything that must be equal for trials to be comparable, as plain JSON values.

        It does not contain what may change while a study grows, such as the number of trials.
        """
        values, _, _ = merge_layers(*self.layers)
        sections = config_to_dict(replace_leaves(self.config_type(), values))
        content: dict[str, Any] = {name: getattr(self.settings, name) for name in ("algorithm", "metric", "direction")}
        content |= {f"space.{name}": plain_value(dimension) for name, dimension in self.space.items()}
        apart = leaves_with(self.config_type, Role.MACHINE | Role.PROCESS) | self.space.keys()
        for leaves in sections.values():
            content |= {name: value for name, value in leaves.items() if name not in apart}
        if path := values.get("load_path"):  # of `checkpointing`, and yet all trials begin with it
            content["load_path"] = path
        fingerprint: dict[str, Any] = json.loads(json.dumps(content))
        return fingerprint


def fingerprint_differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """One line for each entry in which two fingerprints differ."""
    names = [*before, *(name for name in now if name not in before)]
    texts = [(name, *(json.dumps(of[name]) if name in of else "missing" for of in (now, before))) for name in names]
    return [f"{name} is {is_now}, and was {was} when the study began" for name, is_now, was in texts if is_now != was]


def read_plan(path: Path, **replaced: Any) -> SweepPlan:
    """The checked plan of a sweep file, whose keys in `replaced` have these checked values instead.

    Raises ConfigError with everything that is wrong with the file.
    """
    file = YamlFile(shown_path(path))
    kinds = dict.fromkeys(leaf_types(SweepSettings), SweepSettings) | dict.fromkeys(("fixed", "space"))
    keys = read_leaves(file, root_node(file, path), "", kinds, _unknown_key)
    fixed_node, space_node = (keys.pop(name, (None, ""))[0] for name in ("fixed", "space"))
    settings = SweepSettings(**{name: value for name, (value, _) in keys.items()} | replaced)
    config_type = CONFIG_TYPES[settings.algorithm]
    run = _leaves_of_run(file, settings)
    unknown = functools.partial(unknown_leaf, config_type, "fixed")
    fixed = read_leaves(file, fixed_node, "fixed", settable_leaves(config_type), unknown)
    space = read_space(file, space_node, config_type, fixed)
    fixed["num_seeds"] = (settings.num_seeds, file.place(file.lines.get("num_seeds")))
    plan = SweepPlan(path, settings, (run, fixed), space)
    if not file.problems:
        plan = plan._replace(example=_example(file, plan))
    if not file.problems:
        _check_scores(file, plan)
    if file.problems:
        raise ConfigError(file.problems, HINT)
    return plan


def _unknown_key(name: str) -> str:
    if any(name in leaf_sections(kind) for kind in CONFIG_TYPES.values()):
        return f"unknown key '{name}'; it is a leaf, which belongs under 'fixed' or 'space'"
    return f"unknown key '{name}'{nearest(name, [*leaf_types(SweepSettings), 'fixed', 'space'])}"


def _leaves_of_run(file: YamlFile, settings: SweepSettings) -> Layer:
    """The leaves of the configuration that every trial starts from."""
    try:
        found = find(settings.preset, settings.algorithm)
    except ConfigError as error:
        file.problem_of("config", f"{error.what}; {error.hint}")
        return {}
    layer, problems = read_yaml(found, CONFIG_TYPES[settings.algorithm])
    file.problems += problems
    return layer


def _example(file: YamlFile, plan: SweepPlan) -> Any:
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
    file.problems += [f"{file.shown}: at the first values of the space: {problem}" for problem in problems]
    return None


def _check_scores(file: YamlFile, plan: SweepPlan) -> None:
    """Adds a problem if trials do not report the metric, or report it too late for the pruner."""
    metric, evaluation = plan.settings.metric, plan.example.evaluation
    prefix, _, name = metric.rpartition("/")
    opponents = anchor_names(plan.example.alphazero.anchors) if plan.settings.algorithm == "alphazero" else []
    if prefix not in ("evaluator", "evaluator_sampled", "evaluator_network", *(f"evaluator_vs_{o}" for o in opponents)):
        file.problem_of("metric", f"'{metric}' is not of evaluations; did you mean 'evaluator/{name}'?")
    elif prefix == "evaluator_sampled" and not evaluation.evaluate_sampled:
        file.problem_of("metric", f"'{metric}' needs 'evaluate_sampled: true' under 'fixed'")
    elif prefix == "evaluator_network" and plan.settings.algorithm not in _SEARCHING:
        what = f"of algorithms whose policy searches; {algorithm_title(plan.settings.algorithm)}'s network is"
        file.problem_of("metric", f"'{metric}' is {what} 'evaluator/{name}'")
    interval, last = evaluation.eval_interval, plan.example.training_core.num_updates
    if plan.settings.pruner != "none" and not 0 < interval < last:
        file.problem_of(
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
