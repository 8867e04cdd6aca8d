"""The speed of PPO: whole updates compared with the matrix-product peak."""

from __future__ import annotations

from collections.abc import Iterator

from stoix_like.bench.timing.flops import ppo_flops_per_step
from stoix_like.bench.timing.measure import Measurement, matrix_product_peak, peak_flops, time_interleaved
from stoix_like.bench.timing.updates import Updates, preset_config
from stoix_like.config.checks.combinations import steps_per_update

#: (row, preset). Ceilings count matrix products alone: most of what an MLP does, and little of a maze's network.
CASES = (
    ("ppo_maze_mlp", "ppo/maze_mlp"),
    ("ppo_maze", "ppo/maze"),
    ("ppo_binpack_quick", "ppo/quick"),
    ("ppo_frozen_lake", "ppo/frozen_lake"),
    ("ppo_sokoban", "ppo/sokoban"),
    ("ppo_sudoku", "ppo/sudoku"),
)


def ppo_suite() -> Iterator[Measurement]:
    """Whole updates of presets, each measured alternately with the peak at the shapes of its minibatches."""
    for name, preset in CASES:
        yield _against_peak(name, preset)


def _against_peak(name: str, preset: str) -> Measurement:
    config = preset_config(preset)
    rows, width = steps_per_update(config), config.architecture.hidden_dim
    minibatch = rows // config.training_core.num_minibatches
    updates = Updates(config)
    timings = time_interleaved({"update": updates, "peak": matrix_product_peak(minibatch, width)}, repetitions=9)
    peak, needed = peak_flops(minibatch, width) / timings["peak"].seconds, ppo_flops_per_step(config)
    rate, spread = rows / timings["update"].seconds, timings["update"].spread
    limit = f"{peak / 1e9:.0f} GFLOP/s at {minibatch}x{width}x{width} / {needed / 1e6:.2f} MFLOP"
    note = f"preset {preset}; ceiling: {limit}; {updates.memory_note}"
    return Measurement(name, rate, "steps/s", spread, ceiling=peak / needed, share=rate * needed / peak, note=note)
