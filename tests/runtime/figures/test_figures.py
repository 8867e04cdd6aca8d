"""Curves, tables, figures and animations from hand-made run folders."""

import os

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from support.asserts import refused
from support.hand_made import write_run
from support.marks import full

from stoix_like.errors import CheckpointError, ConfigError, RunError, UnsupportedEnvironmentError
from stoix_like.evaluation import statistics
from stoix_like.runtime.figures import learning_curves, style
from stoix_like.runtime.figures.gif import save_gif
from stoix_like.runtime.results import curves
from stoix_like.runtime.results.series import read_run
from stoix_like.types import ActionSpec, Environment

METRICS = {
    "evaluator/mean_return": lambda score: score,
    "actor/mean_return": lambda score: score - 0.1,  # of training episodes
    "evaluator/solve_rate": lambda score: None,
}


def _write_run(path, seeds, score, *, updates=range(20, 201, 20), **options):
    return write_run(path, score, seeds=seeds, updates=updates, metrics=METRICS, **options)


def _linear(seed, update):
    return update / 200 + seed / 10


def _curves(paths, metric="mean_return"):
    return curves.make_curves([read_run(path) for path in paths], metric)


@pytest.mark.parametrize(
    ("num_seeds", "final", "lines", "bands"),
    [(1, 1.0, 2, 0), (3, 1.1, 5, 1), (6, 1.25, 2, 1)],  # 6 seeds: 1.0 ... 1.5 less one at each end
)
def test_the_final_iqm_by_hand_in_figure_and_table_and_few_seeds_drawn_singly(tmp_path, num_seeds, final, lines, bands):
    path = _write_run(tmp_path / "run", range(num_seeds), _linear)
    (quoted,), (beside,), missing = _curves([path])
    assert (quoted.name, quoted.key, len(quoted.seeds), missing) == ("PPO", "evaluator/mean_return", num_seeds, [])
    np.testing.assert_array_equal(quoted.timesteps, 100.0 * np.arange(20, 201, 20))
    assert quoted.iqm.point[-1] == pytest.approx(final, rel=1e-12)
    assert beside.key == "actor/mean_return"
    assert beside.iqm.point[-1] == pytest.approx(final - 0.1, rel=1e-12)
    assert np.isnan(quoted.iqm.low).all() == (num_seeds == 1)
    (panel,) = _artists([path])
    assert (len(panel.lines), len(panel.collections)) == (lines, bands)  # evaluation and training, and thin ones
    legend = [text.get_text() for text in panel.get_legend().get_texts()]
    assert legend == [f"PPO (n={num_seeds})", "training episodes"]

    summary = learning_curves.plot_runs([path], tmp_path / "out" / "curves.png")
    with Image.open(summary.path) as image:
        assert image.size == (960, 630)  # 6.4 x 4.2 inches at 150 dpi
        assert len(image.convert("RGB").getcolors(100_000)) > 20  # something is drawn
    assert [entry.name for entry in summary.path.parent.iterdir()] == ["curves.png"]
    head, line, *notes = str(summary).splitlines()
    assert " ".join(head.split()) == "experiment task metric n final IQM 95 % interval best IQM at step"
    # Of three seeds all alike come up with probability 1/27 > 2.5 %: the interval is the whole range.
    _, low, high = statistics.bootstrap_interval(1.0 + np.arange(num_seeds) / 10)
    interval = {1: "–", 3: "[1, 1.2]", 6: f"[{low:.3g}, {high:.3g}]"}[num_seeds]
    shown = f"{final:.3g}"
    expected = ["PPO", "Maze-v0", "evaluator/mean_return", str(num_seeds), shown, *interval.split(), shown, "20,000"]
    assert line.split() == expected
    assert len(notes) == (num_seeds < 4)


def test_one_run_of_three_seeds_is_three_runs_of_one(tmp_path):
    together = _write_run(tmp_path / "together", range(3), _linear, config={"training_core": {"num_seeds": 3}})
    apart = [
        _write_run(tmp_path / f"s{seed}", [seed], _linear, config={"architecture": {"seed": seed}}) for seed in range(3)
    ]
    (one,), _, _ = _curves([together])
    (other,), _, _ = _curves(apart)
    for left, right in zip((one.timesteps, *one.iqm), (other.timesteps, *other.iqm), strict=True):
        np.testing.assert_array_equal(left, right)


def test_curves_are_aligned_by_interpolation_on_the_range_they_share(tmp_path):
    one = _write_run(tmp_path / "a", [0], lambda seed, update: float(update), updates=[10, 20, 40])
    other = _write_run(tmp_path / "b", [1], lambda seed, update: float(update), updates=[20, 30, 50])
    (curve,), _, _ = _curves([one, other])
    np.testing.assert_array_equal(curve.timesteps, np.array([20, 30, 40]) * 100.0)
    np.testing.assert_allclose(curve.iqm.point, [20.0, 30.0, 40.0], rtol=1e-12)  # 30 and 40 are interpolated once each
    late = _write_run(tmp_path / "c", [1], _linear, updates=[50])
    summary = learning_curves.plot_runs([one, late], tmp_path / "x.png")
    assert "no common steps yet" in summary.table


