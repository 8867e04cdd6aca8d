"""The continuous loop, killed without warning in every stage: it goes on to the same candidates and decisions."""

import contextlib
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from support.dying_loop import ENDS
from support.loops import SMALL_WORDS, is_promoted, told
from support.marks import quick
from support.pipelines import champion_hash, digests
from support.scripted_runs import Scripts, finish

from stoix_like.runtime.stages.manifest import read_manifest
from stoix_like.selfplay.events.database import FILE
from stoix_like.selfplay.files.folders import STAGE_NAMES, Layout

DYING = (Path(__file__).parents[1] / "support" / "dying_loop.py").read_text()
PLACES = ("inside", "before its manifest", "before its event")
LOOP = ["-c", "tic_tac_toe:2", "--games", "10", "--cooldown", "0", "--save-dir", "runs", *SMALL_WORDS]
LOOP += ["--min-samples", "0", "--seed", "2"]


def layout_of(scripts):
    return Layout(scripts.cwd / "runs" / "tic_tac_toe_2p")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, compile_cache):
    """The pipeline of a loop that nobody has killed, after two iterations."""
    scripts = Scripts(tmp_path_factory.mktemp("undisturbed"), compile_cache)
    scripts.run("run_continuous_training", *LOOP, "--max-iterations", 2)
    layout = layout_of(scripts)
    assert is_promoted(layout, 1), "the configuration of this test promotes someone"
    return layout


def kill_in(scripts, stage, place):
    """Runs the loop until it is killed there."""
    command = [sys.executable, "-c", DYING, stage, place, *LOOP]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=scripts.cwd, env=scripts.environment(), **pipes) as process:
        said = finish(process)
    assert process.returncode == -signal.SIGKILL, said


def done(layout):
    """{file: (its bytes, when it was written)} of what is finished: manifests, shards, pieces of matches."""
    names = ("manifest.json", "shard_*.npz", "piece_*.npz")
    files = [path for name in names for path in layout.root.rglob(name) if not path.name.startswith(".")]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def events(layout):
    """{key: its place in the log} of all events, in the order in which they were written."""
    with contextlib.closing(sqlite3.connect(layout.root.parent / FILE)) as connection:
        rows = connection.execute("SELECT key, id FROM events ORDER BY id").fetchall()
    return {key.removeprefix("tic_tac_toe_2p/"): place for key, place in rows}


def done_stages(layout):
    """The stages of the first iteration that have a manifest."""
    return [name for name in STAGE_NAMES if read_manifest(layout.stage(1, name)) is not None]


@pytest.mark.parametrize("stage", quick(STAGE_NAMES, ("train",)))
def test_a_loop_that_is_killed_in_a_stage_goes_on_to_the_same_end(scripts, undisturbed, stage):
    layout, finished, known = layout_of(scripts), {}, {}
    for place in PLACES:
        kill_in(scripts, stage, place)
        is_done = place == "before its event"
        assert done_stages(layout) == list(STAGE_NAMES[: STAGE_NAMES.index(stage) + is_done])
        assert not any(ENDS[stage] in key for key in events(layout))
        assert done(layout).items() >= finished.items()  # nothing was done twice
        assert events(layout).items() >= known.items()  # nor told twice
        finished, known = done(layout), events(layout)
    left = 2 - (read_manifest(layout.stage(1, "promote")) is not None)
    scripts.run("run_continuous_training", *LOOP, "--max-iterations", left)
    assert done(layout).items() >= finished.items()
    for number in (1, 2):
        assert digests(layout, number) == digests(undisturbed, number)
    assert champion_hash(layout) == champion_hash(undisturbed)
    assert events(layout).items() >= known.items()
    assert list(events(layout)) == [*told(1, undisturbed), *told(2, undisturbed)]
