"""Timing on a machine that is never quiet: contestants take turns in one process, and medians are compared.

A ratio is only told if it is larger than its own spread could explain.
"""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
from jax.stages import Compiled

from stoix_like.runtime.console.installation import git_commit, versions
from stoix_like.runtime.console.text import number_text


class Measurement(NamedTuple):
    """One measured number. Fields that do not apply are None.

    Attributes:
        name, value, unit: what was measured; the median.
        spread: half the distance between the quartiles over the median.
        reference: the same measure of what it is compared with, taken in turns in the same process.
        ratio: how many times better than the reference; None if the spreads do not carry it.
        ceiling: the most this machine could do, measured in the same process.
        share: value / ceiling.
        note: what the reference or the ceiling is.
    """

    name: str
    value: float
    unit: str
    spread: float | None = None
    reference: float | None = None
    ratio: float | None = None
    ceiling: float | None = None
    share: float | None = None
    note: str = ""


class Timing(NamedTuple):
    """Seconds of one contestant: the median, and half its interquartile range over the median."""

    seconds: float
    spread: float


def interleaved(contestants: Mapping[str, Callable[[], Any]], repetitions: int = 7) -> dict[str, Timing]:
    """Timings of the contestants, run A B A B ... in this process after one unmeasured round each."""
    for run in contestants.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(repetitions):
        for name, run in contestants.items():
            began = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - began)
    return {name: timing(values) for name, values in seconds.items()}


def timing(seconds: list[float]) -> Timing:
    """Median and relative spread of at least two measurements."""
    median = statistics.median(seconds)
    lower, _, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median, (upper - lower) / 2 / median)


def compared(name: str, timings: Mapping[str, Timing], amount: float, unit: str, note: str) -> Measurement:
    """The row of `ours` against `theirs`, each of which did `amount` of something."""
    ours, theirs = timings["ours"], timings["theirs"]
    ratio = ratio_note(ours, theirs)
    return Measurement(name, amount / ours.seconds, unit, ours.spread, amount / theirs.seconds, ratio, note=note)


def ratio_note(ours: Timing, theirs: Timing) -> float | None:
    """theirs / ours, or None if the two spreads together are larger than the difference that is claimed."""
    ratio = theirs.seconds / ours.seconds
    if ours.spread + theirs.spread >= abs(ratio - 1.0):
        return None
    return ratio


def peak_bytes(program: Compiled) -> int:
    """What a program holds at once: arguments, results and temporaries, shared ones once."""
    memory: Any = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(held + memory.temp_size_in_bytes)


def matrix_product_peak(rows: int, width: int) -> Callable[[], Any]:
    """A function that multiplies [rows, width] by [width, width] 200 times inside one scan; `peak_flops` of it."""
    import jax.numpy as jnp

    left = jax.random.normal(jax.random.key(0), (rows, width))
    right = jax.random.normal(jax.random.key(1), (width, width)) / width**0.5

    @jax.jit
    def run(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (jnp.dot(c, right), None), x, None, 200)[0]

    return lambda: run(left)


def peak_flops(rows: int, width: int) -> float:
    """Floating-point operations of one call of `matrix_product_peak(rows, width)`."""
    return 200 * 2.0 * rows * width * width


def machine_row(device: str) -> Measurement:
    """What it was measured on, and with what: the first row of every file."""
    installed = versions()
    told = ", ".join(f"{name} {installed[name]}" for name in ("stoix_like", "python", "jax", "jaxlib", "jumanji"))
    note = f"{device}; {platform.machine()}, {told}; {datetime.date.today().isoformat()}"
    if (known := git_commit()) is not None:
        note += f"; commit {known}"
    return Measurement("machine", os.cpu_count() or 1, "cores", note=note)


def line(row: Measurement) -> str:
    """The row as one line of text."""
    parts = [f"{row.name:<26}{number_text(row.value):>12} {row.unit}"]
    if row.spread is not None:
        parts.append(f"± {row.spread:.0%}")
    if row.reference is not None:
        ratio = f"{row.ratio:.1f} times" if row.ratio is not None else "no ratio: the spread is larger than the claim"
        parts.append(f"reference {number_text(row.reference)}: {ratio}")
    if row.ceiling is not None and row.share is not None:
        parts.append(f"{row.share:.0%} of the ceiling {number_text(row.ceiling)}")
    return "  ".join([*parts, row.note])
