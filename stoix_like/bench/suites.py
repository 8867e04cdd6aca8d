"""The suites by name. Import this module after the device is selected."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from stoix_like.bench.agents.pipelines import spa_suite
from stoix_like.bench.agents.speed import agent_speed_suite
from stoix_like.bench.alphazero.learning import LearningOptions
from stoix_like.bench.alphazero.learning import learning_suite as alphazero_learning_suite
from stoix_like.bench.alphazero.speed import alphazero_suite
from stoix_like.bench.gpu.suite import gpu_suite
from stoix_like.bench.learning import agents, curves, scores, searches, text_worlds
from stoix_like.bench.loops import gate, master_learning, soak
from stoix_like.bench.loops.learning import loop_suite
from stoix_like.bench.loops.ringrift import ringrift_learning_suite
from stoix_like.bench.loops.speed import loops_suite
from stoix_like.bench.speed import binpack, environments, launches, overhead, ppo, ringrift, scaling, spo
from stoix_like.bench.timing.measure import Measurement
from stoix_like.envs import registry
from stoix_like.evaluation import baselines
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.results.series import read_started_run


def compile_suite() -> list[Measurement]:
    """Seconds until the first update of the quick preset is done, in a new process: without a cache, then with it."""
    rows = [
        Measurement("help", _seconds(["--help"], {}), "s", note="python scripts/train_ppo.py --help, whole process")
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name in ("first_start", "second_start"):
            compile_seconds, whole = _start(folder, name)
            rows.append(Measurement(f"{name}_compile", compile_seconds, "s", note="ppo/quick: tracing and compiling"))
            rows.append(
                Measurement(f"{name}_whole", whole, "s", note="ppo/quick: process start to the end of one update")
            )
    return rows


def _start(folder: str, name: str) -> tuple[float, float]:
    flags = ["--config", "ppo/quick", "--num-updates", "1", "--eval-interval", "0", "--num-eval-episodes", "1"]
    flags += ["--num-eval-envs", "1", "--save-dir", folder, "--run-name", name]
    whole = _seconds(flags, {"XDG_CACHE_HOME": folder})
    return float(read_started_run(Path(folder) / name).latest("compile_seconds")), whole


def _seconds(flags: list[str], environment: dict[str, str]) -> float:
    command = [sys.executable, str(ROOT / "scripts" / "train_ppo.py"), *flags]
    start = time.perf_counter()
    inherited = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=inherited | environment)
    return time.perf_counter() - start


def memory_suite() -> list[Measurement]:
    """Growth over 200 chunks after the first 20, in a new process: memory that other suites freed would hide it."""
    program = [sys.executable, "-m", "stoix_like.bench.timing.memory"]
    done = subprocess.run(program, check=True, capture_output=True, text=True, cwd=ROOT)
    before, after = (int(word) / 2**20 for word in done.stdout.split()[-2:])
    note = f"resident size {before:.1f} MiB after 20 chunks, {after:.1f} after 220"
    return [Measurement("memory_growth_200_chunks", after - before, "MiB", note=note)]


def baselines_suite() -> list[Measurement]:
    """Policies that do not learn, on frozen level sets. The spread is half a 95 % interval over levels."""
    random_legal, largest_item_first = baselines.random_legal, baselines.largest_item_first
    cases = {
        "random_legal/binpack-2048": ("BinPack-v2", "utilisation", random_legal),
        "largest_item_first/binpack-2048": ("BinPack-v2", "utilisation", largest_item_first),
        "random_legal/BinPack-v0/binpack-2048": ("BinPack-v0", "utilisation", random_legal),
        "largest_item_first/BinPack-v0/binpack-2048": ("BinPack-v0", "utilisation", largest_item_first),
        "random_legal/maze-2048": ("Maze-v0", "solve_rate", random_legal),
    }
    return [
        scores.baseline_row(name, registry.make(task_id), policy, name.rpartition("/")[2], metric)
        for name, (task_id, metric, policy) in cases.items()
    ]


def scale_suite() -> Iterable[Measurement]:
    """Environments alone by number, then whole updates by environments, particles and devices."""
    yield from environments.scale_suite()
    yield from scaling.updates_suite()


SUITES: dict[str, Callable[[], Iterable[Measurement]]] = {
    "env": environments.env_suite,
    "ppo": ppo.ppo_suite,
    "spo": spo.spo_suite,
    "alphazero": alphazero_suite,
    "promotion": gate.promotion_suite,
    "compile": compile_suite,
    "memory": memory_suite,
    "baselines": baselines_suite,
    "parity": binpack.parity_suite,
    "scale": scale_suite,
    "scale_ppo": scaling.ppo_suite,
    "scale_spo": scaling.spo_suite,
    "launches": launches.launches_suite,
    "gpu": gpu_suite,
    "agent_speed": agent_speed_suite,
    "spa": spa_suite,
    "ringrift": ringrift.ringrift_suite,
    "overhead": overhead.overhead_suite,
    "learning": scores.learning_suite,
    "learning_maze": scores.learning_maze_suite,
    "learning_v0": scores.learning_v0_suite,
    "learning_text": text_worlds.text_worlds_suite,
    "agent_learning": agents.agent_learning_suite,
    "learning_curves": curves.curves_suite,
    "ablation": scores.ablation_suite,
    "loops": loops_suite,
    "loop_soak": soak.soak_suite,
    **{name: functools.partial(searches.search_suite, name) for name in searches.COMPARISONS},
}
#: Suites with options of the command, which train for hours and run only by name.
WITH_OPTIONS: dict[str, Callable[[LearningOptions], Iterable[Measurement]]] = {
    "alphazero_learning": alphazero_learning_suite,
    "selfplay_learning": loop_suite,
    "master_learning": master_learning.master_suite,
    "ringrift_learning": ringrift_learning_suite,
}
#: They run only by name: they train first, for hours if their runs do not exist, or are parts of `scale`, or for a GPU.
NOT_IN_ALL = (
    *("learning", "learning_maze", "learning_v0", "learning_text", "learning_curves", "ablation", "loop_soak"),
    *("scale_ppo", "scale_spo", "launches", "gpu", "agent_speed", "agent_learning", "spa"),
    *searches.COMPARISONS,
)
