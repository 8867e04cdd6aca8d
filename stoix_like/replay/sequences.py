"""Sequences of experience in and out: a ring over time for every environment. The one door to flashbax.

flashbax's trajectory buffer keeps and samples the rings; it is made once per logical shard of the environments. Their
number depends on the sizes alone, as in `algorithms/minibatch.py`, so any number of devices samples the same sequences
and none reads another's rows. Left out: priorities, and targets computed anew at replay time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flashbax
import jax
import jax.numpy as jnp
from flashbax.buffers.trajectory_buffer import TrajectoryBufferState

from stoix_like.config.checks.replay_sizes import num_logical_shards, size_problems
from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.types import Array, Key

__all__ = ["Buffer", "ReplayState", "make_buffer", "num_bytes", "num_logical_shards"]


class ReplayState(NamedTuple):
    """Rings of equal length, one per environment, all written at the same place. Not flashbax's own dataclass."""

    experience: Any  # leaves [shards, N / shards, T_max, ...] of the example's types; environment-major
    current_index: Array  # [] int32, where the next step goes; once full, where the oldest one stands
    is_full: Array  # [] bool, every place was written


class Buffer(NamedTuple):
    """A replay buffer as pure functions.

    Attributes:
        init: one step, leaves [...] without batch axes (arrays or ShapeDtypeStructs) -> empty state. Use under jit.
        add: (state, steps [T, N, ...] that follow those added before) -> state without the T oldest steps it had no
            room for. T may differ between calls and is at most the time axis.
        sample: (state, key) -> sequences [B, L, ...], rows grouped by shard. Each is contiguous in time, of one
            environment, and starts a multiple of `sample_period` after the oldest step; with replacement, all equally
            probable. Nothing but what was added is read, provided that `can_sample`; before, the rows mean nothing.
        can_sample: state -> [] bool, whether there are L steps.
    """

    init: Callable[[Any], ReplayState]
    add: Callable[[ReplayState, Any], ReplayState]
    sample: Callable[[ReplayState, Key], Any]
    can_sample: Callable[[ReplayState], Array]


def num_bytes(example_step: Any, num_steps: int = 1) -> int:
    """Bytes of `num_steps` stored steps, from the shapes and types of one: leaves [...] without batch axes."""
    return num_steps * sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(example_step))


def make_buffer(
    *,
    num_envs: int,
    capacity_steps: int,
    rollout_length: int,
    sequence_length: int,
    batch_size: int,
    sample_period: int,
    num_shards: int,
) -> Buffer:
    """A buffer of the last `capacity_steps // num_envs` steps of each environment.

    Args:
        num_envs: N. Shard s holds the environments [s * N / num_shards, (s + 1) * N / num_shards).
        capacity_steps: environment steps kept in all, rounded down to whole time steps.
        rollout_length: T of the adds to come; the time axis need not be a multiple of it.
        sequence_length: L, steps per sampled sequence.
        batch_size: B, sequences per sample; every shard gives B / num_shards.
        sample_period: steps between the possible starts of sequences.
        num_shards: see `num_logical_shards`.

    Raises:
        ConfigError: sizes that cannot work together, all of them at once (`size_problems`).
    """
    sizes = _Sizes(num_envs, capacity_steps, rollout_length, sequence_length, batch_size, sample_period, num_shards)
    if problems := size_problems(**sizes._asdict()):
        raise ConfigError(problems, "change the values named; docs/configuration.md explains each leaf")
    of_shard = _ring_of_shard(sizes)
    return Buffer(
        init=functools.partial(_init, of_shard, num_shards),
        add=functools.partial(_add, of_shard, num_envs, num_shards),
        sample=functools.partial(_sample, of_shard, num_shards),
        can_sample=functools.partial(_can_sample, of_shard),
    )


class _Sizes(NamedTuple):
    """What `make_buffer` is given."""

    num_envs: int
    capacity_steps: int
    rollout_length: int
    sequence_length: int
    batch_size: int
    sample_period: int
    num_shards: int


def _ring_of_shard(sizes: _Sizes) -> Any:
    """flashbax's buffer of the environments of one shard."""
    return flashbax.make_trajectory_buffer(
        add_batch_size=sizes.num_envs // sizes.num_shards,
        max_length_time_axis=sizes.capacity_steps // sizes.num_envs,
        min_length_time_axis=sizes.sequence_length,
        sample_batch_size=sizes.batch_size // sizes.num_shards,
        sample_sequence_length=sizes.sequence_length,
        period=sizes.sample_period,
    )


def _init(of_shard: Any, num_shards: int, example_step: Any) -> ReplayState:
    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example_step)
    rings = jax.eval_shape(of_shard.init, example).experience  # [N / shards, T_max, ...]
    experience = jax.tree.map(lambda x: jnp.zeros((num_shards, *x.shape), x.dtype), rings)
    return ReplayState(experience, jnp.zeros((), jnp.int32), jnp.zeros((), jnp.bool_))


def _add(of_shard: Any, num_envs: int, num_shards: int, state: ReplayState, steps: Any) -> ReplayState:
    def by_shard(x: Array) -> Array:  # [T, N, ...] -> [shards, N / shards, T, ...], grouped as `minibatch.shard_rows`
        return jnp.swapaxes(x, 0, 1).reshape(num_shards, num_envs // num_shards, x.shape[0], *x.shape[2:])

    def add(experience: Any, steps: Any) -> tuple[Any, Array, Array]:
        added = of_shard.add(_flashbax_state(experience, state), steps)
        return added.experience, added.current_index, added.is_full

    with jax.numpy_rank_promotion("allow"):  # the place of writing is the same in every shard, so it gets no axis
        added = jax.vmap(add, out_axes=(0, None, None))(state.experience, jax.tree.map(by_shard, steps))
    return ReplayState(*added)


def _sample(of_shard: Any, num_shards: int, state: ReplayState, key: Key) -> Any:
    def sample(experience: Any, shard_key: Key) -> Any:
        return of_shard.sample(_flashbax_state(experience, state), shard_key).experience

    with jax.numpy_rank_promotion("allow"):
        sequences = jax.vmap(sample)(state.experience, jax.random.split(key, num_shards))
    return trees.merge_leading(sequences)  # [shards * B / shards, L, ...]


def _can_sample(of_shard: Any, state: ReplayState) -> Array:
    return of_shard.can_sample(_flashbax_state(state.experience, state))


def _flashbax_state(experience: Any, state: ReplayState) -> Any:
    return TrajectoryBufferState(experience=experience, current_index=state.current_index, is_full=state.is_full)
