"""A signal ends every command with 130: in its first moments, while XLA compiles, and while it computes."""

import re
import signal
from pathlib import Path

import pytest
from support.marks import full
from support.scripted_runs import BASE, finish, flags, wait_until

MATCH = ("mcts-512", "mcts-512", "--game", "connect_four")
EARLY = [
    ("arena", MATCH),
    full("train_ppo", ()),
    full("train_spo", ()),
    full("train_alphazero", ()),
    full("ratings", ("runs/none", "--anchors", "mcts-512")),
    full("run_training_loop", ()),
    full("run_continuous_training", ()),
    ("master_loop", ()),
    full("sweep", ("sweep/ppo_maze",)),
    full("bench", ("--suite", "env")),
    full("doctor", ()),
]


def _catches(process, number):
    """Whether the process has a handler of the signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (number - 1) & 1


@pytest.mark.parametrize(("script", "argv"), EARLY)
def test_a_signal_in_the_first_moments_ends_any_command(scripts, script, argv):
    with scripts.start(script, *argv) as process:
        wait_until(lambda: _catches(process, signal.SIGTERM), process, every=0)
        process.send_signal(signal.SIGINT)
        out, err = finish(process)
    assert (process.returncode, err) == (130, "interrupted\n"), out


@pytest.mark.parametrize("number", [signal.SIGINT, full(signal.SIGTERM)])
def test_a_match_that_xla_computes_is_ended(scripts, number):
    """The normal end of Python destroyed XLA's client while it computed: a segmentation fault, nine times of nine."""
    with scripts.start("arena", *MATCH) as process:
        assert process.stdout.readline().startswith("connect_four: 256 openings")
        process.send_signal(number)
        _, err = finish(process)
    assert (process.returncode, err) == (130, "interrupted\n")


@pytest.mark.full
def test_a_second_signal_ends_a_training_that_compiles_and_says_how_to_go_on(scripts):
    leaves = BASE | {"run_name": "stopped", "hidden_dim": 256, "num_layers": 3}
    with scripts.start("train_ppo", *flags(**leaves), "--no-compile-cache") as process:
        wait_until((scripts.cwd / "stopped" / "checkpoints" / "0").is_dir, process)
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline().startswith("stopping after the current chunk or compilation")
        process.send_signal(signal.SIGINT)
        _, err = finish(process)
    assert (process.returncode, err) == (130, "interrupted\n")
    _, err = scripts.run("train_ppo", "--resume", "stopped")
    assert err == ""