def test_where_a_run_began_and_what_it_is_scored_on_are_differences(tmp_path):
    """Seeds 0 and 1 of what would else be one experiment; how often it is saved and scored is none."""
    paths = []
    for seed, (load_path, level_set) in enumerate([(None, None), ("runs/a", None), (None, "maze-8")]):
        saving = {"load_path": load_path, "save_interval": 5 + seed}
        config = {"checkpointing": saving, "evaluation": {"level_set": level_set}}
        paths.append(_write_run(tmp_path / str(seed), [seed], _linear, config=config))
    assert [len(curve.seeds) for curve in _curves(paths)[0]] == [1, 1, 1]


def test_a_metric_that_one_experiment_lacks_is_said(tmp_path):
    ours = _write_run(tmp_path / "a", [0], _linear)
    other = _write_run(tmp_path / "b", [0], _linear, updates=[20], algorithm="SPO")
    with (other / "metrics.jsonl").open("a") as file:
        file.write('{"category": "TRAINER", "update": 20, "timesteps": 5, "seed": 0, "trainer/temperature": 0.5}\n')
        file.write('{"category": "TRAINER", "upd')  # being written right now
    quoted, _, missing = _curves([ours, other], "temperature")
    assert [curve.key for curve in quoted] == ["trainer/temperature"]
    assert missing == ["PPO · Maze-v0"]
    summary = learning_curves.plot_runs([ours, other], tmp_path / "x.svg", "temperature")
    assert "PPO · Maze-v0: no values of temperature yet" in summary.table


def _artists(paths, metric="mean_return"):
    return learning_curves.curves_figure(_curves(paths, metric), metric).axes


def test_training_episodes_of_a_run_that_is_not_evaluated_yet_do_not_look_like_evaluations(tmp_path):
    early = write_run(tmp_path / "early", _linear, algorithm="SPO", metrics=("actor/mean_return",))
    paths = [_write_run(tmp_path / "run", [0], _linear), early]
    (panel,) = _artists(paths)
    styles = {line.get_label(): line.get_linestyle() for line in panel.lines if not line.get_label().startswith("_")}
    assert styles == {"PPO (n=1)": "-", "SPO (n=1), training episodes": "--"}
    note = "SPO: not evaluated yet; actor/mean_return is of training episodes"
    assert note in learning_curves.plot_runs(paths, tmp_path / "x.png").table
    assert "not evaluated" not in learning_curves.plot_runs(paths, tmp_path / "x.png", "actor/mean_return").table


def test_each_task_has_a_panel_and_an_algorithm_one_colour(tmp_path):
    paths = [
        _write_run(tmp_path / f"{algorithm}-{task}", [0], _linear, algorithm=algorithm, task=task)
        for task in ("Maze-v0", "Snake-v1")
        for algorithm in ("PPO", "SPO")
    ]
    panels = _artists(paths)
    assert [panel.get_title(loc="left") for panel in panels] == ["Maze-v0", "Snake-v1"]
    colours = [{line.get_label(): line.get_color() for line in panel.lines} for panel in panels]
    assert colours[0]["PPO (n=1)"] == colours[1]["PPO (n=1)"] != colours[0]["SPO (n=1)"]


def test_the_legend_of_several_curves_covers_none_of_them(tmp_path):
    paths = [_write_run(tmp_path / name, [0], _linear, algorithm=name) for name in ("PPO", "SPO")]
    figure = learning_curves.curves_figure(_curves(paths), "mean_return")
    FigureCanvasAgg(figure).draw()
    (panel,) = figure.axes
    legend, curves_area = panel.get_legend().get_window_extent(), panel.get_window_extent()
    assert legend.y1 < curves_area.y0
    assert legend.y0 >= 0.0  # and it is not cut off


@pytest.mark.parametrize("page", [full(False), True])
@pytest.mark.parametrize(("count", "length"), [(6, 34), (3, 120), (3, 200)])
def test_runs_with_long_names_leave_room_for_the_curves(tmp_path, count, length, page):
    names = [f"ppo-BinPack-v2-20260101-12000{seed}-s{seed}".ljust(length, "x") for seed in range(count)]
    config = lambda name: {"checkpointing": {"load_path": f"runs/{name}"}, "architecture": {"seed": 0}}
    paths = [_write_run(tmp_path / name, [0], _linear, config=config(name)) for name in names]
    figure = learning_curves.curves_figure(_curves(paths), "mean_return")
    if page:
        style.png_bytes(figure)
    else:
        style.save_figure(figure, tmp_path / "curves.png")
    FigureCanvasAgg(figure).draw()
    (panel,) = figure.axes
    legend, area, whole = panel.get_legend().get_window_extent(), panel.get_window_extent(), figure.bbox
    assert len(panel.get_legend().get_texts()) == count + 1
    assert all(text.get_fontsize() >= 5.0 for text in panel.get_legend().get_texts())
    assert area.width > 0.6 * whole.width
    assert area.height > 0.3 * whole.height
    assert whole.x0 <= legend.x0 < legend.x1 <= whole.x1
    assert whole.y0 <= legend.y0 < legend.y1 < area.y0


