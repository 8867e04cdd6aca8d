"""The record, the fan-out and the terminal, on real files, pipes and pseudo-terminals."""

import contextlib
import io
import json
import math
import os
import pty
import resource
from pathlib import Path

import numpy as np
import pytest
from support.telemetry import META, RecordingSink, report, run_meta, write

import stoix_like as sl
from stoix_like.errors import MissingExtraError, RunError
from stoix_like.runtime.telemetry import Clock, Report, jsonl, open_telemetry, read_rows
from stoix_like.runtime.telemetry.summary import RunSummary, parse_labels
from stoix_like.runtime.telemetry.terminal import TerminalView


def _reports(update):
    return [
        report(update, policy_loss=0.031, entropy=0.88, global_grad_norm=0.5),
        report(update, "actor", steps_per_second=96_312.4, mean_return=0.83),
    ]


def test_a_row_is_the_line_of_the_schema_and_values_that_are_not_finite_null(tmp_path):
    with contextlib.closing(open_telemetry(tmp_path, META)) as telemetry:
        telemetry.write([Report(Clock(12, 98_304, 8.1), {"trainer/policy_loss": [0.012]}, seeds=[0])])
        text = (tmp_path / "metrics.jsonl").read_text()  # before close: every report is flushed
    assert text == (
        '{"category": "TRAINER", "update": 12, "timesteps": 98304, "elapsed_seconds": 8.1, "seed": 0, '
        '"trainer/policy_loss": 0.012}\n'
    )
    values = {"actor/a": [math.nan], "actor/b": [-math.inf], "actor/c": [np.float32("inf")], "actor/d": [np.int32(3)]}
    (tmp_path / "other").mkdir()
    write(tmp_path / "other", [Report(Clock(1, 1, 1.0), values)])
    (row,) = read_rows(tmp_path / "other" / "metrics.jsonl")
    assert (row["actor/a"], row["actor/b"], row["actor/c"], row["actor/d"]) == (None, None, None, 3)
    assert row["seed"] is None


@pytest.mark.parametrize("torn", [b'{"category": "TRAINER", "upd', b'{"update": 5, "misc/text": "\xc3'])
def test_resume_cuts_a_torn_line_and_the_rows_after_the_checkpoint(tmp_path, torn):
    path = tmp_path / "metrics.jsonl"
    write(tmp_path, [report for update in (1, 2, 3, 4) for report in _reports(update)])
    before = path.read_bytes().splitlines(keepends=True)
    with path.open("ab") as file:
        file.write(torn)
    assert [row["update"] for row in read_rows(path)] == [1, 1, 2, 2, 3, 3, 4, 4]
    with contextlib.closing(open_telemetry(tmp_path, META._replace(resumed_update=2))) as telemetry:
        assert path.read_bytes() == b"".join(before[:4])  # the kept rows keep their bytes
        telemetry.write(_reports(3))
    assert [row["update"] for row in read_rows(path)] == [1, 1, 2, 2, 3, 3]
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.jsonl"]  # no temporary file stays


@pytest.mark.parametrize("evaluated", [True, False])
@pytest.mark.parametrize("resumed", [2_990, 2_999, 3_000])
def test_a_long_record_is_cut_as_a_short_one_and_read_whole_only_if_there_is_something_to_cut(
    tmp_path, monkeypatch, resumed, evaluated
):
    """A start at update 2,995 stands before the rows of 2,996, as where a run went on from there."""
    rows = [("TRAINER", update) for update in range(1, 2_996)] + [("MISC", 2_995)]
    rows += [("TRAINER", update) for update in range(2_996, 3_001)] + [("EVALUATOR", 3_000)]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps({"category": kind, "update": at, "text": "-" * 20}) + "\n" for kind, at in rows))
    parsed, parse = [], jsonl._parse
    monkeypatch.setattr(jsonl, "_parse", lambda line: parsed.append(line) or parse(line))
    jsonl.cut_after(path, resumed, keeps_evaluation=evaluated)
    found = [json.loads(line) for line in path.read_text().splitlines()]
    expected = [
        (kind, at) for kind, at in rows if at <= resumed and (evaluated or (kind, at) != ("EVALUATOR", resumed))
    ]
    assert [(row["category"], row["update"]) for row in found] == expected
    assert (len(parsed) < 10) == (expected == rows)


