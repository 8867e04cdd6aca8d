"""Sinks on threads of their own: nothing they do reaches the training, whatever they do."""

import threading

import pytest
from support.telemetry import META, RecordingSink, TracingSink, join, report

from stoix_like.errors import ConfigError
from stoix_like.runtime.telemetry import QueuedSink, Span, hub, open_telemetry, read_rows
from stoix_like.runtime.telemetry.sink import SpanSink

SPAN = Span("chunk", 1.0, 2.0)


@pytest.fixture
def in_a_hurry(monkeypatch):
    monkeypatch.setattr(hub, "OPEN_SECONDS", 0.1)
    monkeypatch.setattr(hub, "CLOSE_SECONDS", 0.1)


def _dropped(name, reason, folder):
    return f"warning: {name} dropped ({reason}); metrics continue in {folder}/metrics.jsonl\n"


def test_everything_arrives_in_order_on_one_other_thread(tmp_path):
    sink = TracingSink()
    telemetry = open_telemetry(tmp_path, META, async_sinks=[QueuedSink(sink, "S")])
    telemetry.write([report(1, loss=1.0)])
    telemetry.trace([SPAN])
    telemetry.write([report(2, loss=1.0), report(3, loss=1.0)])
    telemetry.close()
    telemetry.close()
    assert sink.calls == [("open",), ("write", [1]), ("trace", ["chunk"]), ("write", [2, 3]), ("close",)]
    assert len(sink.threads) == 1
    assert sink.threads.isdisjoint({threading.get_ident()})


def test_spans_go_only_to_those_who_take_them(tmp_path):
    plain, tracing = RecordingSink(), TracingSink()
    assert (isinstance(plain, SpanSink), isinstance(tracing, SpanSink)) == (False, True)
    telemetry = open_telemetry(tmp_path, META, async_sinks=[QueuedSink(plain, "P"), QueuedSink(tracing, "T")])
    telemetry.trace([SPAN])
    telemetry.close()
    assert (plain.calls, tracing.calls[1]) == ([("open",), ("close",)], ("trace", ["chunk"]))


@pytest.mark.parametrize("fails_in", ["open", "write", "trace", "close"])
def test_one_that_fails_is_dropped_with_one_warning(tmp_path, capsys, fails_in):
    bad, good = TracingSink(fails_in), TracingSink()
    telemetry = open_telemetry(tmp_path, META, async_sinks=[QueuedSink(bad, "MLflow"), QueuedSink(good, "G")])
    for update in (1, 2, 3):
        telemetry.write([report(update, loss=1.0)])
        telemetry.trace([SPAN])
        if fails_in != "close":
            join("MLflow")  # so that it has failed by the next call
    telemetry.close()
    telemetry.close()
    assert capsys.readouterr().err == _dropped("MLflow", "ConnectionError: refused by host", tmp_path)
    assert [call[0] for call in bad.calls].count(fails_in) == 1
    assert bad.calls[-1] == ("close",)
    assert [call for call in good.calls if call[0] == "write"] == [("write", [1]), ("write", [2]), ("write", [3])]
    assert [row["update"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def test_what_the_user_cannot_have_is_said_before_training(tmp_path):
    good, bad = RecordingSink(), RecordingSink("open", ConfigError("there is no run 'x'", "copy it"))
    with pytest.raises(ConfigError, match="no run 'x'"):
        open_telemetry(tmp_path, META, async_sinks=[QueuedSink(good, "G"), QueuedSink(bad, "B")])
    assert good.calls == [("open",), ("close",)]


@pytest.mark.usefixtures("in_a_hurry")
def test_what_was_asked_for_is_waited_for(tmp_path, capsys):
    """An answer that takes longer than others are waited for, as importing MLflow does, is still heard in time."""

    class Late(RecordingSink):
        def open(self, run_dir, meta):
            assert not self.waits.wait(2 * hub.OPEN_SECONDS)
            super().open(run_dir, meta)

    refusing = Late("open", ConfigError("there is no run 'x'", "copy it"))
    hanging = RecordingSink(waits_in="open")
    queued = [QueuedSink(hanging, "G"), QueuedSink(refusing, "B", answer_seconds=20.0)]
    with pytest.raises(ConfigError, match="no run 'x'"):
        open_telemetry(tmp_path, META, async_sinks=queued)
    assert hanging.calls == []  # it was not waited for
    assert capsys.readouterr().err == ""  # there is no run whose metrics could continue
    hanging.go_on.set()


@pytest.mark.usefixtures("in_a_hurry")
def test_two_that_do_not_answer_cost_one_wait_and_get_all_later(tmp_path, capsys, monkeypatch):
    deadlines = []

    class Noting(QueuedSink):
        def wait_until_open(self, deadline):
            deadlines.append(deadline)
            super().wait_until_open(deadline)

    slow = [RecordingSink(waits_in="open"), RecordingSink(waits_in="open")]
    telemetry = open_telemetry(tmp_path, META, async_sinks=[Noting(sink, "S") for sink in slow])
    assert [sink.calls for sink in slow] == [[], []]
    assert deadlines == deadlines[:1] * 2  # once, not twice
    monkeypatch.setattr(hub, "CLOSE_SECONDS", 20.0)
    telemetry.write([report(1, loss=1.0)])
    for sink in slow:
        sink.go_on.set()
    telemetry.close()
    assert [sink.calls for sink in slow] == [[("open",), ("write", [1]), ("close",)]] * 2
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("in_a_hurry")
def test_one_that_hangs_never_holds_anybody_up(tmp_path, capsys):
    hung = RecordingSink(waits_in="write")
    telemetry = open_telemetry(tmp_path, META, async_sinks=[QueuedSink(hung, "H", max_pending=100)])
    telemetry.write([report(0, loss=1.0)])
    assert hung.waits.wait(20.0)
    for update in range(1, 50):
        telemetry.write([report(update, loss=1.0)])
    telemetry.close()
    assert hung.calls == [("open",)]  # it has waited all the time
    assert capsys.readouterr().err == _dropped("H", "TimeoutError: 50 reports could not be written in time", tmp_path)
    hung.go_on.set()
    assert len(read_rows(tmp_path / "metrics.jsonl")) == 50


def test_one_that_is_too_far_behind_is_dropped_and_its_thread_ends(tmp_path, capsys):
    slow = RecordingSink(waits_in="write")
    telemetry = open_telemetry(tmp_path, META, async_sinks=[QueuedSink(slow, "Slow", max_pending=5)])
    telemetry.write([report(0, loss=1.0)])
    assert slow.waits.wait(5.0)  # else its thread may end before it begins to write
    for update in range(1, 20):
        telemetry.write([report(update, loss=1.0)])
    assert capsys.readouterr().err == _dropped("Slow", "TimeoutError: it is 5 reports behind", tmp_path)
    (thread,) = [one for one in threading.enumerate() if one.name == "telemetry-Slow"]
    slow.go_on.set()
    thread.join(5.0)
    assert not thread.is_alive()
    assert slow.calls == [("open",), ("write", [0]), ("close",)]  # what was queued is dropped
    telemetry.close()
    assert capsys.readouterr().err == ""
