"""The configurations of the stages that train, each a run's, from the leaves of a pipeline.

A table names for each leaf of the pipeline the leaf of the run that it sets. What a stage reads are the keys of its
table, so nothing else makes it due again.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from stoix_like.config.checks.access import get_leaf, section_types
from stoix_like.config.layers import resolve
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, PretrainConfig
from stoix_like.config.sections.runs import HardwareConfig, LoggingConfig, PPOConfig
from stoix_like.config.sections.spa import ModelSectionConfig, SPAAgentConfig, SPAConfig, WorldSectionConfig
from stoix_like.errors import ConfigError
from stoix_like.spa.arms import EVALUATE, GENERATE, PLAIN, PPO, PRETRAIN, SFT, Arm


def _same(*sections: type) -> dict[str, str]:
    """{leaf: itself} of sections, for leaves of one name in both."""
    return {field.name: field.name for section in sections for field in dataclasses.fields(section)}


def _without_stage(stage: str, *names: str) -> dict[str, str]:
    """{leaf with the stage in its name: the leaf of the run}."""
    return {f"{stage}_{name}": name for name in names}


_WORLD = _same(WorldSectionConfig)
_AGENT = _WORLD | _same(SPAAgentConfig, ModelSectionConfig)
_PENALTY = "format_penalty"  # which only PPO learns from
del _AGENT[_PENALTY]
_EVALUATIONS = {"eval_levels": "num_eval_episodes", "eval_samples": "num_eval_samples"}
_TABLES: dict[str, dict[str, str]] = {
    PRETRAIN: _AGENT
    | _EVALUATIONS
    | _without_stage(PRETRAIN, "max_grad_norm", "weight_decay", "warmup_updates", "all_modes", "gradient_steps")
    | {
        "baseline_mode": "mode",
        "vanilla_rendering": "second_rendering",
        "pretrain_updates": "num_updates",
        "pretrain_envs": "num_envs",
        "pretrain_microbatches": "num_minibatches",
        "pretrain_lr": "actor_lr",
    },
    GENERATE: _AGENT | {"generate_mode": "mode", "generate_group_size": "group_size"},
    SFT: _AGENT
    | _without_stage(SFT, "batch_size", "schedule", "warmup_share", "weight_decay", "max_grad_norm", "loss_mask")
    | _without_stage(SFT, "adam_b1", "adam_b2", "max_length", "truncation")
    | {
        "generate_mode": "mode",
        "sft_lr": "actor_lr",
        "sft_microbatches": "num_microbatches",
        "sft_validation_rows": "num_eval_episodes",
    },
    PPO: _AGENT
    | _EVALUATIONS
    | _without_stage(PPO, "group_size", "mode", "critic_lr", "decay_learning_rates", "epochs", "gamma", "gae_lambda")
    | _without_stage(PPO, "clip_eps", "clip_eps_high", "dual_clip", "value_clip_eps", "vf_coef", "entropy_of")
    | _without_stage(PPO, "reward_scale", "standardize_advantages", "critic", "critic_warmup_updates", "turn_gamma")
    | _without_stage(PPO, "kl_coef", "loss_mask", "old_log_probs", "max_grad_norm")
    | {
        _PENALTY: _PENALTY,
        "ppo_updates": "num_updates",
        "ppo_envs": "num_envs",
        "ppo_lr": "actor_lr",
        "ppo_minibatches": "num_minibatches",
        "ppo_microbatches": "num_microbatches",
        "ppo_entropy_coeff": "ent_coef",
        "adv_estimator": "advantage_estimator",
        "rollout_filter_ratio": "rollout_filter_ratio",
        "eval_interval": "eval_interval",
    },
    EVALUATE: _AGENT | {"ppo_mode": "mode", "eval_samples": "num_eval_samples"},
}
#: Leaves that a stage reads and that are no leaf of a run.
_OWN: dict[str, tuple[str, ...]] = {
    GENERATE: (
        *("generate_batches", "generate_groups", "generate_policy", "generate_states", "generate_keep_untagged"),
        "generate_validation_share",
    ),
    SFT: ("sft_epochs",),
    EVALUATE: ("final_eval_levels", "eval_forced_prediction"),
}
_PLAIN_OWN = {EVALUATE: ("final_eval_levels",)}
#: Of PPO without language, with the sizes that solve FrozenLake: docs/benchmarks/agents.md.
_PLAIN_WORLD = _WORLD | {"seed": "seed"}
_PLAIN_TABLES = {
    PPO: _PLAIN_WORLD
    | {"ppo_updates": "num_updates", "ppo_envs": "num_envs"}
    | {"eval_levels": "num_eval_episodes", "eval_interval": "eval_interval"},
    EVALUATE: _PLAIN_WORLD,
}
_PLAIN_LEAVES = {"rollout_length": 16, "num_minibatches": 4, "actor_lr": 1e-3, "hidden_dim": 128}
_BASE = {"all_renderings": False}  # it learns those of the arms
_UNSHOWN = {"num_shown_episodes": 0}  # of stages whose episodes nobody looks at
_ONLY_SHOW = ("eval_levels", "eval_interval", "eval_samples")  # while a stage trains: it makes the same without them
_TYPES = {PRETRAIN: PretrainConfig, GENERATE: AgentConfig, SFT: FineTuneConfig, PPO: AgentConfig, EVALUATE: AgentConfig}
#: {stage that trains: the algorithm of its run}
ALGORITHMS = {PRETRAIN: "pretrain", SFT: "sft", PPO: "agent"}
#: {stage: leaves of its run that the stages before it decide}, with values that stand for them.
LATER: dict[str, dict[str, Any]] = {SFT: {"load_path": "base", "data_path": "rows"}, PPO: {"load_path": "base"}}
_MACHINE = (HardwareConfig, LoggingConfig)


def algorithm_of(arm: Arm, stage: str) -> str:
    """The algorithm of a stage that trains."""
    return "ppo" if arm.name == PLAIN else ALGORITHMS[stage]


def settings_of(config: SPAConfig, arm: Arm, stage: str) -> dict[str, Any]:
    """{leaf of the pipeline: value} of all that what a stage makes depends on."""
    read = config if stage == PRETRAIN else arm.config
    is_plain = arm.name == PLAIN
    names = (*_table(arm, stage), *(_PLAIN_OWN if is_plain else _OWN).get(stage, ()))
    seen = () if stage == EVALUATE else _ONLY_SHOW
    found = {name: get_leaf(read, name) for name in names if name not in seen}
    return found | (_PLAIN_LEAVES if is_plain and stage == PPO else {})


def stage_config(config: SPAConfig, arm: Arm, stage: str, leaves: Mapping[str, Any]) -> Any:
    """The checked configuration of a stage's run, with further leaves of it. Raises ConfigError as `resolve`."""
    read = config if stage == PRETRAIN else arm.config
    given = {ours: get_leaf(read, name) for name, ours in _table(arm, stage).items()}
    machine = {name: get_leaf(config, name) for name in _same(*_MACHINE)}
    config_type = PPOConfig if arm.name == PLAIN else _TYPES[stage]
    return resolve(config_type(), given | _further_leaves(arm, stage) | machine | dict(leaves))


