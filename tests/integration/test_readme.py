"""Every command of the README runs as written, in a copy of the project; so does its notebook example.

Sizes are cut (see documented.py): two updates for a training run, few levels for a search, collecting instead of
running for `make test`.
`make` targets are taken apart with `make -n` and their lines run one by one, in a stand-in for `.venv` that links to
this environment: what `make` installs into a new one is for the tests of clean environments. Two kinds of commands are
not run: those that need a GPU, and the measuring of scripts/bench.py, which takes minutes and cannot be cut.
"""

import json
import re

import pytest
from support.documented import ROOT, Clone, Cuts, blocks, shortened
from support.documented import commands as commands_of

from stoix_like.runtime.telemetry import read_rows

README = (ROOT / "README.md").read_text()
NOT_RUN = re.compile(r"cuda|scripts/bench\.py")
SHORT = "--num-updates 2 --num-eval-envs 16 --num-eval-episodes 16"
CUTS = Cuts(
    appended=[
        (r"--print-config|--resume", ""),
        (r"scripts/train_spo\.py", f"{SHORT} --num-envs 16 --epochs 2 --batch-size 16"),
        (r"scripts/train_\wpo\.py", SHORT),
        (
            r"scripts/train_alphazero\.py",
            "--num-updates 2 --num-envs 16 --rollout-length 16 --hidden-dim 16 --num-simulations 2 --batch-size 64"
            " --replay-buffer-size 1024 --num-eval-envs 16 --num-eval-episodes 16 --opponent random",
        ),
        (
            r"run_training_loop\.py",
            "--num-envs 8 --rollout-length 8 --hidden-dim 8 --num-simulations 2 --replay-buffer-size 1024"
            " --batch-size 64 --selfplay-games 16 --most-pairs 4 --pairs-per-look 2 --match-anchors random",
        ),
        (r"scripts/ratings\.py --lineage", ""),  # plays nothing
        (r"scripts/(arena|ratings)\.py", "--openings 4"),
        (r"scripts/compare_search\.py", "--level-set binpack-8 --budgets 40"),
        (r"-m pytest", "--collect-only -p no:cacheprovider"),
    ],
    replaced=[("binpack-2048", "binpack-16"), ("mcts-512", "mcts-4"), ("--max-iterations 10", "--max-iterations 2")],
)


def commands():
    """Every line of the shell blocks, without its comment."""
    return [command for block in blocks(README, "bash") for command in commands_of(block.code)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory, compile_cache):
    return Clone(tmp_path_factory.mktemp("readme"), compile_cache)


def test_the_two_commands_come_first_and_nothing_but_gpus_and_measuring_is_left_out():
    assert commands()[:2] == ["make train", "make test"]
    assert [c for c in commands() if NOT_RUN.search(c)] == ["python scripts/bench.py --suite env"]


def test_the_first_command_trains_draws_and_animates(clone):
    output = "".join(clone.run(shortened(line, CUTS)) for line in clone.lines_of("make train"))
    assert all(words in output for words in ("done 10,240 steps", "curves.png", "episode.gif"))


@pytest.mark.full
def test_every_command_runs_in_the_order_of_the_readme(clone):
    """In one test, because the later ones read the run that the first one left."""
    outputs = {}
    for command in commands():
        if not NOT_RUN.search(command):
            outputs[command] = "".join(clone.run(shortened(line, CUTS)) for line in clone.lines_of(command))
    assert "done 10,240 steps" in outputs["make train"]
    assert "curves.png" in outputs["make train"]
    assert "episode.gif" in outputs["make train"]
    assert "tests/docs/test_docs.py" in outputs["make test"]
    assert "done 640 steps" in outputs["python scripts/train_spo.py --config spo/binpack"]
    (searched,) = [text for command, text in outputs.items() if "--search " in command]
    assert "SPO on BinPack-v2, checkpoint best, search 4 x full" in searched
    (compared,) = [text for command, text in outputs.items() if "compare_search.py" in command]
    assert "distinct" in compared
    (rated,) = (clone.path / "runs").glob("train-connect-four-*")
    assert all((rated / name).exists() for name in ("ratings.png", "episode.gif", "curves.png"))
    first = sorted((clone.path / "runs").glob("train-2*"))[0]  # of `make train`
    for name in ("config.yaml", "versions.json", "metrics.jsonl", "curves.png", "episode.gif", "checkpoints/best"):
        assert (first / name).exists(), name
    assert json.loads((first / "versions.json").read_text())["algorithm"] == "ppo"
    assert {row["category"] for row in read_rows(first / "metrics.jsonl")} == {"TRAINER", "ACTOR", "EVALUATOR", "MISC"}


@pytest.mark.full
def test_the_transcript_is_what_a_run_prints(clone):
    """Its lines, with every number taken as any number; the run is two updates long."""
    shown = blocks(README, "console")[0].code.strip().splitlines()
    printed = clone.run("python scripts/train_ppo.py --num-updates 2 --run-name transcript").splitlines()
    for line in shown:
        words = re.split(r"[\d.,:e+-]+", line.replace("runs/train-", "").rstrip("… "))
        words = [w.strip() for w in words if len(w.strip()) > 3 and not w.strip().startswith("-s")]
        assert any(all(word in candidate for word in words) for candidate in printed), (line, words, printed)


@pytest.mark.full
def test_the_notebook_example_runs(clone):
    (example,) = blocks(README, "python")
    (clone.path / "example.py").write_text(example.code)
    mean_return = float(clone.run("python example.py").split()[-1])
    assert 0.0 <= mean_return <= 1.0  # the share of mazes solved
