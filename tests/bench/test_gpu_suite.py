"""The parts of the suite for a GPU at both sizes, what they print, scores as they are reached, the whole command."""

import json
import os
import subprocess
import sys
import time

import jax
import pytest

from stoix_like.bench.gpu import child, scores
from stoix_like.bench.gpu.cases import Case, Size, configuration, under_flags
from stoix_like.bench.gpu.parts import FULL, TINY, VARIANTS, parts
from stoix_like.bench.gpu.processes import Report, read_report
from stoix_like.bench.gpu.scores import Goal, score_rows
from stoix_like.bench.gpu.suite import SECONDS, beside_default, process_of
from stoix_like.bench.timing.measure import Measurement
from stoix_like.config.sections.runs import PPOConfig
from stoix_like.errors import RunError
from stoix_like.runtime.console.installation import ROOT
from stoix_like.runtime.runs.sources import load_config

ROW = Measurement("scale/a/envs/2", 100.0, "steps/s", 0.1)


def test_every_part_has_the_same_cases_at_both_sizes_but_for_their_numbers():
    def kinds(case):
        """Without numbers: the preset, the variant, the start."""
        return "/".join(word for word in case.name.split("/") if not word.isdecimal())

    for tiny, full in zip(parts(True), parts(False), strict=True):
        assert tiny.name == full.name
        # what is slow to compile is left out of the tiny variants of command buffers
        left_out = {kinds(case) for case in full.cases} - {kinds(case) for case in tiny.cases}
        assert {kinds(case) for case in tiny.cases} <= {kinds(case) for case in full.cases}, full.name
        assert not left_out or full.name.startswith("command_buffers_")
    for is_tiny in (True, False):
        names = [case.name for part in parts(is_tiny) for case in part.cases]
        assert len({*names}) == len(names)
        assert {f"command_buffers/{variant}" for variant in VARIANTS} <= {"/".join(n.split("/")[:2]) for n in names}
    # updates of PPO are never left out for want of time
    assert sum(part.seconds for part in parts(False)[:3]) < SECONDS


def test_the_configurations_of_all_cases_can_be_made():
    for sizes in (FULL, TINY):
        measured = [(preset, num_envs) for preset, numbers in sizes.envs.items() for num_envs in numbers]
        for preset, num_envs in (*measured, *sizes.buffered):
            size = Size(preset, num_envs, sizes.leaves[preset.partition("/")[0]])
            assert configuration(size).environment.num_envs == num_envs
        for goal in sizes.goals:
            config = load_config(PPOConfig, "ppo", ["--config", goal.preset, *goal.flags], "").config
            assert list(goal.scores) == sorted(goal.scores)
            assert config.evaluation.eval_interval > 0


