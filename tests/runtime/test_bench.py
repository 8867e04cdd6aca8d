"""The bench's arithmetic, its refusal, and the shape of its rows. Nothing is timed here."""

import json

import pytest

from stoix_like.runtime.bench import command, measure
from stoix_like.runtime.bench.measure import Row, Timing


def test_timing_is_the_median_and_half_the_quartile_range_over_it():
    median, spread = measure.timing([4.0, 1.0, 2.0, 3.0, 10.0])
    assert median == 3.0
    assert spread == pytest.approx((4.0 - 2.0) / 2 / 3.0)


def test_a_ratio_is_refused_where_the_spreads_could_explain_it():
    assert measure.told_ratio(Timing(1.0, 0.02), Timing(2.0, 0.03)) == 2.0
    assert measure.told_ratio(Timing(1.0, 0.1), Timing(1.15, 0.1)) is None
    assert measure.told_ratio(Timing(1.0, 0.6), Timing(2.0, 0.5)) is None


def test_contestants_take_turns_after_one_unmeasured_round():
    calls = []
    found = measure.in_turns({name: lambda n=name: calls.append(n) or 0 for name in "ab"}, repetitions=3)
    assert calls == list("ab" * 4)
    assert set(found) == {"a", "b"}


def test_the_peak_counts_two_operations_per_multiplication():
    assert measure.peak_flops(512, 256) == 200 * 2 * 512 * 256 * 256


def test_a_row_says_when_there_is_no_ratio():
    row = Row("x/64", 1234.0, "steps/s", spread=0.2, reference=1000.0)
    assert command.line(row).split() == [
        *("x/64", "1,234", "steps/s", "±", "20%", "reference", "1,000:"),
        *("no", "ratio:", "the", "spread", "is", "larger", "than", "the", "claim"),
    ]


def test_rows_are_written_as_a_list_of_objects(monkeypatch, tmp_path, capsys):
    from stoix_like.runtime.bench import suites

    row = Row("x", 200.0, "steps/s", 0.1, 100.0, 2.0, 400.0, 0.5, "n")
    monkeypatch.setitem(suites.SUITES, "env", lambda: [row])
    assert command.main(["--suite", "env", "--json", str(tmp_path / "b.json"), "--device-type", "cpu"]) == 0
    keys = ["name", "value", "unit", "spread", "reference", "ratio", "ceiling", "share", "note"]
    written = json.loads((tmp_path / "b.json").read_text())
    assert [list(entry) for entry in written] == [keys]
    assert "50% of the ceiling 400" in capsys.readouterr().out
