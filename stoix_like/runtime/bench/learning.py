"""What the presets learn: three trainings each, scored on frozen levels. Hours, unless the run folders are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from stoix_like.evaluation.statistics import mean_interval
from stoix_like.runtime.bench.measure import ROOT, Row

RUNS = Path("runs") / "bench"
SEEDS = (0, 1, 2)


class Claim(NamedTuple):
    """A preset, the frozen levels it is scored on, and the metric that is told."""

    preset: str
    level_set: str
    metric: str


CLAIMS = (
    Claim("ppo/quick", "binpack-2048", "utilisation"),
    Claim("ppo/binpack", "binpack-2048", "utilisation"),
    Claim("ppo/maze", "maze-2048", "solve_rate"),
)


def learning_suite() -> list[Row]:
    """The policy after the last update, deterministic: means of seeds, and a 95 % interval over them as spread."""
    return [_row(claim) for claim in CLAIMS]


def _row(claim: Claim) -> Row:
    scored = [_score(_trained(claim.preset, seed), claim) for seed in SEEDS]
    interval = mean_interval(np.array([found["mean"] for found in scored]))
    of_seeds = "; ".join(f"{found['mean']:.4f} [{found['low']:.4f}, {found['high']:.4f}]" for found in scored)
    steps, seconds = scored[0]["timesteps"], [found["seconds"] for found in scored]
    note = (
        f"{claim.level_set}, {steps:,} steps, {min(seconds) / 60:.0f} to {max(seconds) / 60:.0f} min; seeds {of_seeds}"
    )
    spread = (interval.high - interval.low) / 2 / interval.point
    return Row(f"learning/{claim.preset}", interval.point, claim.metric, spread, note=note)


def _trained(preset: str, seed: int) -> Path:
    """The finished run of that preset and seed: `runs/bench/<preset>-s<seed>`, trained or continued if need be."""
    path = RUNS / f"{preset.replace('/', '-')}-s{seed}"
    if (path / "config.yaml").is_file():
        flags = ["--resume", str(path)]
    else:
        flags = ["--config", preset, "--seed", str(seed), "--save-dir", str(RUNS), "--run-name", path.name]
    subprocess.run([sys.executable, str(ROOT / "scripts" / "train_ppo.py"), *flags, "--no-progress"], check=True)
    return path


def _score(run: Path, claim: Claim) -> dict[str, Any]:
    from stoix_like.runtime.evaluate_run import score
    from stoix_like.runtime.telemetry import read_rows

    result = score(str(run), "latest", level_set=claim.level_set)
    (of_seed,) = result["seeds"].values()
    last = read_rows(run / "metrics.jsonl")[-1]
    return of_seed[claim.metric] | {"timesteps": last["timesteps"], "seconds": last["elapsed_seconds"]}
