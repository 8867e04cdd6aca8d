"""How loops end: with exit code 0 if one iteration was finished, 1 if all have failed; and what does not end them."""

import contextlib
import dataclasses
import threading

import pytest
from support.loops import SMALL_WORDS
from support.scripted_runs import command

from stoix_like.config.sections.continuous_loop import LoopConfig
from stoix_like.errors import RunError
from stoix_like.runtime.console.reporter import SILENT, Reporter
from stoix_like.selfplay.events.database import FILE, Database
from stoix_like.selfplay.events.wiring import wire_pipeline_events
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.loops import continuous, opened, runner, start
from stoix_like.selfplay.loops import stop as stop_module
from stoix_like.selfplay.stages import train
from stoix_like.selfplay.watch import presence
from stoix_like.selfplay.watch.lines import counts_text

SMALL = [*SMALL_WORDS, "--min-samples", "0"]
CONTINUOUS = ["run-continuous-training", "-c", "tic_tac_toe:2", "--games", 10, "--cooldown", 0, *SMALL]
MASTER = ["master-loop", "--games", "tic_tac_toe:2", "--selfplay-games", 10, "--min-samples-to-trigger", 0]
MASTER += SMALL_WORDS
BY_HAND = ["run-training-loop", "--board-type", "tic_tac_toe"]


@pytest.fixture
def compiled(copied_loop, monkeypatch):
    """A folder in which commands find their programs compiled; they are the same as theirs, leaf by leaf."""
    pipeline, folder = copied_loop
    before = pipeline.layout, pipeline.config, pipeline.stop, pipeline.reporter

    def same(config, reporter, stop):
        pipeline.layout = Layout(folder / "tic_tac_toe_2p")
        pipeline.config, pipeline.reporter, pipeline.stop = config, reporter, stop
        return pipeline

    monkeypatch.setattr(runner, "Pipeline", same)
    yield folder
    pipeline.layout, pipeline.config, pipeline.stop, pipeline.reporter = before


@pytest.mark.parametrize("words", [CONTINUOUS, MASTER], ids=["continuous", "master"])
@pytest.mark.parametrize(("num_failures", "code"), [(0, 0), (1, 0), (2, 1)])
def test_two_iterations_of_which_some_fail(compiled, monkeypatch, capsys, words, num_failures, code):
    failures, trained = [], train.train_stage

    def failing(*arguments):
        if len(failures) < num_failures:
            failures.append(1)
            raise RunError("no memory", "lower --batch-size")
        return trained(*arguments)

    monkeypatch.setattr(train, "train_stage", failing)
    assert command(*words, "--max-iterations", 2, "--save-dir", compiled) == code
    assert f"{counts_text(2 - num_failures, num_failures)}\n" in capsys.readouterr().out


@pytest.mark.parametrize("words", [CONTINUOUS, MASTER], ids=["continuous", "master"])
def test_iterations_that_cannot_be_begun_have_failed(tmp_path, capsys, words):
    nowhere = tmp_path / "nowhere"
    argv = [*words, "--max-iterations", 2, "--save-dir", tmp_path / "runs", "--sync-from", nowhere]
    assert command(*argv) == 1
    captured = capsys.readouterr()
    assert "0 iterations finished, 2 failed" in captured.out
    assert captured.err.count(f"begin of iteration 1 failed: --sync-from: no folder {nowhere}") == 2


@pytest.mark.parametrize("words", [CONTINUOUS[:3], MASTER[:3], BY_HAND], ids=["continuous", "master", "by hand"])
@pytest.mark.parametrize(
    ("leaves", "problems"),
    [
        (["--random-plies", 10], ["alphazero.random_plies: 10 is more than the 9 plies of its longest game"]),
        (["--match-opening-plies", 9], ["promotion.match_opening_plies: 9 is more than the 8 plies"]),
        (["--replay-buffer-size", 1024], ["alphazero.replay_buffer_size: 1,024 is less than the"]),
        (
            ["--random-plies", 2_000_000_000, "--match-opening-plies", 2_000_000_000],
            ["random_plies: 2,000,000,000 is", "match_opening_plies: 2,000,000,000 is"],
        ),
    ],
)
def test_leaves_that_a_game_bounds_are_refused_at_the_start(tmp_path, capsys, words, leaves, problems):
    assert command(*words, *leaves, "--save-dir", tmp_path / "runs") == 2
    *errors, hint = capsys.readouterr().err.splitlines()
    for problem, error in zip(problems, errors, strict=True):
        assert error.startswith("error: ")
        assert problem in error
    assert hint.startswith("hint: use at")
    assert not (tmp_path / "runs" / "tic_tac_toe_2p").exists()


CONFIG = LoopConfig([("tic_tac_toe", 2)], selfplay_games_per_iteration=10, iteration_cooldown_seconds=0.0)


def test_a_loop_goes_on_when_nothing_can_be_printed(compiled):
    def full(_line):
        raise OSError(28, "No space left on device")

    config = dataclasses.replace(CONFIG, max_iterations=1)
    stats = start.run_continuous(config, compiled, words=SMALL, reporter=Reporter(full, full, full, full))
    assert (stats.successful_iterations, stats.interrupted) == (1, False)


def test_a_loop_whose_database_was_moved_away_ends(compiled, monkeypatch):
    monkeypatch.setattr(stop_module, "_LOOK_SECONDS", 0.01)
    wiring = wire_pipeline_events()

    def move(event):
        if (compiled / FILE).is_file():
            (compiled / FILE).rename(compiled / f"moved_{event.iteration}")

    wiring.subscribe("moves", move, kinds=("ITERATION_COMPLETE",))
    with pytest.raises(RunError, match=r"events\.sqlite was moved away or removed, and the continuous loop has ended"):
        start.run_continuous(CONFIG, compiled, words=SMALL, wiring=wiring, reporter=SILENT)
    assert not presence.is_present(compiled, presence.CONTINUOUS)


def test_a_stop_that_is_asked_for_while_a_loop_starts_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(stop_module, "_LOOK_SECONDS", 0.01)
    select, is_running = opened.devices.select, presence.is_unified_loop_running

    def asked(*arguments, **options):
        with contextlib.closing(Database(tmp_path)) as database:
            presence.request_stop(database, presence.CONTINUOUS)
        return select(*arguments, **options)

    def late(save_dir):
        """Once the thread has looked, at most a minute later."""
        ready.wait(60.0)
        return is_running(save_dir)

    ready = threading.Event()
    receive = stop_module.LoopStop.look
    monkeypatch.setattr(stop_module.LoopStop, "look", lambda stop, found: receive(stop, found) or ready.set())
    monkeypatch.setattr(opened.devices, "select", asked)
    monkeypatch.setattr(continuous.presence, "is_unified_loop_running", late)
    monkeypatch.setattr(runner, "Pipeline", lambda *_: pytest.fail("it compiles"))
    stats = start.run_continuous(CONFIG, tmp_path, words=SMALL, reporter=SILENT)
    assert (stats.total_iterations, stats.interrupted) == (0, True)
