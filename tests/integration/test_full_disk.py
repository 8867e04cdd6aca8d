"""Where a checkpoint cannot be written the user reads two lines, and none of what orbax and tensorstore say of it."""

import re
import resource

import pytest
from support.scripted_runs import BASE, SPO_BASE, finish, flags, last_update

LIMIT = "hint: raise the limit on files, ulimit -f, or write elsewhere"


def train_until_full(scripts, script, largest, leaves):
    """The hint of a run none of whose files may grow beyond so many bytes, after the error that names the folder."""
    with scripts.start(script, "--no-compile-cache", *flags(**leaves)) as process:
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (largest, hard))  # long before it writes anything
        out, err = finish(process)
    assert process.returncode == 1, out + err
    assert err.count("\n") == 2, err
    error, hint = err.splitlines()
    assert error == f"error: cannot write the checkpoint in {scripts.cwd / 'full' / 'checkpoints'}: File too large"
    return hint


def test_a_checkpoint_that_does_not_fit_is_told_in_two_lines(scripts):
    """A limit on the size of files fails as a full disk does: in the middle of a write."""
    leaves = BASE | {"hidden_dim": 128, "num_layers": 2, "run_name": "full"}
    hint = train_until_full(scripts, "train_ppo", 30_000, leaves)
    assert hint == LIMIT
    assert not (scripts.cwd / "full").exists()  # it could not begin


@pytest.mark.full
def test_a_run_whose_checkpoints_grow_too_large_can_go_on(scripts):
    """SPO's replay fills: the first checkpoints fit. What is intact is named, and it is enough."""
    leaves = SPO_BASE | {"run_name": "full", "replay_buffer_size": 8 * 512, "num_updates": 100, "eval_interval": 0}
    leaves |= {"log_interval": 50, "save_interval": 8}  # metrics.jsonl stays below the limit
    hint = train_until_full(scripts, "train_spo", 60_000, leaves)
    match = re.fullmatch(LIMIT + r"; checkpoint (\d+) is intact; --resume (\S+) continues", hint)
    update, folder = match.groups()
    assert int(update) > 0
    _, err = scripts.run("train_spo", "--resume", folder, "--num-updates", int(update) + 2)
    assert err == ""
    assert last_update(scripts.cwd / "full") == int(update) + 2
