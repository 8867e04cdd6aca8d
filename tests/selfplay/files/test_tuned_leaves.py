"""Leaves that were found while a pipeline ran: which hold, and which are refused."""

import pytest
from support.pipelines import small_config

from stoix_like.config.checks.access import get_leaf, replace_leaves
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.selfplay.files.folders import Layout
from stoix_like.selfplay.files.tuned_leaves import (
    RESULT,
    TuningResult,
    read_result,
    with_leaves,
    with_tuned_leaves,
    write_result,
)


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "tic_tac_toe_2p")


def result(rate):
    return TuningResult({"actor_lr": rate}, {"actor_lr": 0.01}, None, 0.0)


def found(layout, *results):
    """Writes them after iterations 20, 40 …"""
    for index, one in enumerate(results):
        path = layout.plateau(20 * (index + 1))
        path.mkdir(parents=True)
        write_result(layout, 20 * (index + 1), one)


def test_the_newest_that_has_leaves_holds_unless_the_configuration_has_another_value(layout, tmp_path):
    config = small_config(tmp_path, actor_lr=0.01)
    assert with_tuned_leaves(config, layout) == config
    nothing, failed = TuningResult({}, {}, None, 0.0), TuningResult({}, {}, "no memory", 0.0)
    found(layout, result(0.002), result(0.004), nothing, failed)
    assert read_result(layout, 80) == failed
    assert read_result(layout, 60) == nothing
    assert with_tuned_leaves(config, layout) == replace_leaves(config, {"actor_lr": 0.004})
    other = small_config(tmp_path, actor_lr=0.03)
    assert with_tuned_leaves(other, layout) == other


def test_each_leaf_holds_by_itself(layout, tmp_path):
    found(layout, TuningResult({"actor_lr": 0.002, "tau": 0.5}, {"actor_lr": 0.01, "tau": 0.005}, None, 0.0))
    config = small_config(tmp_path, actor_lr=0.03)
    assert with_tuned_leaves(config, layout) == replace_leaves(config, {"tau": 0.5})


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", '{"leaves": {}}', "null", "[" * 100_000),
        '{"leaves": 5, "configured": {}, "error": null, "time": 0}',
        '{"leaves": {"actor_lr": 0.1}, "configured": [], "error": null, "time": 0}',
    ],
)
def test_a_damaged_result_is_one_line(layout, tmp_path, text):
    found(layout, result(0.002))
    (layout.plateau(20) / RESULT).write_text(text)
    with pytest.raises(CheckpointError, match="cannot be read") as error:
        with_tuned_leaves(small_config(tmp_path), layout)
    assert "remove it" in error.value.hint


def test_leaves_of_a_later_version_are_no_crash(layout, tmp_path):
    found(layout, TuningResult({"momentum": 0.9}, {"momentum": 0.5}, None, 0.0))
    with pytest.raises(CheckpointError, match="do not fit"):
        with_tuned_leaves(small_config(tmp_path), layout)


def test_only_what_may_change_while_a_pipeline_runs_can_be_set(tmp_path):
    config = small_config(tmp_path)
    changed = with_leaves(config, {"actor_lr": 0.5, "weight_decay": 1, "temperature_plies": 3})
    assert (get_leaf(changed, "weight_decay"), get_leaf(changed, "temperature_plies")) == (1.0, 3)
    wrong = {"hidden_dim": 16, "save_dir": "x", "actor_rate": 1.0, "critic_lr": -1.0, "tau": "much"}
    with pytest.raises(ConfigError) as error:
        with_leaves(config, wrong)
    assert len(error.value.problems) == len(wrong)
    assert all(any(name in problem for problem in error.value.problems) for name in wrong)
