"""Scripts in new processes that share one compile cache, commands in this one, and how two runs are compared."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from support.asserts import assert_same_bits, key_data
from support.paths import ROOT

from stoix_like.commands.entry import exit_code
from stoix_like.commands.table import COMMANDS
from stoix_like.runtime.runs import saved
from stoix_like.runtime.telemetry import read_rows

TIMEOUT = 900  # seconds; a start takes about 5 on an idle machine
#: The run that all others are compared with: 24 updates, everything due at almost every one.
SIZES = {"num_envs": 8, "rollout_length": 4, "num_minibatches": 2, "epochs": 1, "hidden_dim": 8, "num_updates": 24}
EVALUATION = {"num_eval_envs": 8, "num_eval_episodes": 8, "eval_interval": 2}
FOLDER = {"save_interval": 1, "log_interval": 1, "keep_last_n": 3, "save_dir": "."}
BASE = {"task_id": "probe/action_observation_reward"} | SIZES | EVALUATION | FOLDER
#: The same for SPO: the ring is full after four updates, and a search resamples.
MAZE = {"task_id": "Maze-v0", "kwargs": "{num_rows: 4, num_cols: 4}", "observation_adapter": "dense"}
SEARCH = {"num_particles": 4, "search_depth": 3, "root": "iid", "continuation": "sampled"}
RESAMPLING = {"resampling": "ess", "resampling_ess_threshold": 0.9}
TEMPERATURE = {"temperature_mode": "dual", "init_temperature": 0.05}
REPLAY = {"replay_buffer_size": 8 * 16, "sample_sequence_length": 6, "batch_size": 8, "gamma": 0.9}
SPO_BASE = BASE | MAZE | {"num_updates": 12} | SEARCH | RESAMPLING | TEMPERATURE | REPLAY
#: The same for AlphaZero: games end at different updates, and the ring begins to overwrite.
BOARD = {"task_id": "tic_tac_toe", "opponent": "random", "anchors": "heuristic", "num_updates": 12, "num_layers": 1}
SELF_PLAY = {"num_simulations": 3, "random_plies": 3, "replay_buffer_size": 8 * 14, "batch_size": 16}
ALPHAZERO_BASE = BASE | BOARD | SELF_PLAY
SIZES_OF = {"ppo": BASE, "spo": SPO_BASE, "alphazero": ALPHAZERO_BASE}
#: Runs of a few small updates, of which every checkpoint is kept.
SMALL_PPO_RUN = BASE | {"num_layers": 1, "num_updates": 8, "keep_last_n": 100}
SMALL_SPO_RUN = SMALL_PPO_RUN | {"num_updates": 6, "num_particles": 3, "search_depth": 2, "root": "iid"}
SMALL_SPO_RUN |= {"continuation": "sampled", "resampling": "period", "kl_constraint": "trajectory"}
SMALL_SPO_RUN |= {"replay_buffer_size": 8 * 10, "sample_sequence_length": 4, "batch_size": 8, "gamma": 0.9}
SMALL_SPO_RUN |= {"temperature_mode": "dual", "init_temperature": 2.0}
SMALL_SPO_RUN |= {"actor_lr": 0.01, "decay_learning_rates": "false"}
#: A variable for tests that look into the compile cache: what a fast machine compiles in no time is kept, too.
KEPT_HOWEVER_FAST = ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
#: Prints where a training state lies on four devices.
SHARDED = Path(__file__).with_name("sharded.py").read_text()
#: What may differ between two runs of the same numbers.
TIMED = {"elapsed_seconds", "actor/steps_per_second", "evaluator/duration_ms", "evaluator_network/duration_ms"}
TIMED |= {"evaluator_vs_heuristic/duration_ms"}


def flags(**leaves):
    """Leaves as words of a command line: `num_envs=8` is `--num-envs 8`."""
    return [word for name, value in leaves.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def command(name, *argv, **leaves):
    """The exit code of a command in this process."""
    return exit_code(COMMANDS[name].run, [*map(str, argv), *flags(**leaves)])


def cut_back(run, update):
    """The run without its checkpoints after that update, as a kill leaves it: rows may go further."""
    for folder in (Path(run) / "checkpoints").iterdir():
        if folder.name.isdecimal() and int(folder.name) > update:
            shutil.rmtree(folder)
    return Path(run)


class Scripts(NamedTuple):
    """Starts scripts in one working folder."""

    cwd: Path
    cache: Path
    variables: tuple[tuple[str, str], ...] = ()

    def environment(self):
        kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        return kept | {
            "XDG_CACHE_HOME": str(self.cache),
            "JAX_PLATFORMS": "cpu",
            "MPLBACKEND": "Agg",
            "JAX_NUMPY_RANK_PROMOTION": "raise",
            **dict(self.variables),
        }

    def start(self, script, *argv, **options):
        """A running process; its output is collected."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, ROOT / "scripts" / f"{script}.py", *map(str, argv)]
        return subprocess.Popen(command, cwd=self.cwd, env=self.environment(), text=True, **(pipes | options))

    def run(self, script, *argv, code=0):
        """(standard output, standard error) of a script that must end with this code."""
        with self.start(script, *argv) as process:
            out, err = finish(process)
        assert process.returncode == code, out + err
        return out, err

    def python(self, program, *argv):
        """Standard output of a Python program that must succeed."""
        command = [sys.executable, "-c", program, *map(str, argv)]
        environment = self.environment()
        result = subprocess.run(
            command, check=False, cwd=self.cwd, env=environment, text=True, capture_output=True, timeout=TIMEOUT
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout


def finish(process):
    """(standard output, standard error) of a process that is waited for, and killed if it never ends."""
    try:
        return process.communicate(timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise


def wait_until(condition, process, seconds=TIMEOUT, every=0.002):
    """Waits until `condition()` holds; fails if the process ends before."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, "".join(finish(process))
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(every)


@contextlib.contextmanager
def stopped(process):
    """While this lasts no thread of the process runs."""
    process.send_signal(signal.SIGSTOP)
    try:
        wait_until(lambda: _is_stopped(process), process)
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def _is_stopped(process):
    """Every thread of it: one that writes a checkpoint may go on for a moment."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    try:
        return all((task / "stat").read_text().rpartition(")")[2].split()[0] in "Tt" for task in tasks)
    except OSError:  # a thread has just ended
        return False


def last_update(run):
    """The last update in metrics.jsonl, 0 if it has none."""
    path = run / "metrics.jsonl"
    if not path.is_file():
        return 0
    return max((row["update"] for row in read_rows(path)), default=0)


def words(tree):
    """Every leaf on the host by its path, typed keys as their words."""
    return {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(key_data(tree))}


def rows_of(run, *categories):
    """Rows of those categories without what depends on the clock."""
    rows = [row for row in read_rows(Path(run) / "metrics.jsonl") if row["category"] in categories]
    return [{name: value for name, value in row.items() if name not in TIMED} for row in rows]


def state_of(run):
    return saved.load_run(str(run), "latest").state


def assert_close(expected, found, rtol=1e-4, atol=1e-5):
    """Equal but for the order of sums, which changes the last bits; one other action would differ far more."""
    left, right = words(expected), words(found)
    assert left.keys() == right.keys()
    for name, value in left.items():
        np.testing.assert_allclose(right[name], value, rtol=rtol, atol=atol, err_msg=name)


def marl_eval_of(run):
    """The content of marl_eval.json without what depends on the clock."""
    untimed = lambda fields: {name: value for name, value in fields.items() if name != "elapsed_time"}
    return json.loads((Path(run) / "marl_eval.json").read_text(), object_hook=untimed)


def assert_same_run(one, other):
    """The last state, the best parameters and their scores, and the rows of metrics are the same, bit for bit."""
    last, other_last = (saved.load_run(str(run), "latest") for run in (one, other))
    assert last.meta.update == other_last.meta.update
    assert_same_bits(last.state, other_last.state)
    best, other_best = (saved.load_run(str(run), "best") for run in (one, other))
    assert (best.meta.update, best.meta.host) == (other_best.meta.update, other_best.meta.host)
    assert_same_bits(best.params, other_best.params)
    for category in ("TRAINER", "ACTOR", "EVALUATOR"):
        assert rows_of(one, category) == rows_of(other, category)
    assert marl_eval_of(one) == marl_eval_of(other)
