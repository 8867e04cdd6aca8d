"""What the line of a stage says: the rate and the remaining time once both are known."""

import time

import pytest

from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.training.stopping import Interrupted, StopRequest
from stoix_like.selfplay.pipeline.progress import Progress


def test_compilation_and_earlier_processes_do_not_count_for_the_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress(SILENT, StopRequest(), "selfplay", "games", 1000, done=100)
    progress.show(100)  # nothing is done yet
    assert progress.line() == "selfplay: 100 of 1,000 games"
    now[0] = 60.0  # compiled, and the first ten played
    progress.show(110)
    assert progress.line() == "selfplay: 110 of 1,000 games"
    now[0] = 62.0
    progress.show(310)
    assert progress.line() == "selfplay: 310 of 1,000 games · 100 games/s · 0:00:07 left"


def test_what_an_earlier_process_has_done_in_between_does_not_count_for_the_rate(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    progress = Progress(SILENT, StopRequest(), "selfplay", "games", 1000)
    progress.keep(100)
    assert progress.line() == "selfplay: 100 of 1,000 games"
    progress.show(110)
    now[0] = 1.0
    progress.keep(390)
    assert progress.line() == "selfplay: 500 of 1,000 games"
    progress.show(600)
    assert progress.line() == "selfplay: 600 of 1,000 games · 100 games/s · 0:00:04 left"


def test_a_stage_that_is_stopped_names_itself():
    stop = StopRequest()
    stop.is_set = True
    with pytest.raises(Interrupted, match="export"):
        Progress(SILENT, stop, "export", "games", 1).update(1)
