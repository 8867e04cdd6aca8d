"""Every command of the README runs as written, in a copy of the project; so does its notebook example.

Sizes are cut by appended flags only: two updates for a training run, few levels for a search, collecting instead of
running for `make test`.
`make` targets are taken apart with `make -n` and their lines run one by one, in a stand-in for `.venv` that links to
this environment: what `make` installs into a new one is for the tests of clean environments. Two kinds of commands are
not run: those that need a GPU, and the measuring of scripts/bench.py, which takes minutes and cannot be cut.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stoix_like.runtime.telemetry import read_rows

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
LEFT_OUT = shutil.ignore_patterns(
    ".venv", ".git", "runs", "build", "*.egg-info", ".*_cache", "__pycache__", ".hypothesis"
)
NOT_RUN = re.compile(r"cuda|scripts/bench\.py")
#: What is appended to which command; the first that fits.
APPENDED = [
    ("--print-config", ""),
    ("scripts/train_ppo.py", "--num-updates 2"),
    ("scripts/train_spo.py", "--num-updates 2 --num-eval-envs 16 --num-eval-episodes 16"),
    ("--level-set binpack-2048", "--level-set binpack-16"),
    ("scripts/compare_search.py", "--levels binpack-8 --budgets 40"),
    ("-m pytest", "--collect-only -p no:cacheprovider"),
]


def blocks(language):
    """The contents of the README's fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands():
    """Every line of the shell blocks, without its comment."""
    lines = [line.partition("  #")[0].strip() for block in blocks("bash") for line in block.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def shortened(command):
    added = next((flags for part, flags in APPENDED if part in command), "")
    return f"{command} {added}".strip()


class Clone:
    """A copy of the project, and a shell in it."""

    def __init__(self, folder):
        self.path = folder / "stoix_like"
        shutil.copytree(ROOT, self.path, ignore=LEFT_OUT)
        self._link_environment(self.path / ".venv")
        kept = {
            name: value for name, value in os.environ.items() if name not in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR")
        }
        self.environment = kept | {
            "PYTHONPATH": str(self.path),  # before the project that is installed in this environment
            "XDG_CACHE_HOME": str(folder / "cache"),
            "JAX_PLATFORMS": "cpu",
            "MPLBACKEND": "Agg",
        }

    @staticmethod
    def _link_environment(folder):
        folder.mkdir()
        for entry in Path(sys.prefix).iterdir():
            if not entry.name.startswith("."):
                (folder / entry.name).symlink_to(entry)
        for stamp in (".runtime", ".dev"):  # what the Makefile leaves when it has installed
            (folder / stamp).touch()

    def run(self, command):
        """Standard output of a shell command that must succeed."""
        done = subprocess.run(
            ["bash", "-ec", f"source .venv/bin/activate; {command}"],
            check=False,
            cwd=self.path,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout

    def lines_of(self, command):
        """What a command comes down to: the lines of a make target, or itself."""
        if not command.startswith("make "):
            return [command]
        return [line for line in self.run(f"{command} --dry-run").splitlines() if not line.startswith("make")]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return Clone(tmp_path_factory.mktemp("readme"))


def test_the_two_commands_come_first():
    assert commands()[:2] == ["make train", "make test"]


def test_nothing_but_gpus_and_measuring_is_left_out():
    assert [c for c in commands() if NOT_RUN.search(c)] == ["python scripts/bench.py --suite env"]


def test_every_command_runs_in_the_order_of_the_readme(clone):
    """In one test, because the later ones read the run that the first one left."""
    told = {}
    for command in commands():
        if not NOT_RUN.search(command):
            told[command] = "".join(clone.run(shortened(line)) for line in clone.lines_of(command))
    assert "done 10,240 steps" in told["make train"]
    assert "curves.png" in told["make train"]
    assert "episode.gif" in told["make train"]
    assert "tests/test_docs.py" in told["make test"]
    assert "done 5,120 steps" in told["python scripts/train_spo.py --config spo/binpack"]
    (searched,) = [text for command, text in told.items() if "--search " in command]
    assert "SPO on BinPack-v2, checkpoint best, search 4 x full" in searched
    (compared,) = [text for command, text in told.items() if "compare_search.py" in command]
    assert "distinct" in compared
    first = sorted((clone.path / "runs").glob("ppo-BinPack-v2-*"))[0]
    for name in ("config.yaml", "versions.json", "metrics.jsonl", "curves.png", "episode.gif", "checkpoints/best"):
        assert (first / name).exists(), name
    assert json.loads((first / "versions.json").read_text())["algorithm"] == "ppo"
    assert {row["category"] for row in read_rows(first / "metrics.jsonl")} == {"TRAINER", "ACTOR", "EVALUATOR", "MISC"}


def test_the_transcript_is_what_a_run_prints(clone):
    """Its lines, with every number taken as any number; the run is two updates long."""
    shown = blocks("console")[0].strip().splitlines()
    printed = clone.run("python scripts/train_ppo.py --num-updates 2 --run-name transcript").splitlines()
    for line in shown:
        words = re.split(r"[\d.,:e+-]+", line.replace("runs/ppo-BinPack-v2-", "").rstrip("… "))
        words = [w.strip() for w in words if len(w.strip()) > 3 and not w.strip().startswith("-s")]
        assert any(all(word in candidate for word in words) for candidate in printed), (line, words, printed)


def test_the_notebook_example_runs(clone):
    (example,) = blocks("python")
    (clone.path / "example.py").write_text(example)
    mean_return = float(clone.run("python example.py").split()[-1])
    assert 0.0 <= mean_return <= 1.0  # the share of mazes solved
