"""Figures of ratings and of searches: names of horizontal lines at the lines, and counts of steps in one form."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from support.hand_made import write_run

from stoix_like.runtime.figures import learning_curves, panels, ticks
from stoix_like.runtime.figures.panels import Line, Panel
from stoix_like.runtime.results.curves import make_curves
from stoix_like.runtime.results.series import read_run

#: mcts-2048, heuristic and mcts-512 are closer to each other than a row of text is high.
ANCHORS = {"heuristic": 1000.0, "random": 400.0, "mcts-128": 815.0, "mcts-512": 988.0, "mcts-2048": 1010.0}


def line_of(steps):
    ratings = np.linspace(300.0, 1500.0, len(steps))
    return Line("run", steps, ratings, ratings - 50.0, ratings + 50.0)


@pytest.fixture
def drawn(monkeypatch):
    """Draws panels and returns their axes."""
    monkeypatch.setattr(panels, "save_figure", lambda figure, out: figure)

    def draw(found, **options):
        figure = panels.plot_panels(found, Path("x.png"), "environment steps", "Elo", **options)
        FigureCanvasAgg(figure).draw()
        return figure.axes

    return draw


def labels_of(axes):
    return [label.get_text() for label in axes.get_xticklabels() if label.get_text()]


@pytest.mark.parametrize("count", [1, 2])
def test_names_stand_at_the_ends_of_their_lines_and_none_over_another(drawn, count):
    found = drawn([Panel("ratings", [line_of([0, 10**6])], ANCHORS)] * count, log_x=False)
    for axes in found:
        names = {text.get_text(): text for text in axes.texts}
        assert names.keys() == ANCHORS.keys()
        assert [text.get_text() for text in axes.get_legend().get_texts()] == ["run"]
        area, boxes = axes.get_window_extent(), {name: Text.get_window_extent(text) for name, text in names.items()}
        for box in boxes.values():
            assert area.x1 < box.x0
            assert box.x1 <= axes.figure.bbox.x1
        assert [pair for pair in itertools.combinations(names, 2) if boxes[pair[0]].overlaps(boxes[pair[1]])] == []
        assert sorted(names, key=lambda name: boxes[name].y0) == sorted(ANCHORS, key=ANCHORS.get)
        ends = {name: axes.transData.transform((0.0, value))[1] for name, value in ANCHORS.items()}
        far = {name: abs((box.y0 + box.y1) / 2 - ends[name]) for name, box in boxes.items()}
        assert all(moved < 3 * boxes[name].height for name, moved in far.items())
        assert far["random"] < 2.0  # pixels: nothing is near, so it is not moved


def test_of_four_lines_no_two_share_a_dash_style(drawn):
    (axes,) = drawn([Panel("ratings", [line_of([0, 10**6])], dict(list(ANCHORS.items())[:4]))], log_x=False)
    levels = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len({str(line._dash_pattern) for line in levels}) == len(levels) == 4


def test_a_panel_without_horizontal_lines_has_no_names_and_one_without_lines_no_legend(drawn):
    (bare,) = drawn([Panel("ratings", [line_of([0, 10])], {})], log_x=False)
    assert list(bare.texts) == []
    (levels,) = drawn([Panel("ratings", [], ANCHORS)], log_x=False)
    assert levels.get_legend() is None


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ([10.0, 50.0], [10.0, 50.0]),
        ([50.0, 50.0], [45.0, 55.0]),
        ([52.0, 48.0], [55.0, 45.0]),  # in the order of those wanted
        ([50.0, 50.0, 62.0], [44.0, 54.0, 64.0]),  # 40, 50, 60 would miss by 10, 0, 2: all are moved by 4
        ([0.0, 1.0], [0.0, 10.0]),
        ([99.0, 100.0], [90.0, 100.0]),
        ([], []),
    ],
)
def test_places_are_moved_apart_as_little_as_possible_by_hand(wanted, expected):
    np.testing.assert_allclose(panels.spread(wanted, 10.0, 0.0, 100.0), expected, atol=1e-9)


def test_places_share_the_room_if_there_is_too_little():
    np.testing.assert_allclose(panels.spread([7.0] * 5, 10.0, 0.0, 20.0), [0.0, 5.0, 10.0, 15.0, 20.0])


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (20, "20"),
        (999, "999"),
        (1000, "1.0 k"),
        (12_500, "12.5 k"),
        (500_000, "500 k"),
        (999_999.9999, "1.0 M"),
        (1e6, "1.0 M"),
        (1_250_000, "1.25 M"),
        (2e7, "20 M"),
        (3e9, "3.0 G"),
        (-5e5, "−500 k"),
        (0.25, "0.25"),
    ],
)
def test_counts_have_one_form(count, text):
    assert ticks.count_text(count) == text


def test_steps_are_written_alike_in_ratings_and_in_learning_curves(drawn, tmp_path):
    (ratings,) = drawn([Panel("ratings", [line_of([0, 1_200_000])], {})], log_x=False)
    assert {"500 k", "1.0 M"} <= set(labels_of(ratings)) or {"400 k", "1.0 M"} <= set(labels_of(ratings))
    run = write_run(tmp_path / "run", lambda seed, update: 0.5, seeds=[0], updates=[2, 12_000])  # 100 steps each
    figure = learning_curves.curves_figure(make_curves([read_run(run)], "mean_return"), "mean_return")
    FigureCanvasAgg(figure).draw()
    assert labels_of(figure.axes[0]) == labels_of(ratings)


def test_a_logarithmic_axis_has_the_same_form_also_between_powers_of_ten(drawn):
    (wide,) = drawn([Panel("searches", [line_of([16, 64, 100_000])], {})])
    assert {"100", "1.0 k", "10 k", "100 k"} <= set(labels_of(wide))
    (narrow,) = drawn([Panel("searches", [line_of([1500, 6000])], {})])
    minor = [label.get_text() for label in narrow.get_xticklabels(minor=True) if label.get_text()]
    assert {"2.0 k", "3.0 k"} <= set(minor)
