"""Whole updates of networks of dense layers, beside the fastest matrix products of the machine."""

from __future__ import annotations

from stoix_like.bench.timing.flops import flops_per_step
from stoix_like.bench.timing.measure import Measurement, matrix_product_peak, peak_flops, time_interleaved
from stoix_like.bench.timing.updates import Updates
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.sections.runs import PPOConfig, SPOConfig


def against_peak(
    name: str, config: PPOConfig | SPOConfig, updates: Updates, rows: int, repetitions: int = 9
) -> Measurement:
    """Steps per second, measured alternately with products of [rows, width] by [width, width], the ceiling."""
    width, steps = config.architecture.hidden_dim, steps_per_update(config)
    timings = time_interleaved({"update": updates, "peak": matrix_product_peak(rows, width)}, repetitions)
    peak, needed = peak_flops(rows, width) / timings["peak"].seconds, flops_per_step(config)
    rate, spread = steps / timings["update"].seconds, timings["update"].spread
    note = f"ceiling: {peak / 1e9:.0f} GFLOP/s at {rows}x{width}x{width} / {needed / 1e6:.2f} MFLOP"
    return Measurement(name, rate, "steps/s", spread, ceiling=peak / needed, share=rate * needed / peak, note=note)
