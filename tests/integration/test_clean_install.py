"""The wheel in an environment of its own: `stoix-like` without a clone, presets included."""

import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.paths import ROOT

SECONDS = 900  # an environment is made, and nearly a gigabyte put into it
TINY = "--num-envs 8 --rollout-length 4 --num-minibatches 2 --num-updates 2 --num-eval-envs 4 --num-eval-episodes 4"


@pytest.fixture(
    scope="module", params=["packages of this environment", pytest.param("packages of its own", marks=pytest.mark.full)]
)
def clean(tmp_path_factory, request):
    """Runs a command of that environment, in an empty folder; gives what it printed.

    With packages of its own it also shows that the wheel names all that it needs.
    """
    folder = tmp_path_factory.mktemp("clean_install")
    _run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, ROOT], folder)
    (wheel,) = folder.glob("stoix_like-*.whl")
    _run([sys.executable, "-m", "venv", folder / "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    if request.param == "packages of its own":
        pins = ["-c", ROOT / "constraints" / "py311.txt"] if sys.version_info[:2] == (3, 11) else []
        _run([python, "-m", "pip", "install", "--quiet", *pins, wheel], folder)
    else:
        _run([python, "-m", "pip", "install", "--quiet", "--no-deps", wheel], folder)
        _add_packages(python)
    (folder / "work").mkdir()

    def run(command):
        name, *argv = shlex.split(command)
        return _run([folder / "venv" / "bin" / name, *argv], folder / "work")

    run.folder = folder / "work"
    return run


def _add_packages(python):
    """Those of the running environment, found after those that are installed beside this Python."""
    own = _run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], python.parent)
    Path(own.strip(), "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")


def _run(command, cwd):
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environ = kept | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg", "XDG_CACHE_HOME": str(cwd / "cache")}
    done = subprocess.run(
        [*map(str, command)], check=False, cwd=cwd, env=environ, text=True, capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run_is_trained_scored_and_drawn_without_a_clone(clean):
    out = clean(f"stoix-like train-ppo --config ppo/maze {TINY} --run-name first")
    assert "done 64 steps" in out
    assert "next: stoix-like evaluate runs/first" in out
    clean("stoix-like evaluate first --num-episodes 4 --json scored.json")
    assert json.loads((clean.folder / "scored.json").read_text())["task_id"] == "Maze-v0"
    clean("stoix-like plot first")
    clean("stoix-like animate first")
    made = {path.name for path in (clean.folder / "runs" / "first").iterdir()}
    assert {"curves.png", "episode.gif", "metrics.jsonl", "config.yaml"} <= made


def test_the_package_is_the_installed_one_brings_its_presets_and_answers(clean):
    place = clean("python -c 'import stoix_like; print(stoix_like.__file__)'")
    assert "site-packages" in place
    shipped = sorted(path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.yaml"))
    presets = Path(place.strip()).parent / "configs"
    assert sorted(path.relative_to(presets) for path in presets.rglob("*.yaml")) == shipped
    assert re.search(r"(?m)^ready: stoix-like train-ppo$", clean("stoix-like doctor"))
    assert "at most 100 steps" in clean("stoix-like envs Maze-v0")
    assert clean("stoix-like train-spo --help").startswith("usage: stoix-like train-spo [--config FILE|PRESET]")
