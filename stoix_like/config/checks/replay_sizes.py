"""Checks of the sizes of a replay, made with the other checks of a configuration before JAX starts.

Imports only the standard library. The replay itself is in `replay/sequences.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from stoix_like.config.checks.values import LARGEST_WHOLE

MOST_SHARDS = 8


def num_logical_shards(num_envs: int, batch_size: int) -> int:
    """The largest of 8, 4, 2, 1 that divides both the number of environments and the batch size."""
    return next(s for s in (MOST_SHARDS, 4, 2, 1) if num_envs % s == 0 and batch_size % s == 0)


def size_problems(
    *,
    num_envs: int,
    capacity_steps: int,
    rollout_length: int,
    sequence_length: int,
    batch_size: int,
    sample_period: int,
    num_shards: int,
    bootstrap_steps: int = 0,
) -> list[str]:
    """One line `section.leaf: ...` for each reason why a buffer of these sizes cannot work.

    `bootstrap_steps` are sampled in addition to the `sequence_length` steps that are learned from.
    """
    sizes = {
        "environment.num_envs": num_envs,
        "spo.replay_buffer_size": capacity_steps,
        "training_core.rollout_length": rollout_length,
        "spo.sample_sequence_length": sequence_length,
        "spo.batch_size": batch_size,
        "spo.sample_period": sample_period,
    }
    problems = [f"{name}: must be >= 1, got {size}" for name, size in sizes.items() if size < 1]
    if problems:
        return problems
    problems = _shard_problems(sizes, num_shards)
    for name, verb in (("training_core.rollout_length", "added"), ("spo.sample_sequence_length", "sampled")):
        more = bootstrap_steps if verb == "sampled" else 0
        problems += _capacity_problems(capacity_steps, num_envs, name, sizes[name], verb, more)
    if 2 * (capacity_steps // num_envs) > LARGEST_WHOLE:  # flashbax adds two time indices
        most = (LARGEST_WHOLE // 2 + 1) * num_envs - 1
        problems.append(f"spo.replay_buffer_size: {capacity_steps:,} cannot be counted; use at most {most:,}")
    if sample_period > sequence_length:
        problems.append(
            f"spo.sample_period: {sample_period} is above spo.sample_sequence_length = {sequence_length}, so"
            f" {sample_period - sequence_length} of every {sample_period} steps would never be sampled;"
            f" use at most {sequence_length}"
        )
    return problems


def _shard_problems(sizes: Mapping[str, int], num_shards: int) -> list[str]:
    problems = []
    for name in ("environment.num_envs", "spo.batch_size"):
        if sizes[name] % num_shards:
            below = sizes[name] // num_shards * num_shards
            use = f"{below} or {below + num_shards}" if below else f"{num_shards}"
            problems.append(f"{name}: {sizes[name]} is not divisible by the {num_shards} logical shards; use {use}")
    return problems


def _capacity_problems(capacity_steps: int, num_envs: int, name: str, length: int, verb: str, more: int) -> list[str]:
    time_axis = capacity_steps // num_envs
    if length + more <= time_axis:
        return []
    longest = time_axis - more
    shorter = f", or a {name.partition('.')[2]} of at most {longest}" if longest > 0 else ""
    verb += f" with {more} more" if more else ""
    return [
        f"spo.replay_buffer_size: {capacity_steps:,} steps of num_envs = {num_envs} environments are {time_axis} of"
        f" each, and {name} = {length} are {verb} at once; use at least {(length + more) * num_envs:,}{shorter}"
    ]
