"""When a callback is due, and what the driver makes of what it returns and raises, with a program of Python."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.errors import RunError
from stoix_like.runtime.hardware.process_group import Decision
from stoix_like.runtime.training.callbacks import Callback, RunClock, StopTraining
from stoix_like.runtime.training.chunk import MetricAccumulator
from stoix_like.runtime.training.driver import Driver, replaced_state
from stoix_like.runtime.training.tracing import Tracing


@pytest.mark.parametrize(
    ("update", "after", "interval", "expected"),
    [
        (0, -1, 20, 0),  # never yet: now
        (0, 0, 20, 20),
        (20, 0, 20, 20),  # skipped by an interruption: now
        (20, 20, 20, 40),
        (21, 0, 20, 40),  # a multiple that has passed is not made up for
        (99, 80, 30, 100),  # the last update is always due
        (100, 90, 0, 100),
        (0, 0, 0, 100),
        (100, 100, 20, 101),  # nothing is left
        (100, 100, 0, 101),
    ],
)
def test_what_is_due_by_hand(update, after, interval, expected):
    assert RunClock(update, 100, 8).next_due(interval, after) == expected


def test_a_clock_counts_steps_and_the_seconds_before():
    clock = RunClock(3, 5, 8, seconds_before=100.0)
    assert clock.now()[:2] == (3, 24)
    assert 100.0 <= clock.now().elapsed_seconds < 160.0
    assert clock.now(2)[:2] == (2, 16)
    clock.update = 5
    assert clock.is_last


class Every(Callback):
    """Due at multiples of an interval. Notes its calls, and acts at one of them."""

    def __init__(self, name, interval, calls, act=lambda state: state, at=-1):
        self.name, self.interval, self.calls, self.act, self.at = name, interval, calls, act, at

    def next_update(self, clock):
        return clock.next_due(self.interval, after=self.ran_at)

    def run(self, state, clock):
        self.calls.append((self.name, clock.update, int(state.x)))
        return self.act(state) if clock.update == self.at else state


class State(NamedTuple):
    x: jax.Array
    y: jax.Array


class Silent:
    """A writer that writes nothing."""

    def __init__(self):
        self.tracing = Tracing()

    def trace(self):
        self.spans = self.tracing.take()

    def how_to_continue(self):
        return "; continue"

    def wait_until_written(self):
        pass


def driven(*callbacks, start=0, last=6, stops_at=None, evaluated_at=6):
    """(status, lengths of the chunks, number of meetings); the program adds the length to the state."""
    lengths, meetings = [], []
    clock = RunClock(start, last, 1)

    def program(state, length):
        lengths.append(length)
        return state._replace(x=state.x + length), {}, 0.01

    def meet(length=0, *, stop=False, error=None):
        meetings.append(length)
        if error is not None:
            raise error
        if clock.update == evaluated_at:
            clock.evaluated_at = evaluated_at
        return Decision(min(length, 4), stop or clock.update == stops_at)

    driver = Driver(program, clock, callbacks, MetricAccumulator("task"), meet, Silent())
    return driver.run(State(jnp.int32(start), jnp.float32(0.5))), lengths, len(meetings)


def test_callbacks_run_in_order_where_they_are_due_and_chunks_end_there():
    calls = []
    status, lengths, meetings = driven(Every("a", 3, calls), Every("b", 2, calls))
    assert status == "done"
    assert calls == [
        ("b", 2, 2),
        ("a", 3, 3),
        ("b", 4, 4),
        ("a", 6, 6),
        ("b", 6, 6),
    ]
    assert sum(lengths) == 6
    assert meetings == len(lengths) + 2  # one for each chunk, one that finds nothing left, one for the last errors


def test_what_a_callback_returns_is_the_state_of_those_after_it_and_of_the_next_chunk():
    calls = []
    driven(Every("a", 2, calls, lambda state: state._replace(x=state.x + 100), at=2), Every("b", 2, calls))
    assert calls[:4] == [("a", 2, 2), ("b", 2, 102), ("a", 4, 104), ("b", 4, 104)]


def stop(reason):
    def act(_state):
        raise StopTraining(reason)

    return act


def test_a_callback_ends_the_run_and_others_that_are_due_still_run():
    calls = []
    status, lengths, _ = driven(Every("a", 2, calls, stop("pruned"), at=4), Every("b", 2, calls))
    assert status == "pruned"
    assert sum(lengths) == 4
    assert calls[-2:] == [("a", 4, 4), ("b", 4, 4)]


class AtTheEnd(Every):
    def next_update(self, clock):
        return clock.update if clock.is_ending else super().next_update(clock)


def test_callbacks_run_at_the_end_whatever_ends_the_run_and_once_at_each_update():
    calls = []
    driven(AtTheEnd("a", 4, calls))
    assert [update for _, update, _ in calls] == [4, 6]
    calls = []
    driven(AtTheEnd("a", 4, calls), Every("b", 2, [], stop("pruned"), at=2))
    assert [update for _, update, _ in calls] == [2]


def test_an_error_that_left_the_state_intact_is_raised_after_the_state_is_saved():
    def fail(_state):
        raise StopTraining("failed", RunError("out of memory", "use less"))

    calls = []
    with pytest.raises(RunError, match="out of memory") as raised:
        driven(Every("a", 2, [], fail, at=2), AtTheEnd("b", 0, calls))
    assert raised.value.hint == "use less; continue"
    assert calls == [("b", 2, 2)]


def test_what_a_callback_returns_gets_the_types_of_the_state_before_and_no_buffer_twice():
    """A number, an array of NumPy, or another field of the state: donated twice, XLA would end the process."""
    states = []

    class Keeps(Every):
        def run(self, state, clock):
            states.append(state)
            return state

    for value in (3, np.float64(3.0), jnp.float32(3.0)):
        driven(Every("a", 2, [], lambda state, value=value: state._replace(y=value), at=2), Keeps("b", 0, []))
        assert (states[-1].y.dtype, float(states[-1].y)) == (jnp.float32, 3.0)
    first = State(jnp.float32(1.0), jnp.float32(2.0))
    twice = replaced_state(Callback(), first, first._replace(y=first.x))
    assert (float(twice.x), float(twice.y)) == (1.0, 1.0)
    assert twice.x.unsafe_buffer_pointer() != twice.y.unsafe_buffer_pointer()


@pytest.mark.parametrize("act", [lambda _: None, lambda state: state._replace(y=jnp.ones(2))])
def test_a_state_of_other_shapes_is_refused_by_the_name_of_its_callback(act):
    with pytest.raises(
        RunError, match=r"Every\.run returned (no state, but NoneType|a state with y of shape \(2,\), not \(\))"
    ):
        driven(Every("a", 2, [], act, at=2))


def test_one_that_is_due_before_the_first_chunk_runs_first_and_one_of_a_resumed_run_not_again():
    class AtOnce(Every):
        def next_update(self, clock):
            return clock.next_due(self.interval, after=self.ran_at - (not self.calls))

    calls = []
    driven(AtOnce("a", 2, calls))
    assert [call[1] for call in calls] == [0, 2, 4, 6]
    calls = []
    driven(Every("a", 2, calls), start=4)  # resumed from a checkpoint of update 4, which was saved after it ran
    assert [call[1] for call in calls] == [6]


@pytest.mark.parametrize(("due", "expected"), [(lambda c: c.update, range(7)), (lambda c: c.update + 3, [3, 6])])
def test_what_is_due_now_or_so_many_updates_later_is_kept(due, expected):
    """Also if a chunk ends before."""

    class Own(Every):
        def next_update(self, clock):
            return due(clock)

    calls = []
    driven(Own("a", 0, calls))
    assert [update for _, update, _ in calls] == list(expected)


def test_an_update_that_was_named_is_forgotten_once_the_callback_has_run():
    class Changes(Every):
        def next_update(self, clock):
            return clock.update if clock.update == 1 and not self.calls else 4 if not self.calls else 100

    calls = []
    driven(Changes("a", 0, calls), Every("b", 1, []))
    assert [update for _, update, _ in calls] == [1]  # and not at 4 again


@pytest.mark.parametrize("returned", [2.5, None])
def test_an_update_that_is_none_is_refused_by_the_name_of_its_callback(returned):
    class Own(Every):
        def next_update(self, clock):
            return returned

    with pytest.raises(RunError, match=rf"Own\.next_update returned {returned}"):
        driven(Own("a", 0, []))
