"""Where a checkpoint cannot be written the user reads two lines, and none of what orbax and tensorstore say of it."""

import re
import resource

from scripted_runs import BASE, SPO_BASE, finish, flags, last_update

LIMIT = 60_000  # bytes of one file


def test_a_checkpoint_that_does_not_fit_is_told_in_two_lines(scripts):
    """A limit on the size of files fails as a full disk does: in the middle of a write."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    leaves = BASE | {"hidden_dim": 128, "num_layers": 2, "run_name": "full"}
    with scripts.start("train_ppo", "--no-compile-cache", *flags(**leaves), preexec_fn=small) as process:
        out, err = finish(process)
    assert process.returncode == 1, out + err
    assert err.count("\n") == 2, err
    error, hint = err.splitlines()
    assert error == f"error: cannot write the checkpoint in {scripts.cwd / 'full' / 'checkpoints'}: File too large"
    assert hint == "hint: free some space or choose another --save-dir"
    assert not (scripts.cwd / "full").exists()  # it could not begin


def test_a_run_whose_checkpoints_grow_too_large_can_go_on(scripts):
    """SPO's replay fills: the first checkpoints fit. What is intact is named, and it is enough."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    small = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    leaves = SPO_BASE | {"run_name": "full", "replay_buffer_size": 8 * 512, "num_updates": 100, "eval_interval": 0}
    leaves |= {"log_interval": 50, "save_interval": 8}  # metrics.jsonl stays below the limit
    with scripts.start("train_spo", "--no-compile-cache", *flags(**leaves), preexec_fn=small) as process:
        out, err = finish(process)
    assert process.returncode == 1, out + err
    assert err.count("\n") == 2, err
    error, hint = err.splitlines()
    assert error == f"error: cannot write the checkpoint in {scripts.cwd / 'full' / 'checkpoints'}: File too large"
    told = re.fullmatch(r"hint: free some space; checkpoint (\d+) is intact, and --resume (\S+) goes on", hint)
    update, folder = told.groups()
    assert int(update) > 0
    out, err = scripts.run("train_spo", "--resume", folder, "--num-updates", int(update) + 2)
    assert err == ""
    assert last_update(scripts.cwd / "full") == int(update) + 2