def _further_leaves(arm: Arm, stage: str) -> dict[str, Any]:
    """{leaf of a stage's run: value} of those that are constants, or made of several leaves of the pipeline."""
    section, ppo = arm.config.generate, arm.config.ppo
    if arm.name == PLAIN:
        return _PLAIN_LEAVES
    if stage == PRETRAIN:
        return _BASE | _UNSHOWN
    if stage == GENERATE:  # a batch of episodes is what an update would be
        return {"num_envs": section.generate_groups * section.generate_group_size, "num_minibatches": 1}
    if stage == SFT:
        return _UNSHOWN
    if stage == EVALUATE:  # which plays no update; what is checked together has to fit
        sizes = {"num_envs": ppo.ppo_envs, "group_size": ppo.ppo_group_size}
        return sizes | {"num_minibatches": ppo.ppo_minibatches}
    return {}


def config_problems(config: SPAConfig, arm: Arm) -> list[str]:
    """What is wrong with the configuration of any stage of an arm, before one of them has begun."""
    problems = dict[str, str]()
    for stage in arm.stages:
        try:
            stage_config(config, arm, stage, {} if arm.name == PLAIN else LATER.get(stage, {}))
        except ConfigError as error:
            problems = {_in_our_words(problem, arm, stage): stage for problem in error.problems} | problems
    found = [f"{stage}: {problem}" for problem, stage in problems.items()]
    return [*found, *(_base_problems(config, arm) if PRETRAIN in arm.stages else [])]


def _in_our_words(problem: str, arm: Arm, stage: str) -> str:
    """A problem of a stage's configuration with the leaves of the pipeline in place of the stage's."""
    names = {ours: name for name, ours in _table(arm, PPO if stage == EVALUATE else stage).items()}
    sections = {
        field.name: name for name, kind in section_types(SPAConfig).items() for field in dataclasses.fields(kind)
    }

    def replaced(match: re.Match[str]) -> str:
        name = names.get(match["own"] or match["bare"])  # a bare word without _, such as mode, may be no leaf
        if name is None:
            return match[0]
        return f"{sections[name]}.{name}" if match["section"] else name

    return re.sub(
        r"\b(?:(?P<section>[a-z_]+)\.(?P<own>[a-z0-9_]+)|(?P<bare>[a-z]+(?:_[a-z0-9]+)+))\b", replaced, problem
    )


def _base_problems(config: SPAConfig, arm: Arm) -> list[str]:
    """What an arm plays that its base has not learned to answer."""
    problems, baseline = [], config.pipeline.baseline_mode
    modes = [arm.config.ppo.ppo_mode, *([arm.config.generate.generate_mode] if SFT in arm.stages else [])]
    other = [mode for mode in modes if mode != baseline]
    if other and not config.pretrain.pretrain_all_modes:
        what = f"the base learns answers of the mode {baseline} alone, and the arm plays {other[0]}"
        problems.append(f"pretrain.pretrain_all_modes: {what}")
    return problems


def _table(arm: Arm, stage: str) -> dict[str, str]:
    return (_PLAIN_TABLES if arm.name == PLAIN else _TABLES)[stage]
