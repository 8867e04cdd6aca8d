"""Numbers, intervals and tables as text."""

import math

from stoix_like.runtime.console.text import (
    ALGORITHM_TITLES,
    algorithm_title,
    aligned,
    duration_text,
    interval_text,
    number_text,
    without_empty_columns,
)


def test_numbers_intervals_and_durations():
    numbers = (96_312.4, 27.44, 0.0312, 3e-5, 12, 1.0, 999.6, -999.6, math.nan, "text")
    assert " ".join(map(number_text, numbers)) == "96,312 27.4 0.0312 3e-05 12 1 1,000 -1,000 – text"
    assert number_text(0.98765, digits=4) == "0.9877"
    assert (interval_text(0.5, 0.75), interval_text(0.5, 0.75, ".3f")) == ("[0.5, 0.75]", "[0.500, 0.750]")
    bounds = ((math.nan, math.nan), (0.5, math.nan), (None, None))
    assert {interval_text(*pair, spec) for pair in bounds for spec in (None, ".4f")} == {"–"}
    assert [duration_text(x) for x in (21.2, 3661.0, math.inf)] == ["0:00:21", "1:01:01", "–"]


def test_columns_are_as_wide_as_their_widest_cell_and_go_where_none_has_a_value():
    rows = [["a", "bb", ""], ["ccc", "d", "e"]]
    assert aligned(rows) == ["a    bb", "ccc  d   e"]
    assert aligned(rows, right=True) == ["  a  bb", "ccc   d  e"]
    assert aligned([]) == []
    head, rows = ["name", "gap", "seeds", "note"], [["PPO", "–", "3", ""], ["SPO", "–", "–", ""]]
    assert without_empty_columns(head, rows) == (["name", "seeds"], [["PPO", "3"], ["SPO", "–"]])


def test_an_algorithm_without_a_title_is_its_key_in_capitals(monkeypatch):
    monkeypatch.setitem(ALGORITHM_TITLES, "muzero", "MuZero")
    assert [algorithm_title(key) for key in ("ppo", "spo", "muzero", "a2c")] == ["PPO", "SPO", "MuZero", "A2C"]
