"""Kernels of an update, from a trace: how many an environment step and a gradient step take, and the busy time.

A kernel takes the host some microseconds to launch, so an update of many short ones is bound by launches, not by
arithmetic. XLA records kernels into command buffers (CUDA graphs), which are launched at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from stoix_like.bench.speed import scaling
from stoix_like.bench.timing.measure import Measurement
from stoix_like.bench.timing.updates import Updates, preset_config
from stoix_like.config.sections.runs import PPOConfig, SPOConfig
from stoix_like.runtime.profiling.phase_times import OTHER, Scopes
from stoix_like.runtime.profiling.traces import ProfileEvent

NUM_ENVS = (64, 4096)


class Kernels(NamedTuple):
    """The kernels of one update.

    Attributes:
        playing: executed before the gradient steps.
        optimising: executed from the first gradient step on.
        busy: nanoseconds in which the device executed one.
        span: nanoseconds from the first to the last.
    """

    playing: int
    optimising: int
    busy: float
    span: float


def launches_suite() -> Iterator[Measurement]:
    """Kernels of the presets' updates by environments."""
    for (name, preset, _), num_envs in itertools.product(scaling.BY_ENVS, NUM_ENVS):
        config = scaling.with_envs(preset_config(preset), num_envs)
        lines, scopes = Updates(config).traced()
        yield from kernel_rows(f"launches/{name}/envs/{num_envs}", config, count_kernels(lines, scopes))


def kernel_rows(name: str, config: PPOConfig | SPOConfig, kernels: Kernels) -> Iterator[Measurement]:
    """Kernels of an environment step, of all environments at once, and of a gradient step."""
    core = config.training_core
    whole = kernels.playing + kernels.optimising
    busy = f"busy for {kernels.busy / kernels.span:.0%} of {kernels.span / 1e6:,.1f} ms while it is traced"
    note = f"{whole:,} an update, {kernels.busy / whole / 1e3:.1f} us each; the device is {busy}"
    per_step = kernels.playing / core.rollout_length
    yield Measurement(f"{name}/environment_step", per_step, "kernels", note=note)
    per_gradient = kernels.optimising / (core.epochs * core.num_minibatches)
    yield Measurement(f"{name}/gradient_step", per_gradient, "kernels")


def count_kernels(lines: list[list[ProfileEvent]], scopes: Mapping[str, Scopes]) -> Kernels:
    """The kernels of an update from its events, a list for each stream, and the scopes of its instructions."""
    events = sorted(itertools.chain.from_iterable(lines), key=lambda event: event.start_ns)
    playing = _first_gradient(scopes[event.instruction] for event in events)
    busy, free_at = 0.0, 0.0
    for event in events:
        end = event.start_ns + event.duration_ns
        busy += max(0.0, end - max(event.start_ns, free_at))
        free_at = max(free_at, end)
    span = free_at - events[0].start_ns if events else 0.0
    return Kernels(playing, len(events) - playing, busy, span)


def _first_gradient(scopes: Iterable[Scopes]) -> int:
    """The number of kernels before the gradient steps, which end an update.

    A loop inside a network may have the scope of another use of it, and copies have none. So the kernels are divided
    where fewest of those with a scope stand on the wrong side.
    """
    wrong = best = where = 0
    for number, found in enumerate(scopes, start=1):
        wrong += (1 if found.optimises else -1) * (found.phase != OTHER)
        if wrong < best:
            best, where = wrong, number
    return where