def test_a_start_alone_does_not_hide_what_is_behind_an_earlier_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [("TRAINER", 7), ("TRAINER", 8), ("TRAINER", 9), ("MISC", 0)]
    path.write_text("".join(json.dumps({"category": kind, "update": at}) + "\n" for kind, at in rows))
    jsonl.cut_after(path, 8)
    assert [json.loads(line)["update"] for line in path.read_text().splitlines()] == [7, 8, 0]


@pytest.mark.parametrize(("evaluated", "kept"), [(True, [1, 2, 2]), (False, [1, 2])])
def test_resume_cuts_an_evaluation_of_which_the_checkpoint_knows_nothing(tmp_path, evaluated, kept):
    write(tmp_path, [report(1, "evaluator", score=1.0), report(2, loss=1.0), report(2, "evaluator", score=2.0)])
    meta = META._replace(resumed_update=2, resumed_evaluated=evaluated)
    with contextlib.closing(open_telemetry(tmp_path, meta)):
        assert [row["update"] for row in read_rows(tmp_path / "metrics.jsonl")] == kept


def test_metrics_that_are_there_are_left_alone_by_a_fresh_run_and_gone_on_with_by_a_resumed_one(tmp_path):
    path, content = tmp_path / "metrics.jsonl", b'{"update": 1}\n{"update": 2}'  # complete without its newline
    path.write_bytes(content)
    with pytest.raises(RunError, match="exists already"):
        open_telemetry(tmp_path, META)
    assert path.read_bytes() == content
    write(tmp_path, [report(3, loss=1.0)], meta=META._replace(resumed_update=2))
    assert [row["update"] for row in read_rows(path)] == [1, 2, 3]


def test_a_record_that_is_damaged_missing_or_cannot_be_written_is_a_run_error(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"update": 1}\n{"upd\n{"update": 3}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl:2: not a row"):
        read_rows(tmp_path / "metrics.jsonl")
    with pytest.raises(RunError, match="no metrics at"):
        read_rows(tmp_path / "nothing.jsonl")
    with pytest.raises(RunError, match="metrics cannot be written: No such file or directory"):
        open_telemetry(tmp_path / "gone", META)