def test_a_part_gets_its_flags_and_device_and_trainings_a_cache_of_their_own(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--before")
    for platform, is_tiny in (("cpu", True), ("gpu", False)):
        of_parts = {part.name: process_of(part, platform, "/c") for part in parts(is_tiny)}
        assert ("--tiny" in of_parts["ppo_maze"].command) == is_tiny
        assert platform in of_parts["ppo_maze"].command
        flags = of_parts["command_buffers_+while"].environment["XLA_FLAGS"]
        assert flags.startswith("--before ")
        assert flags.endswith(" --xla_gpu_enable_command_buffer=+WHILE")
    assert "XLA_FLAGS" not in of_parts["ppo_maze"].environment
    caches = [of_parts[name].environment["JAX_COMPILATION_CACHE_DIR"] for name in ("ppo_maze", "score_first_start")]
    assert caches == [os.path.join("/c", "updates"), os.path.join("/c", "trainings")]


def test_other_command_buffers_stand_beside_the_default():
    found = {"a/envs/2": ROW}
    other = ROW._replace(name="command_buffers/+while/a/envs/2", value=200.0, note="n")
    beside = beside_default(other, found)
    assert (beside.reference, beside.ratio) == (100.0, 2.0)
    assert beside.note == "reference: the default, in another process; n"
    assert beside_default(other._replace(value=105.0), found).ratio is None
    assert beside_default(other, {}) == other
    assert beside_default(ROW, found) == ROW


def _fails_with(error):
    def rows():
        yield ROW
        raise error

    return rows


def test_a_case_that_fails_is_reported_and_the_next_is_measured(capsys):
    def fails_to_compile():
        raise jax.errors.JaxRuntimeError("INTERNAL: no such kernel\nmore")

    memory = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")
    cases = [
        Case("a", lambda: _fails_with(memory)),
        Case("b", fails_to_compile),
        Case("c", lambda: _fails_with(RunError("not reached", "hint"))),
        under_flags("off", Case("scale/d", lambda: lambda: iter([ROW]))),
    ]
    child.measure(cases)
    renamed = ROW._replace(name="command_buffers/off/a/envs/2")
    assert [read_report(line) for line in capsys.readouterr().out.splitlines()] == [
        Report("a", ROW),
        Report("a", problem=f"out of memory: {memory}"),
        Report("b", problem="INTERNAL: no such kernel"),
        Report("c", ROW),
        Report("c", problem="not reached"),
        Report("command_buffers/off/d", renamed),
        Report("command_buffers/off/d"),
    ]


TRAINING = """
import json, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--save-dir") + 1]) / sys.argv[sys.argv.index("--run-name") + 1]
folder.mkdir()
def write(score, category="EVALUATOR"):
    row = {"category": category, "update": 1, "timesteps": 1000, "elapsed_seconds": 2.5, "evaluator/x": score}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\\n")
write(1.0, "TRAINER")
for score in (0.2, 0.6, None):
    write(score)
"""


@pytest.fixture
def training(tmp_path, monkeypatch):
    def make(end):
        (tmp_path / "scripts").mkdir()
        (tmp_path / "scripts" / "train_ppo.py").write_text(TRAINING + end)
        monkeypatch.setattr(scores, "ROOT", tmp_path)

    return make


def test_scores_are_told_when_they_are_reached_and_the_training_then_ends(training):
    training("time.sleep(60)")
    began = time.monotonic()
    first, second = score_rows("score/p", Goal("ppo/p", "evaluator/x", (0.1, 0.5)))
    assert (first.name, second.name) == ("score/p/0.1", "score/p/0.5")
    assert 0.0 < first.value <= second.value < time.monotonic() - began < 30.0
    assert first.note.startswith("x from the start of the process; 1,000 steps, 1 updates, 2.5 s of the run, ")


def test_a_score_that_is_not_reached_is_a_problem(training):
    training("write(0.9); sys.exit(3)")
    rows = score_rows("score/p", Goal("ppo/p", "evaluator/x", (0.1, 0.95)))
    assert next(rows).name == "score/p/0.1"
    with pytest.raises(RunError, match=r"ppo/p ended with exit code 3 and at best 0.900, not 0.95"):
        next(rows)


@pytest.mark.full
def test_the_whole_suite_runs_on_a_cpu_with_tiny_sizes(tmp_path):
    """Every case has a row, or is named with the reason: compiling is slow where other tests run."""
    command = [sys.executable, str(ROOT / "scripts" / "bench.py"), "--suite", "gpu", "--device-type", "cpu"]
    command += ["--json", str(tmp_path / "gpu.json")]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, timeout=600)
    rows = [Measurement(**row) for row in json.loads((tmp_path / "gpu.json").read_text())]
    assert [line.split()[0] for line in done.stdout.splitlines()] == [row.name for row in rows]
    left_out = {line.split()[2]: line for line in done.stderr.splitlines() if line.startswith("left out: ")}
    cases = [case.name for part in parts(True) for case in part.cases]
    assert left_out.keys() <= {*cases}
    for case in cases:
        assert case in left_out or any(row.name.startswith(case) for row in rows), case
    assert all("deadline" in line or "took longer" in line for line in left_out.values()), left_out
    assert len(left_out) < len(cases) / 2
