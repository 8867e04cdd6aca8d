"""Spans: what is inside what, and how long it took."""

import time

import pytest

from stoix_like.runtime.profiling.phase_times import PhaseTimes
from stoix_like.runtime.telemetry.sink import Span
from stoix_like.runtime.training.tracing import Tracing, update_span


def test_spans_nest_are_timed_and_told_though_they_fail():
    tracing = Tracing()
    before = time.time()
    with tracing.span("chunk", from_update=4):
        tracing.add(Span("update", before, 0.01))
        with tracing.span("evaluate"):
            time.sleep(0.05)
        assert tracing.take() == []  # the chunk is not over
    (chunk,) = tracing.take()
    assert tracing.take() == []
    assert (chunk.name, chunk.attributes) == ("chunk", {"from_update": 4})
    assert [child.name for child in chunk.children] == ["update", "evaluate"]
    assert 0.05 <= chunk.children[1].seconds <= chunk.seconds < 5.0
    assert before <= chunk.began <= chunk.children[1].began <= before + 5.0
    tracing = Tracing()
    with pytest.raises(KeyError), tracing.span("chunk"), tracing.span("evaluate"):
        raise KeyError
    (chunk,) = tracing.take()
    assert [child.name for child in chunk.children] == ["evaluate"]
    with tracing.span("next"):
        pass
    assert [span.name for span in tracing.take()] == ["next"]


def test_the_parts_of_an_update_are_shares_of_it_by_hand():
    times = PhaseTimes(2, 1.0, {}, optimising=0.5, playing=0.25, searching=0.125)
    rollout, optimise = update_span(100.0, 8.0, 2, 6, times).children
    (search,) = rollout.children
    found = [(span.name, span.began, span.seconds) for span in (rollout, search, optimise)]
    assert found == [("rollout", 100.0, 2.0), ("search", 100.0, 1.0), ("optimise", 102.0, 4.0)]
    assert all(span.attributes == {"estimated": "from the shares of the run's profile"} for span in (rollout, optimise))
    assert update_span(100.0, 8.0, 2, 6, times._replace(searching=0.0)).children[0].children == ()
    assert update_span(100.0, 8.0, 2, 6, None) == Span("update", 100.0, 8.0, {"updates": 2, "update": 6})