def test_a_single_long_entry_stands_below_the_axes_and_a_short_one_inside():
    for label, is_below in (("x" * 60, True), ("x" * 8, False)):
        figure, (panel,) = style.make_panels(1)
        panel.plot([0.0, 1.0], label=label)
        style.add_legend(panel)
        FigureCanvasAgg(figure).draw()
        legend = panel.get_legend().get_window_extent()
        assert figure.bbox.x0 <= legend.x0 < legend.x1 <= figure.bbox.x1
        assert (legend.y1 < panel.get_window_extent().y0) == is_below


def test_refusals_name_the_cause_and_what_to_do_and_leave_the_old_figure(tmp_path):
    run, out = _write_run(tmp_path / "maze-1", [0], _linear, config={}), tmp_path / "curves.png"
    with pytest.raises(CheckpointError, match=r"no run at .*maze-2; did you mean 'maze-1'\?") as caught:
        learning_curves.plot_runs([tmp_path / "maze-2"], out)
    assert caught.value.hint == f"existing runs: {run}"
    for paths, to, metric, what, hint in (
        ([run], out, "mean_retrun", r"^unknown metric 'mean_retrun'; did you mean 'mean_return'\?", "mean_return"),
        ([run], out, "solve_rate", "unknown metric 'solve_rate'", ""),  # only nulls so far
        ([run], tmp_path / "a.doc", "mean_return", r"unknown figure format '\.doc'", ""),
        ([], out, "mean_return", "no run to plot", ""),
    ):
        with pytest.raises(ConfigError, match=what) as caught:
            learning_curves.plot_runs(paths, to, metric)
        assert hint in caught.value.hint
    assert not out.exists()
    started = '{"category": "MISC", "update": 0, "misc/algorithm": "PPO", "misc/task_id": "Maze-v0"}\n'
    for name, text, what in (
        ("empty", "", "has no metrics yet"),
        ("started", started, "has no metrics yet"),
        ("bare", None, "no metrics at"),
    ):
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "metrics.jsonl").write_text(text)
        with pytest.raises(RunError, match=what) as caught:
            learning_curves.plot_runs([tmp_path / name], tmp_path / "x.png")
        assert text is None or "first report" in caught.value.hint
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(RunError, match="cannot be written"):
        learning_curves.plot_runs([run], target / "curves.png")
    assert target.read_text() == "old"


def _environment(animate):
    return Environment(
        reset=lambda key: None, step=lambda state, action: None, action_spec=ActionSpec(2), animate=animate
    )


def _draw_gif(states, path):
    frames = [Image.new("L", (8, 8), color=int(state)) for state in states]
    frames[0].save(path, save_all=True, append_images=frames[1:])


def test_a_gif_is_written_whole_and_a_reader_of_the_old_one_never_sees_half_of_it(tmp_path):
    backend = matplotlib.get_backend()
    path = save_gif(_environment(_draw_gif), [0, 100, 200], tmp_path / "episode.gif")
    with Image.open(path) as image:
        assert (image.format, image.n_frames) == ("GIF", 3)
    assert os.listdir(tmp_path) == ["episode.gif"]
    assert matplotlib.get_backend() == backend
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        save_gif(_environment(_draw_gif), [0], path)
        assert reader.read() == b"old"  # renamed over, not written into
    assert path.read_bytes().startswith(b"GIF")


def test_an_animation_that_fails_or_cannot_be_drawn_leaves_the_old_gif(tmp_path):
    def fail(states, path):
        _draw_gif(states, path)
        raise OSError(28, "No space left on device")

    target = tmp_path / "episode.gif"
    target.write_bytes(b"old")
    with refused(RunError, f"{target} cannot be written: No space left on device"):
        save_gif(_environment(fail), [0], target)
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["episode.gif"]
    with refused(UnsupportedEnvironmentError, "custom cannot be drawn: it has no `animate`"):
        save_gif(_environment(None), [0], tmp_path / "episode.gif")
    with pytest.raises(RunError, match="at least one state"):
        save_gif(_environment(_draw_gif), [], tmp_path / "e")


def test_a_running_run_can_be_read_while_it_is_written(tmp_path):
    path = _write_run(tmp_path / "run", [0], _linear)
    record = path / "metrics.jsonl"
    whole = record.read_bytes()
    line = whole.splitlines(keepends=True)[-1]
    for size in range(0, len(line) + 1, 7):  # a reader may see any part of a line
        record.write_bytes(whole + line[:size])
        assert read_run(path).seeds == {0}
