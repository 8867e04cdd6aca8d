"""An evaluation among several processes: where they meet, and what one of them alone meets with."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.errors import RunError
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.evaluators.episode_player import PlayProgress
from stoix_like.runtime.evaluators.scores import Scores
from stoix_like.runtime.evaluators.text_episodes import TextEpisode
from stoix_like.runtime.hardware.process_group import Decision, OtherProcessFailed
from stoix_like.runtime.training.callbacks import RunClock, StopTraining
from stoix_like.runtime.training.evaluate import Evaluate, WriteSamples
from stoix_like.runtime.training.tracing import Tracing


class State(NamedTuple):
    params: object
    key: object


STATE = State(jnp.ones(2), jnp.zeros(2))


class Pieces:
    """An evaluator whose episodes take some pieces, of which one may fail."""

    mode = "deterministic"

    def __init__(self, num_pieces, fails_at=None):
        self.num_pieces, self.fails_at, self.sent = num_pieces, fails_at, []

    def play(self, _params, _root, _update):
        for piece in range(self.num_pieces + 1):
            is_over = piece == self.num_pieces
            self.sent.append((yield PlayProgress(piece, self.num_pieces, piece, is_over, 0 if is_over else 10)))
            if piece == self.fails_at:
                raise RunError("out of memory", "play fewer episodes at a time")
        return Scores({"episode_return": np.ones((1, 4)), "episode_length": np.ones((1, 4))}, None, 1.0, None)


class Notes:
    """A writer, and a SaveCheckpoint, that note what they are asked for."""

    def __init__(self):
        self.calls, self.tracing = [], Tracing()

    def write(self, reports):
        self.calls.append(("write", [sorted(report.values)[0] for report in reports]))

    def update_best(self, _params, scores, update):
        self.calls.append(("best", scores.tolist(), update))

    def save(self, _state, clock, *, at_once):
        assert at_once
        self.calls.append(("save", clock.update))


def evaluated(evaluator, meet, last=100):
    """(calls of the writer, whether the update counts as evaluated)."""
    notes, clock = Notes(), RunClock(20, last, 8)
    callback = Evaluate([evaluator], 20, [0], notes, meet, notes, SILENT)
    assert callback.next_update(clock) == 20
    error = None
    try:
        assert callback.run(STATE, clock) is STATE
    except StopTraining as stop:
        error = stop.error
    return notes.calls, clock.evaluated_at == 20, error


def test_the_processes_meet_before_each_piece_and_play_the_steps_of_the_first():
    meetings = []

    def meet(length=0, *, stop=False, error=None):
        meetings.append((length, stop, error))
        return Decision(3 if length else 0, False)

    evaluator = Pieces(2)
    calls, is_evaluated, _ = evaluated(evaluator, meet)
    assert meetings == [(10, False, None), (10, False, None), (0, False, None), (0, False, None)]
    assert evaluator.sent == [3, 3, 0]
    assert calls == [("write", ["evaluator/duration_ms"]), ("best", [1.0], 20)]
    assert is_evaluated
    calls, _, _ = evaluated(Pieces(2), meet, last=20)
    assert calls[0] == ("save", 20)  # before the last evaluation


@pytest.mark.parametrize(("stops_at", "is_complete"), [(1, False), (3, True)])
def test_a_stop_abandons_an_evaluation_unless_it_is_complete(stops_at, is_complete):
    meetings = []

    def meet(length=0, *, stop=False, error=None):
        meetings.append(length)
        return Decision(length, len(meetings) >= stops_at)

    calls, is_evaluated, error = evaluated(Pieces(2), meet)
    assert (is_evaluated, error) == (is_complete, None)
    assert [name for name, *_ in calls] == (["write", "best"] if is_complete else [])


@pytest.mark.parametrize(("fails_at", "before"), [(0, 1), (2, 3)], ids=["first piece", "after the last"])
def test_a_piece_that_fails_here_is_raised_in_all_processes(fails_at, before):
    """The others are at the meeting before their next piece, or at the last; this one meets them there."""
    meetings = []

    def meet(length=0, *, stop=False, error=None):
        meetings.append(None if error is None else error.what)
        if error is not None:
            raise error
        return Decision(length, False)

    calls, is_evaluated, error = evaluated(Pieces(2, fails_at), meet)
    assert meetings == [None] * before + ["out of memory"]
    assert error.what == "out of memory"
    assert (calls, is_evaluated) == ([], False)


def test_a_piece_that_failed_elsewhere_is_met_once():
    meetings = []

    def meet(length=0, *, stop=False, error=None):
        meetings.append(error)
        if len(meetings) == meets_at:
            raise OtherProcessFailed(1)
        return Decision(length, False)

    for meets_at in (2, 4):  # before its second piece, or after its last
        meetings.clear()
        calls, is_evaluated, error = evaluated(Pieces(2), meet)
        assert meetings == [None] * meets_at  # another meeting would wait for ever
        assert error.what == "process 1 ended the run"
        assert (calls, is_evaluated) == ([], False)


def no_turns(given, _seed):
    """Episodes without a turn, whose number is that of the parameters."""
    return [TextEpisode(level, [], succeeded=False) for level in range(int(given.sum()))]


def test_sample_episodes_follow_an_evaluation_once(tmp_path):
    samples, clock = WriteSamples(no_turns, tmp_path / "samples", num_seeds=1), RunClock(0, 9, 1)
    assert samples.next_update(clock) > clock.last_update  # nothing has been learned
    clock.update = 4
    assert samples.next_update(clock) > clock.last_update  # it has not been evaluated
    clock.evaluated_at = 4
    assert samples.next_update(clock) == 4
    assert samples.run(STATE, clock) is STATE
    assert samples.next_update(clock) > clock.last_update
    assert sorted(path.name for path in (tmp_path / "samples").iterdir()) == ["000004.html", "000004.txt"]
    assert (tmp_path / "samples/000004.txt").read_text().count("── episode") == 2


def test_sample_episodes_are_of_the_first_seed(tmp_path):
    clock = RunClock(4, 9, 1, evaluated_at=4)
    of_seeds = STATE._replace(params=jnp.array([[1.0, 2.0], [9.0, 9.0]]))
    WriteSamples(no_turns, tmp_path / "samples", num_seeds=2).run(of_seeds, clock)
    assert (tmp_path / "samples/000004.txt").read_text().count("── episode") == 3


def test_sample_episodes_that_do_not_fit_into_memory_end_the_run_after_its_checkpoint(tmp_path):
    def too_large(_params, _seed):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")

    with pytest.raises(StopTraining) as request:
        WriteSamples(too_large, tmp_path / "samples", num_seeds=1).run(STATE, RunClock(4, 9, 1, evaluated_at=4))
    assert isinstance(request.value.error, RunError)
    assert "--num-shown-episodes 0" in request.value.error.hint
    assert not (tmp_path / "samples").exists()


def test_sample_episodes_that_cannot_be_written_end_the_run_after_its_checkpoint(tmp_path):
    (tmp_path / "samples").write_text("a stranger's")
    with pytest.raises(StopTraining) as request:
        WriteSamples(no_turns, tmp_path / "samples", num_seeds=1).run(STATE, RunClock(4, 9, 1, evaluated_at=4))
    assert request.value.error.what.startswith(f"cannot write {tmp_path / 'samples'}: ")
    assert (tmp_path / "samples").read_text() == "a stranger's"
