"""A pipeline of self-play that is killed by the system goes on, in new processes, to what an undisturbed one has."""

import contextlib
import signal

import pytest
from support.marks import full
from support.pipelines import SMALL, champion_hash, digests
from support.scripted_runs import Scripts, finish, wait_until

from stoix_like.selfplay.files.folders import Layout

NUM_ITERATIONS = 2
STARTED = 3  # processes at once


def argv(save_dir):
    leaves = SMALL | {"save_dir": save_dir, "max_iterations": NUM_ITERATIONS}
    words = ["--board-type", leaves.pop("task_id")]
    for name, value in leaves.items():
        words += [f"--{name.replace('_', '-')}", "null" if value is None else str(value)]
    return words


#: What is on disk when the process is killed.
MOMENTS = {
    "a shard": "iterations/0001/selfplay/shard_0000.npz",
    "the window": "iterations/0001/export/window.npz",
    "the run": "train/checkpoints/0/meta.json",
    "a piece of the match": "matches/*/piece_0000.npz",
    "a decision": "iterations/0001/promote/manifest.json",
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, compile_cache):
    """(the digests of all stages, the champion) of a pipeline that nobody killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    Scripts(folder, compile_cache).run("run_training_loop", *argv("."))
    layout = Layout(folder / "tic_tac_toe_2p")
    return [digests(layout, number) for number in range(1, NUM_ITERATIONS + 1)], champion_hash(layout)


# in `make test-integration`, test_killed_loops.py kills a loop
@pytest.mark.parametrize("moment", [full(moment) for moment in MOMENTS])
def test_killed_it_goes_on_to_the_same_hashes(scripts, undisturbed, moment):
    layout = Layout(scripts.cwd / "killed" / "tic_tac_toe_2p")
    with scripts.start("run_training_loop", *argv("killed")) as process:
        wait_until(lambda: list(layout.root.glob(MOMENTS[moment])), process)
        process.send_signal(signal.SIGKILL)
        finish(process)
    while not (layout.stage(NUM_ITERATIONS, "promote") / "manifest.json").is_file():
        scripts.run("run_training_loop", *argv("killed"), "--max-iterations", "1")
    found = [digests(layout, number) for number in range(1, NUM_ITERATIONS + 1)]
    assert (found, champion_hash(layout)) == undisturbed


@pytest.mark.full
def test_several_processes_on_one_folder_disturb_nothing(scripts, undisturbed):
    """The lock is held while a stage runs. Who finds it held ends with one line, and another one goes on."""
    words = argv("shared")
    with contextlib.ExitStack() as running:
        processes = [running.enter_context(scripts.start("run_training_loop", *words)) for _ in range(STARTED)]
        ended = [(process, *finish(process)) for process in processes]
    refused = [error for process, _, error in ended if process.returncode != 0]
    assert len(refused) < STARTED
    assert all("another process" in error and "hint:" in error for error in refused), refused
    assert all(process.returncode in (0, 1) for process, *_ in ended)
    layout = Layout(scripts.cwd / "shared" / "tic_tac_toe_2p")
    found = [digests(layout, number) for number in range(1, NUM_ITERATIONS + 1)]
    assert found == undisturbed[0]
