"""Timing on a machine with other load: functions run alternately in one process, and their medians are compared.

A ratio is reported only if the spreads of both timings cannot explain it.
"""

from __future__ import annotations

import datetime
import math
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
    """One measured number, a row of the results. Fields that do not apply are None.

    Attributes:
        name, value, unit: the measurement; the median.
        spread: half the interquartile range over the median.
        reference: the value of what it is compared with, measured alternately in the same process.
        ratio: how many times better than the reference; None if the spreads are larger.
        ceiling: the largest value possible on this machine, measured in the same process.
        share: value / ceiling.
        note: a description of the reference or the ceiling.
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
    """The seconds of one function: the median, and half the interquartile range over the median."""

    seconds: float
    spread: float


def time_interleaved(functions: Mapping[str, Callable[[], Any]], repetitions: int = 7) -> dict[str, Timing]:
    """{name: timing} of the functions, called A B A B ... in this process after one call each that is not timed."""
    for run in functions.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repetitions):
        for name, run in functions.items():
            start = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - start)
    return {name: timing(values) for name, values in seconds.items()}


def timing(seconds: list[float]) -> Timing:
    """The median and the relative spread of at least two measurements."""
    median = statistics.median(seconds)
    lower, _, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median, (upper - lower) / 2 / median)


def comparison_row(name: str, timings: Mapping[str, Timing], amount: float, unit: str, note: str) -> Measurement:
    """The rates of `ours` and `theirs`. `amount` is the number of units that one timed call processes."""
    ours, theirs = timings["ours"], timings["theirs"]
    ratio = significant_ratio(ours, theirs)
    return Measurement(name, amount / ours.seconds, unit, ours.spread, amount / theirs.seconds, ratio, note=note)


def significant_ratio(ours: Timing, theirs: Timing) -> float | None:
    """theirs / ours, or None if the sum of the spreads is larger than its distance from 1."""
    ratio = theirs.seconds / ours.seconds
    if ours.spread + theirs.spread >= abs(ratio - 1.0):
        return None
    return ratio


def peak_bytes(program: Compiled) -> int:
    """The peak memory of a program: arguments, results and temporaries, aliased buffers counted once."""
    memory: Any = program.memory_analysis()
    buffers = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return int(buffers + memory.temp_size_in_bytes)


def matrix_product_peak(rows: int, width: int) -> Callable[[], Any]:
    """A function that multiplies [rows, width] by [width, width] 200 times in one scan; see `peak_flops`."""
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
    """The machine and the versions of packages: the first row of every file."""
    installed = versions()
    packages = ", ".join(f"{name} {installed[name]}" for name in ("stoix_like", "python", "jax", "jaxlib", "jumanji"))
    note = f"{device}; {platform.machine()}, {packages}; {datetime.date.today().isoformat()}"
    if (known := git_commit()) is not None:
        note += f"; commit {known}"
    return Measurement("machine", os.cpu_count() or 1, "cores", note=note)


def row_text(row: Measurement) -> str:
    """The row as a line. Widths are fixed, because each row is printed before the next is measured."""
    parts = [f"{row.name:<26}{number_text(row.value):>12} {row.unit}"]
    if row.spread is not None and math.isfinite(row.spread):
        parts.append(f"± {row.spread:.0%}")
    if row.reference is not None:
        ratio = f"{row.ratio:.1f} times" if row.ratio is not None else "no ratio: the spread is larger than the claim"
        parts.append(f"reference {number_text(row.reference)}: {ratio}")
    if row.ceiling is not None and row.share is not None:
        parts.append(f"{row.share:.0%} of the ceiling {number_text(row.ceiling)}")
    return "  ".join([*parts, row.note])
