"""How fast the stages of SPA are: short pipelines of its presets, by its command, in folders of their own."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stoix_like.algorithms.agent.counting import GENERATED_TOKENS, TRAINED_TOKENS
from stoix_like.bench.timing.measure import Measurement
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.results.series import read_run
from stoix_like.runtime.runs.pipeline_files import RUN
from stoix_like.runtime.stages.manifest import Manifest, read_manifest
from stoix_like.spa.arms import GENERATE, STAGE_NAMES
from stoix_like.spa.folders import Layout

PRESETS = ("smoke", "frozen_lake", "frozen_lake_6x6", "sokoban")
#: Fewer updates than the presets have, and no evaluations while a stage trains; all sizes are theirs.
SHORT = {
    "pretrain_updates": 24,
    "generate_batches": 2,
    "sft_epochs": 2,
    "ppo_updates": 12,
    "eval_levels": 0,
    "final_eval_levels": 64,
}


class Rate(NamedTuple):
    """Tokens a second of a run after its first report, so that nothing is compiled."""

    tokens: float
    seconds: float

    @property
    def per_second(self) -> float:
        """0 of a run that reported once."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0


def spa_suite() -> Iterator[Measurement]:
    """Seconds of each stage of a short pipeline, compilation included, and tokens a second of those that have some."""
    for preset in PRESETS:
        with tempfile.TemporaryDirectory() as folder:
            layout = _pipeline(preset, Path(folder))
            for stage in STAGE_NAMES:
                yield from _stage_rows(preset, stage, layout)


def _pipeline(preset: str, folder: Path) -> Layout:
    words = [word for leaf, value in SHORT.items() for word in (f"--{leaf.replace('_', '-')}", str(value))]
    words += ["--config", f"spa/small/{preset}", "--save-dir", str(folder), "--no-progress"]
    command = [sys.executable, str(ROOT / "scripts" / "spa.py"), "run", preset, *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return Layout(folder / preset)


def _stage_rows(preset: str, stage: str, layout: Layout) -> Iterator[Measurement]:
    manifest = read_manifest(layout.stage(stage))
    assert manifest is not None  # narrows the type: the command ended well
    name, seconds = f"{preset}/{stage}", float(manifest.recorded["seconds"])
    yield Measurement(f"{name}_seconds", seconds, "s", note=f"{_size(manifest)}, compilation included")
    if stage == GENERATE:
        tokens = manifest.facts["generated_tokens"]
        yield Measurement(f"{name}_tokens", tokens / seconds, "tokens/s", note="sampled, compilation included")
    elif layout.run(stage).is_dir():
        for metric in (GENERATED_TOKENS, TRAINED_TOKENS):
            if (rate := run_rate(layout.stage(stage) / RUN, metric)) is not None:
                kind = metric.partition("/")[2].removesuffix("_tokens_max")
                yield Measurement(f"{name}_{kind}_tokens", rate.per_second, "tokens/s", note="after the first report")


def _size(manifest: Manifest) -> str:
    """What a stage did."""
    facts = manifest.facts
    if "updates" in facts:
        return f"{facts['updates']:,} updates"
    return f"{facts['played']:,} turns" if "played" in facts else f"{len(facts['points'])} points of time"


def run_rate(run: Path, metric: str) -> Rate | None:
    """The rate of a run by a metric that counts; None if it does not report it twice."""
    for series in read_run(run).series.get(metric, {}).values():
        if len(series.values) > 1:
            return Rate(float(series.values[-1] - series.values[0]), float(series.seconds[-1] - series.seconds[0]))
    return None
