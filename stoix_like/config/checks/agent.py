"""The checks of an agent's leaves that do not go together. Imports only the standard library."""

from __future__ import annotations

import math
from typing import Any

from stoix_like.config.checks.access import section_types

TEXT_WORLDS = ("FrozenLake-text-v0", "Sokoban-text-v0", "Sudoku-text-v0")


def agent_problems(config: Any) -> list[str]:
    """One line for each invalid combination of a configuration with the section `agent`."""
    environment, core, agent = config.environment, config.training_core, config.agent
    problems = []
    if environment.task_id not in TEXT_WORLDS:
        problems.append(f"environment.task_id: {environment.task_id} is no world of text; use {', '.join(TEXT_WORLDS)}")
    if core.rollout_length != 1:
        problems.append(
            f"training_core.rollout_length: an update plays one whole episode in each environment, so that a step is an"
            f" episode; it is 1, got {core.rollout_length}"
        )
    if "token_ppo" in section_types(config.__class__):  # pretraining has no groups
        if environment.num_envs % agent.group_size:
            problems.append(f"agent.group_size: {agent.group_size} does not divide num_envs = {environment.num_envs}")
            return problems
        problems += _group_problems(config) + _learning_problems(config)
    if "fine_tune" in section_types(config.__class__):
        return problems + _batch_problems(config)
    return problems + _part_problems(config)


def _group_problems(config: Any) -> list[str]:
    """The episodes of a group are on one device. That devices divide `num_envs` is checked for all algorithms."""
    num_envs, num_devices = config.environment.num_envs, config.hardware.num_devices
    num_groups = num_envs // config.agent.group_size
    if num_envs % num_devices or num_groups % num_devices == 0:
        return []
    return [f"hardware.num_devices: num_envs / group_size = {num_groups} groups are not divisible by {num_devices}"]


def _learning_problems(config: Any) -> list[str]:
    """What PPO over tokens needs of other sections."""
    section, group_size, problems = config.token_ppo, config.agent.group_size, []
    if section.kl_coef > 0.0 and config.checkpointing.load_path is None:
        problems.append("token_ppo.kl_coef: the run is held to the parameters that it begins with; give load_path")
    if group_size == 1 and section.advantage_estimator in ("grpo", "rloo"):
        estimator = f"token_ppo.advantage_estimator: {section.advantage_estimator}"
        problems.append(f"{estimator} compares episodes of a group; group_size is 1")
    if group_size == 1 and section.rollout_filter_ratio < 1.0:
        problems.append("token_ppo.rollout_filter_ratio: groups of one episode have no spread; group_size is 1")
    return problems


def _batch_problems(config: Any) -> list[str]:
    size, num_parts = config.fine_tune.batch_size, config.fine_tune.num_microbatches
    problems = []
    if size % num_parts:
        problems.append(f"fine_tune.batch_size: {size} rows are not divisible by num_microbatches = {num_parts}")
    if config.training_core.num_seeds > 1:
        problems.append("training_core.num_seeds: fine-tuning has one seed, as its rows are of one")
    return problems


def _part_problems(config: Any) -> list[str]:
    """Rows of tokens are dealt out in equal parts: those of a turn each, or of an episode."""
    of, num_rows = "num_envs", config.environment.num_envs
    if config.agent.context == "single_turn":
        of, num_rows = "num_envs * num_turns", num_rows * config.agent.num_turns
    parts, num_parts = "num_minibatches", config.training_core.num_minibatches
    if "token_ppo" in section_types(config.__class__):
        parts, num_parts = "num_minibatches * num_microbatches", num_parts * config.token_ppo.num_microbatches
    elif "pretrain" in section_types(config.__class__) and config.pretrain.gradient_steps > 1:
        parts, num_parts = "num_minibatches * gradient_steps", num_parts * config.pretrain.gradient_steps
    if num_rows % num_parts == 0:
        return []
    unit = num_parts // math.gcd(num_parts, num_rows // config.environment.num_envs)
    if "token_ppo" in section_types(config.__class__):
        unit = math.lcm(unit, config.agent.group_size)
    return [
        f"training_core.num_minibatches: {of} = {num_rows} rows of tokens are not divisible by {parts} = {num_parts};"
        f" num_envs can be a multiple of {unit}"
    ]
