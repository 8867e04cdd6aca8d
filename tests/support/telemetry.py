"""What sinks are given: the facts of a run, and its reports."""

import contextlib
import threading

from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.sections.runs import ppo_config
from stoix_like.runtime.telemetry import Clock, Report, RunMeta, open_telemetry

SIZES = {"task_id": "Maze-v0", "num_envs": 64, "rollout_length": 16, "num_updates": 200, "eval_interval": 20}


def run_meta(**leaves):
    """The metadata of a run of PPO on Maze with other values of these leaves."""
    config = ppo_config(**SIZES | leaves)
    return RunMeta("ppo", "PPO", "cpu", {"stoix_like": "0.1.0", "jax": "0.10.2"}, config, steps_per_update(config))


META = run_meta()


def report(update, prefix="trainer", seeds=(0,), elapsed=None, **values):
    """A report of 1,024 steps and a tenth of a second for each update; a value, or a list with one for each seed."""
    clock = Clock(update, update * 1024, update / 10 if elapsed is None else elapsed)
    texts = {f"{prefix}/{name}": value for name, value in values.items() if isinstance(value, str)}
    numbers = {f"{prefix}/{name}": value for name, value in values.items() if not isinstance(value, str)}
    listed = {key: value if isinstance(value, list) else [value] for key, value in numbers.items()}
    return Report(clock, listed, texts, seeds)


def write(folder, *moments, meta=META, sinks=()):
    """A run that begins or is resumed in the folder, gives the reports of these moments, and ends."""
    with contextlib.closing(open_telemetry(folder, meta, sinks)) as telemetry:
        for reports in moments:
            telemetry.write(reports)


def send(sink, folder, updates, meta=META):
    """The same to one sink alone: a number, one that is not finite, and a text for each update; it is closed twice."""
    folder.mkdir(exist_ok=True)
    sink.open(folder, meta)
    for update in updates:
        sink.write([report(update, loss=update / 4, broken=float("nan"), event=f"saved {update}")])
    sink.close()
    sink.close()


def join(name):
    """Waits until the thread of that queued sink has ended, as it does when its sink has failed."""
    for thread in threading.enumerate():
        if thread.name == f"telemetry-{name}":
            thread.join(60.0)
            assert not thread.is_alive()


class RecordingSink:
    """A real sink that notes how it is called, and fails and waits on request."""

    def __init__(self, fails_in="", error=None, waits_in=""):
        self.fails_in, self.error, self.waits_in = fails_in, error or ConnectionError("refused\nby host"), waits_in
        self.waits, self.go_on, self.calls, self.threads = threading.Event(), threading.Event(), [], set()

    def _call(self, name, *what):
        self.threads.add(threading.get_ident())
        if name == self.waits_in:
            self.waits.set()
            self.go_on.wait(20.0)
        self.calls.append((name, *what))
        if name == self.fails_in:
            raise self.error

    def open(self, run_dir, meta):
        self._call("open")

    def write(self, reports):
        self._call("write", [report.clock.update for report in reports])

    def close(self):
        self._call("close")


class TracingSink(RecordingSink):
    def trace(self, spans):
        self._call("trace", [span.name for span in spans])
