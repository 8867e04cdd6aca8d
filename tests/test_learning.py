"""The presets learn what docs/benchmarks/learning.md says they do, on the frozen levels it names (`make test-slow`).

Each trains in a new process, as a user would: the other tests' process compiles without XLA's optimisations. The bounds
are what each preset must reach; what they do reach, over three seeds, is in docs/benchmarks/learning.md.
"""

import json
import os
import subprocess
import sys

import pytest
from support.paths import ROOT

#: Preset, level set, flags of the evaluation and least mean return. Random legal play has 0.570 and 0.291, a greedy
#: packer 0.876. What SPO learned is asked with its search and of its network alone, from one training.
BOUNDS = [
    ("ppo/quick", "binpack-2048", {(): 0.89, ("--search",): 0.955}),
    ("ppo/maze", "maze-2048", {(): 0.97}),
    ("spo/quick", "binpack-2048", {(): 0.965, ("--network",): 0.89}),
    ("spo/maze", "maze-2048", {(): 0.98, ("--network",): 0.97}),
]


def call(script, *argv):
    environment = {name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "MPLBACKEND")}
    command = [sys.executable, ROOT / "scripts" / f"{script}.py", *map(str, argv)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL, timeout=3600)


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "level_set", "bounds"), BOUNDS, ids=[bound[0] for bound in BOUNDS])
def test_a_preset_learns(preset, level_set, bounds, tmp_path):
    script = f"train_{preset.partition('/')[0]}"
    call(script, "--config", preset, "--save-dir", tmp_path, "--run-name", "run")
    result = tmp_path / "result.json"
    asked = ["evaluate", tmp_path / "run", "--checkpoint", "latest", "--level-set", level_set, "--json", result]
    for flags, least in bounds.items():
        call(*asked, *flags)
        scores = json.loads(result.read_text())["seeds"]["0"]["episode_return"]
        assert scores["mean"] >= least, (flags, scores)
