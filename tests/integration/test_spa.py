"""The whole pipeline of SPA, by a user's commands: its files, what a second call does, and kills in every stage."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.marks import full
from support.scripted_runs import Scripts, finish

from stoix_like.runtime.datasets.row_files import TRAINING, VALIDATION, read_rows
from stoix_like.runtime.stages.array_files import read_arrays
from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.spa.arms import STAGE_NAMES

DYING = (Path(__file__).parents[1] / "support" / "dying_spa.py").read_text()
SMOKE = ["--config", "spa/small/smoke"]


@pytest.fixture(scope="module")
def done(tmp_path_factory, compile_cache):
    """(scripts, what was printed) of a folder with the pipeline `smoke`."""
    scripts = Scripts(tmp_path_factory.mktemp("spa"), compile_cache)
    with scripts.start("spa", "run", "smoke", *SMOKE) as process:
        out, err = process.communicate(timeout=900)  # all of its programs are compiled
    assert process.returncode == 0, out + err
    return scripts, out


def refusal(scripts, *argv):
    """What a command says that is refused in two lines."""
    with scripts.start("spa", *argv) as process:
        _, err = finish(process)
    assert process.returncode in range(1, 10), err
    assert (err.count("error: "), err.count("hint: ")) == (1, 1)
    assert "Traceback" not in err
    return err


def root(scripts, name="smoke"):
    return scripts.cwd / "runs" / "spa" / name


def outputs(scripts, name="smoke"):
    """{stage: the outputs by hash, and the numbers} of a pipeline."""
    found = {stage: read_manifest(root(scripts, name) / stage) for stage in STAGE_NAMES}
    return {stage: (one.inputs, one.outputs, one.facts) for stage, one in found.items() if one is not None}


def test_every_stage_leaves_its_outputs(done):
    scripts, shown = done
    assert list(outputs(scripts)) == list(STAGE_NAMES)
    assert "report runs/spa/smoke/report.html" in shown
    assert shown.count("next: ") == 1  # the stages' runs name none
    assert shown.splitlines()[-1].endswith("scripts/play_text.py --model runs/spa/smoke/ppo/run --checkpoint latest")
    folder = root(scripts) / "generate"
    rows = [read_rows(folder / name) for name in (TRAINING, VALIDATION)]
    assert not set(rows[0].trajectory) & set(rows[1].trajectory)
    counts = read_manifest(folder).facts
    kept = counts["played"] - counts["too_long"] - counts["indivisible"] - counts["twice"]
    assert sum(len(one.trajectory) for one in rows) == kept > 20
    assert (folder / "wm_train.parquet").is_file()
    scores = read_arrays(root(scripts) / "evaluate" / "scores.npz")
    facts = read_manifest(root(scripts) / "evaluate").facts
    assert set(facts["points"]) == {"base", "sft", "ppo"}
    for point, numbers in facts["points"].items():
        assert scores[f"{point}_success"].shape == (8, 2)
        assert numbers["success"][0] == pytest.approx(scores[f"{point}_success"].mean())
        assert numbers["log_prob_gap_max"] < 1e-4
        assert {"next_state_exact", "prediction_perplexity_per_cell", "forced_success"} <= set(numbers)
    assert facts["points"]["base"]["well_formed"] > 0.8
    page = (root(scripts) / "report.html").read_text()
    assert page.count("<img") >= 1
    assert "next state exact" in page
    assert "<script" not in page
    record = json.loads((root(scripts) / "results.json").read_text())
    assert (
        record["before_ppo"]["tokens"]
        == counts["generated_tokens"] + read_manifest(root(scripts) / "sft").facts["trained_tokens"]
    )


def test_a_second_call_does_nothing_and_other_settings_are_refused(done):
    scripts, _ = done
    before = {stage: (root(scripts) / stage / "manifest.json").stat().st_mtime_ns for stage in STAGE_NAMES}
    scripts.run("spa", "run", "smoke")  # with the configuration that it was begun with
    assert before == {stage: (root(scripts) / stage / "manifest.json").stat().st_mtime_ns for stage in STAGE_NAMES}
    scripts.run("spa", "run", "smoke", "--eval-levels", "4")  # what it was scored on while it learned stays
    assert json.loads((root(scripts) / "results.json").read_text())["curve_levels"] == {}
    scripts.run("spa", "run", "smoke", "--eval-levels", "0")
    kept = (root(scripts) / "config.yaml").read_text()
    for words in (("sft", "smoke"), ("run", "smoke"), ("evaluate", "smoke")):
        refused = refusal(scripts, *words, "--sft-lr", "0.1")
        assert "sft: sft_lr is 0.1, and it was begun with 0.003" in refused
    assert (root(scripts) / "config.yaml").read_text() == kept  # so that the next call is as it was


def test_damage_and_strangers_are_told_in_two_lines(done, tmp_path):
    scripts, _ = done
    copy = root(scripts, "[x]")
    shutil.copytree(root(scripts), copy)
    (copy / "ppo" / "manifest.json").write_text("{")
    assert "manifest.json cannot be used: it is torn, or not ours" in refusal(scripts, "ppo", "[x]")
    shutil.copy(root(scripts) / "ppo" / "manifest.json", copy / "ppo")
    shutil.copy(copy / "pretrain" / "params.safetensors", copy / "sft")
    (copy / "evaluate" / "manifest.json").unlink()
    for stage in ("evaluate", "ppo"):
        assert "params.safetensors has the hash" in refusal(scripts, stage, "[x]")
        (copy / "ppo" / "manifest.json").unlink(missing_ok=True)
    nobody = refusal(scripts, "report", str(tmp_path / "none.json"))
    assert "is no result of SPA" in nobody
    no_stage = refusal(scripts, "ppo", "new", *SMOKE)
    assert "there is no pipeline runs/spa/new" in no_stage
    assert not root(scripts, "new").exists()
    other = refusal(scripts, "run", "smoke", "--arm", "masked")
    assert "arm: runs/spa/smoke was begun with spa, not masked" in other
    assert "'' is no name of a pipeline" in refusal(scripts, "ppo", "")
    assert "--resume is of a run" in refusal(scripts, "run", "smoke", "--resume", "runs/x")
    assert "of which pipeline?" in refusal(scripts, "sft", "--from", "runs/spa/smoke")
    assert "is of this pipeline" in refusal(scripts, "run", "smoke", "--from", "runs/spa/smoke")
    shutil.rmtree(copy)


@pytest.mark.full
def test_an_arm_takes_what_is_the_same_from_another_pipeline(done):
    scripts, _ = done
    shown, _ = scripts.run("spa", "run", "masked", *SMOKE, "--arm", "masked", "--from", "runs/spa/smoke")
    assert "pretrain is taken from" in shown
    assert "generate is taken from" in shown
    assert "sft is taken from" not in shown
    assert not (root(scripts, "masked") / "pretrain").exists()
    own = outputs(scripts, "masked")
    assert set(own) == {"sft", "ppo", "evaluate"}
    assert own["sft"][0] == outputs(scripts)["sft"][0]
    assert own["sft"][1] != outputs(scripts)["sft"][1]
    shown, _ = scripts.run("spa", "report", "smoke", "masked", "--out", "both.html")
    page = (scripts.cwd / "both.html").read_text()
    assert page.count(">masked<") > 3
    refused = refusal(scripts, "run", "third", *SMOKE, "--seed", "1", "--from", "runs/spa/smoke/pretrain")
    assert "seed is 1, and it was begun with 0" in refused


@pytest.mark.full
def test_ppo_without_language_is_scored_on_the_same_levels(done):
    scripts, _ = done
    shown, _ = scripts.run("spa", "run", "plain", *SMOKE, "--arm", "plain_ppo")
    assert "evaluate: done" in shown
    assert set(outputs(scripts, "plain")) == {"ppo", "evaluate"}
    scripts.run("spa", "report", "plain", "smoke", "--out", "plain.html")  # refused if their levels differed
    assert ">plain_ppo<" in (scripts.cwd / "plain.html").read_text()


PLACES = [(stage, place) for stage in STAGE_NAMES for place in ("inside", "before its manifest")]


@pytest.mark.parametrize(("stage", "place"), [full(*x) if x != ("ppo", "inside") else x for x in PLACES])
def test_a_pipeline_that_is_killed_goes_on_to_the_same(done, tmp_path, stage, place):
    finished, _ = done
    scripts = Scripts(tmp_path, finished.cache)
    before = STAGE_NAMES[: STAGE_NAMES.index(stage)]
    for name in before:  # what was done before is taken as it is
        shutil.copytree(root(finished) / name, root(scripts) / name)
    words = ["run", "smoke", *SMOKE, "--save-interval", "1" if stage == "ppo" else "40"]
    command = [sys.executable, "-c", DYING, stage, place, *words]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=scripts.cwd, env=scripts.environment(), **pipes) as process:
        said = finish(process)
    assert process.returncode == -signal.SIGKILL, said
    assert set(outputs(scripts)) == set(before)
    if place == "inside" and stage in ("pretrain", "sft", "ppo"):  # the run goes on, from a state that has learned
        assert max(int(path.name) for path in (root(scripts) / stage / "run" / "checkpoints").glob("[0-9]*")) > 0
    root(scripts).rename(root(scripts, "moved"))  # the paths that its run has noted lead nowhere now
    scripts.run("spa", "run", "moved", *words[2:])
    assert outputs(scripts, "moved") == outputs(finished)
    folders = root(scripts, "moved"), root(finished)
    of_both = [read_arrays(folder / "evaluate" / "scores.npz") for folder in folders]
    for name, array in of_both[1].items():
        np.testing.assert_array_equal(of_both[0][name], array)
