"""The checks of an agent's leaves that do not go together. Imports only the standard library."""

from __future__ import annotations

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
    if environment.num_envs % agent.group_size:
        problems.append(f"agent.group_size: {agent.group_size} does not divide num_envs = {environment.num_envs}")
        return problems
    num_groups = environment.num_envs // agent.group_size
    if num_groups % config.hardware.num_devices:
        problems.append(
            f"hardware.num_devices: num_envs / group_size = {num_groups} groups are not divisible by"
            f" {config.hardware.num_devices}"
        )
    return problems + _part_problems(config)


def _part_problems(config: Any) -> list[str]:
    """Rows of tokens are dealt out in equal parts: those of a turn each, or of an episode."""
    num_rows = config.environment.num_envs * (config.agent.num_turns if config.agent.context == "single_turn" else 1)
    num_minibatches = config.training_core.num_minibatches
    num_parts = num_minibatches * (
        config.token_ppo.num_microbatches if "token_ppo" in section_types(config.__class__) else 1
    )
    if num_rows % num_parts == 0:
        return []
    of = "num_envs * num_turns" if config.agent.context == "single_turn" else "num_envs"
    return [
        f"training_core.num_minibatches: {of} = {num_rows} rows of tokens are not divisible by {num_parts} parts"
        " (num_minibatches * num_microbatches)"
    ]
