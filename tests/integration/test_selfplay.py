"""A pipeline of self-play that is killed by the system goes on, in new processes, to what an undisturbed one has."""

import signal

import pytest
from support.marks import full
from support.pipelines import SMALL, champion_hash, digests
from support.scripted_runs import Scripts, finish, wait_until

from stoix_like.selfplay.folders import Layout

NUM_ITERATIONS = 2


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


@pytest.mark.parametrize("moment", ["a shard", *map(full, list(MOMENTS)[1:])])
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