def test_a_disk_that_fills_up_ends_the_run_and_leaves_a_readable_file(tmp_path):
    telemetry = open_telemetry(tmp_path, META)
    telemetry.write(_reports(1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "metrics.jsonl").stat().st_size + 40, hard))
    try:
        with pytest.raises(RunError, match="metrics cannot be written: File too large"):
            telemetry.write(_reports(2))
        with contextlib.suppress(RunError):
            telemetry.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [row["update"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 1]


@pytest.mark.parametrize(("fails_in", "calls"), [("open", ["open", "close"]), ("write", ["open", "write", "close"])])
def test_a_failing_sink_is_dropped_with_one_warning(tmp_path, capsys, fails_in, calls):
    bad, good = RecordingSink(fails_in), RecordingSink()
    telemetry = open_telemetry(tmp_path, META, [bad, good])
    for update in (1, 2, 3):
        telemetry.write([report(update, loss=1.0)])
    telemetry.close()
    telemetry.close()
    error = capsys.readouterr().err
    where = f"metrics continue in {tmp_path}/metrics.jsonl"
    assert error == f"warning: RecordingSink dropped (ConnectionError: refused by host); {where}\n"
    assert [name for name, *_ in bad.calls] == calls
    assert good.calls[:4] == [("open",), ("write", [1]), ("write", [2]), ("write", [3])]
    assert [row["update"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 2, 3]


def test_a_missing_extra_is_said_before_training(tmp_path):
    good, bad = RecordingSink(), RecordingSink("open", MissingExtraError("wandb", "wandb", "pip install wandb"))
    with pytest.raises(MissingExtraError):
        open_telemetry(tmp_path, META, [good, bad])
    assert good.calls == [("open",), ("close",)]


def test_the_record_is_written_first(tmp_path):
    class Reader(RecordingSink):
        def write(self, reports):
            self.found = read_rows(tmp_path / "metrics.jsonl")

    reader = Reader()
    write(tmp_path, [report(1, loss=1.0)], sinks=[reader])
    assert len(reader.found) == 1


def _shown(*moments, meta=META, environ=None, progress=True):
    stream = io.StringIO()
    view = TerminalView(progress, stream, environ or {})
    view.open("runs/x", meta)
    for moment in moments:
        view.write(moment)
    view.close()
    return stream.getvalue()


def test_a_report_on_a_pipe_is_one_plain_line():
    evaluation = report(110, "evaluator", mean_return=0.86, episode_length_mean=27.4)
    text = _shown([*_reports(110), evaluation], [*_reports(120), report(120, "evaluator", mean_return=0.83)])
    # The first report knows only the rate: 90 * 1024 / 96,312 s = 1 s; the second took 1 s for 10 updates: 8 s for 80.
    assert text.splitlines() == [
        "update 110/200 · 96,312 steps/s · mean_return 0.83 · policy_loss 0.031 · entropy 0.88"
        " · eval mean_return 0.86 (best 0.86 @ 110) · 0:00:01 left",
        "update 120/200 · 96,312 steps/s · mean_return 0.83 · policy_loss 0.031 · entropy 0.88"
        " · eval mean_return 0.83 (best 0.86 @ 110) · 0:00:08 left",
    ]
    assert "\x1b" not in text
    text = _shown([report(0, "misc", task_id="Maze-v0")], [report(20, "evaluator", mean_return=0.5)])
    assert text == "update 20/200 · eval mean_return 0.5 (best 0.5 @ 20)\n"
    text = _shown([report(200, "actor", steps_per_second=10.0, mean_return=math.nan)])
    assert text == "update 200/200 · 10 steps/s · mean_return –\n"
    written = report(200, "actor", mean_return=0.5, well_formed=0.75)
    text = _shown([written, report(200, "evaluator", mean_return=0.25, well_formed=1.0)])
    scores = "eval mean_return 0.25 (best 0.25 @ 200) · well_formed 1"
    assert text == f"update 200/200 · mean_return 0.5 · well_formed 0.75 · {scores}\n"


def test_labels_come_from_the_environment(capsys):
    environ = {"STOIX_LIKE_METRIC_LABELS": "policy_loss=Policy Loss, steps_per_second=SPS,nonsense"}
    text = _shown(_reports(200), environ=environ)
    assert text == "update 200/200 · 96,312 SPS · mean_return 0.83 · Policy Loss 0.031 · entropy 0.88\n"
    assert capsys.readouterr().err == (
        "warning: STOIX_LIKE_METRIC_LABELS: 'nonsense' is not name=label; it is ignored\n"
    )
    assert parse_labels("a=b=c, ,=x") == ({"a": "b=c"}, ["'=x' is not name=label; it is ignored"])
    assert parse_labels("") == ({}, [])


def test_banner_compiling_and_closing_lines():
    stream = io.StringIO()
    view = TerminalView(stream=stream, environ={})
    view.banner("runs/x", META)
    view.compiling()
    view.compiled(6.12)
    view.open("runs/x", META)
    view.write([*_reports(200), report(200, "evaluator", mean_return=0.97)])
    view.done(204_800, 41.3, ["python scripts/evaluate.py runs/x", "python scripts/plot.py runs/x"])
    lines = stream.getvalue().splitlines()
    assert lines[:4] == [
        "stoix_like 0.1.0 · PPO · Maze-v0 · cpu (jax 0.10.2) · seed 0",
        "run  runs/x",
        "plan 64 envs × 16 steps × 200 updates = 204,800 steps · evaluation every 20 updates",
        "compiling … 6.1 s",
    ]
    assert lines[-3:] == [
        "done 204,800 steps in 41 s · evaluation mean_return 0.97 · run runs/x",
        "next: python scripts/evaluate.py runs/x",
        "      python scripts/plot.py runs/x",
    ]
    stream = io.StringIO()
    meta = run_meta(seed=3, num_seeds=8, eval_interval=0)._replace(resumed_update=100)
    TerminalView(stream=stream, environ={}).banner("runs/x", meta)
    first, _, plan = stream.getvalue().splitlines()
    assert first.endswith("· seeds 3–10")
    assert plan.endswith("= 204,800 steps for each of 8 seeds · evaluation at the end · resumed after update 100")


def test_the_plan_of_fine_tuning_is_in_rows():
    stream, meta = io.StringIO(), META._replace(config=sl.fine_tune_config(data_path="rows"), steps_per_update=128)
    TerminalView(stream=stream, environ={}).banner("runs/x", meta)
    assert stream.getvalue().splitlines()[2].startswith("plan 128 rows × 100 updates = 12,800 steps")


def test_a_log_file_gets_no_escape_codes_and_a_terminal_without_unicode_replacements(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as continuous integration sets it
    stream = io.StringIO()
    view = TerminalView(stream=stream)
    view.banner("runs/x", META)
    view.done(1, 1.0)
    assert "\x1b" not in stream.getvalue()
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    TerminalView(stream=stream, environ={}).compiling()
    assert raw.getvalue() == b"compiling ? "


def _on_terminal(environ, progress=True):
    """What a pseudo-terminal of 100 columns receives of two reports."""
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as stream:
        view = TerminalView(progress, stream, {"TERM": "xterm-256color", **environ})
        view.console.width = 100
        view.open("runs/x", META)
        view.write(_reports(60))
        view.write([*_reports(120), report(120, "evaluator", mean_return=0.86, solve_rate=0.5)])
        view.close()
        stream.flush()
        text = b""
        while not text.endswith(b"\x1b[?25h" if view.is_live else b"left\r\n"):
            text += os.read(reader, 65_536)
    os.close(reader)
    return text.decode()


def test_a_terminal_gets_a_live_view_and_no_color_and_no_progress_are_respected(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    text = _on_terminal({})
    assert "\x1b[?25l" in text  # the cursor is hidden while the view is live
    last = text[text.rindex("PPO · Maze-v0") :]
    for part in ("120/200", "96,312 steps/s", "0:00:08 left", "global_grad_norm 0.5", "0.86 (best 0.86 @ 120)"):
        assert part in last
    assert "solve_rate 0.5" in last
    assert "\x1b[36m" in text
    assert "\x1b[36m" not in _on_terminal({"NO_COLOR": "1"})
    assert "\x1b[?25l" not in _on_terminal({}, progress=False)


def test_a_reader_that_goes_away_does_not_stop_training(tmp_path, capsys):
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        view = TerminalView(stream=stream, environ={})
        telemetry = open_telemetry(tmp_path, META, [view])
        telemetry.write(_reports(1))
        os.close(reader)
        telemetry.write(_reports(2))
        telemetry.write(_reports(3))
        telemetry.close()
        view.done(3072, 1.0)
        with contextlib.suppress(BrokenPipeError):
            stream.close()  # what Python itself still had buffered
    assert [row["update"] for row in read_rows(tmp_path / "metrics.jsonl")] == [1, 1, 2, 2, 3, 3]
    assert capsys.readouterr().err == ""


def test_the_best_is_not_forgotten():
    summary = RunSummary(META._replace(resumed_update=100, best=(0.9, 80)))
    for update, prefix, score, best in (
        (120, "evaluator", 0.85, (0.9, 80)),
        (140, "evaluator_sampled", 0.99, (0.9, 80)),
        (160, "evaluator", 0.95, (0.95, 160)),
    ):
        summary.add([report(update, prefix, mean_return=score)])
        assert summary.best == best


def test_while_a_replay_is_filled_no_time_left_is_told():
    """Updates that learn nothing are fast: their pace says nothing, and what they report of losses is 0."""
    summary, stream = RunSummary(META), io.StringIO()
    view = TerminalView(stream=stream, environ={})
    view.open(Path("r"), META)
    for update, steps in ((10, 0.0), (20, 0.0), (30, 64.0), (40, 64.0)):
        elapsed = float(update) if update <= 20 else 20.0 + 5 * (update - 20)
        reports = [
            report(update, elapsed=elapsed, gradient_steps_sum=steps, policy_loss=steps),
            report(update, "actor", elapsed=elapsed, steps_per_second=64.0),
        ]
        summary.add(reports)
        view.write(reports)
        assert summary.is_filling == (steps == 0)
        assert (summary.seconds_left is None) == (steps == 0)
    assert summary.seconds_left == 5.0 * (META.num_updates - 40)
    lines = stream.getvalue().splitlines()
    assert ["filling the replay" in line for line in lines] == [True, True, False, False]
    assert ["policy_loss" in line for line in lines] == [False, False, True, True]
    assert [" left" in line for line in lines] == [False, False, True, True]


def test_games_that_are_cut_are_told():
    summary = RunSummary(META)
    for update, share in ((10, 0.0), (20, 1.0)):
        summary.add([report(update, "actor", truncated=share), report(update, gradient_steps_sum=0.0)])
        text = " of games cut · filling the replay"
        assert (f"100 %{text}" in summary.plain_line(is_training=True)) == (share > 0)
