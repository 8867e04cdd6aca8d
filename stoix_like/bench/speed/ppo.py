"""The speed of PPO: whole updates, of dense networks compared with the matrix-product peak."""

from __future__ import annotations

from collections.abc import Iterator

from stoix_like.bench.timing.measure import Measurement, time_interleaved
from stoix_like.bench.timing.peaks import against_peak
from stoix_like.bench.timing.updates import Updates, preset_config
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.networks.cells import NUM_DIRECTIONS

#: (row, preset, rows of a dense layer for each observation). Other networks have no ceiling: much of what they do is no
#: product of matrices.
CASES = (
    ("ppo_maze_mlp", "ppo/maze_mlp", 1),
    ("ppo_sokoban", "ppo/sokoban", NUM_DIRECTIONS),
    ("ppo_sudoku", "ppo/sudoku", 1),
    ("ppo_maze", "ppo/maze", None),
    ("ppo_frozen_lake", "ppo/frozen_lake", None),
    ("ppo_binpack_quick", "ppo/quick", None),
)


def ppo_suite() -> Iterator[Measurement]:
    """Whole updates of presets."""
    for name, preset, views in CASES:
        config = preset_config(preset)
        updates, steps = Updates(config), steps_per_update(config)
        if views is None:
            taken = time_interleaved({"update": updates}, repetitions=5)["update"]
            row = Measurement(name, steps / taken.seconds, "steps/s", taken.spread, note=f"preset {preset}")
        else:
            row = against_peak(name, config, updates, views * steps // config.training_core.num_minibatches)
        yield row._replace(note=f"{row.note}; {updates.memory_note}")
