"""What a user of `train_spo.py` sees before anything is computed, from the script itself."""

import subprocess
import sys

import pytest
from support.paths import ROOT

#: The script, and what it has imported when it is done.
PROGRAM = """
import runpy, sys
script, *sys.argv[1:] = sys.argv[1:]
sys.argv[0] = script
try:
    runpy.run_path(script, run_name="__main__")
finally:
    heavy = sorted({"jax", "jumanji", "flax", "numpy", "orbax"} & set(sys.modules))
    if heavy:
        print("imported", heavy, file=sys.stderr)
"""


@pytest.fixture
def train_spo(tmp_path):
    def run(*argv):
        command = [sys.executable, "-c", PROGRAM, ROOT / "scripts" / "train_spo.py", *argv]
        return subprocess.run(command, check=False, text=True, capture_output=True, timeout=60, cwd=tmp_path)

    return run


def test_help_and_configuration_are_printed_without_jax(train_spo, tmp_path):
    shown = train_spo("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("usage: python scripts/train_spo.py [--config FILE|PRESET]")
    assert "--num-particles INT" in shown.stdout
    first = train_spo("--num-particles", "7", "--search-depth", "full", "--print-config")
    assert (first.returncode, first.stderr) == (0, "")
    assert "  num_particles: 7 " in first.stdout
    (tmp_path / "again.yaml").write_text(first.stdout)
    again = train_spo("--config", "again.yaml", "--print-config")
    assert (again.returncode, again.stdout) == (0, first.stdout)


def test_mistakes_are_reported_at_once_without_jax(train_spo, tmp_path):
    (tmp_path / "run.yaml").write_text("spo:\n  num_particle: 4\n  adaptive_temperature: maybe\n")
    result = train_spo("--config", "run.yaml", "--epsilon", "0", "--clip", "1")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "error: run.yaml:2: unknown key 'spo.num_particle'; did you mean 'num_particles'?",
        "error: run.yaml:3: spo.adaptive_temperature: expected bool, got 'maybe' (str)",
        "error: unknown flag '--clip'; did you mean '--clip-eps'?",
        "error: --epsilon: must be greater than 0, got 0.0",
        "hint: --help lists every flag, and docs/configuration.md every leaf, with its type, default and range",
    ]
