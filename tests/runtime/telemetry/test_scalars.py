"""Rows as dashboards take them, by hand."""

import math

import pytest

from stoix_like.config.sections import ppo_config
from stoix_like.runtime.telemetry.scalars import Report, flat_config, reports, step_of
from stoix_like.runtime.telemetry.sink import Row


def _row(seed, step=64, category="ACTOR", **values):
    return Row(category, step // 32, step, 1.5, seed, {f"{category.lower()}/{name}": v for name, v in values.items()})


def test_one_seed_has_plain_keys_and_two_steps_are_two_reports():
    rows = [_row(3, mean_return=0.5, max_return=math.nan), _row(3, category="TRAINER", loss=2, note="text")]
    (found,) = reports(rows)
    assert found == Report(64, {"actor/mean_return": 0.5, "trainer/loss": 2.0}, {"trainer/note": "text"})
    found = [(report.step, report.numbers) for report in reports([_row(0, a=1), _row(0, step=96, a=2)])]
    assert found == [(64, {"actor/a": 1.0}), (96, {"actor/a": 2.0})]


def test_several_seeds_have_one_value_over_all_and_their_own():
    rows = [
        _row(0, mean_return=1.0, max_return=5.0, min_return=-1.0, steps_per_second=100.0),
        _row(1, mean_return=4.0, max_return=3.0, min_return=-3.0, steps_per_second=50.0),
        _row(None, category="MISC", compile_seconds=7.0),
    ]
    ((step, numbers, _),) = reports(rows)
    over_all = {"mean_return": 2.5, "max_return": 5.0, "min_return": -3.0, "steps_per_second": 150.0}
    assert step == 64
    assert {key: value for key, value in numbers.items() if "seed_" not in key} == {
        **{f"actor/{name}": value for name, value in over_all.items()},
        "misc/compile_seconds": 7.0,
    }
    assert (numbers["actor/mean_return/seed_0"], numbers["actor/mean_return/seed_1"]) == (1.0, 4.0)
    assert "misc/compile_seconds/seed_None" not in numbers
    ((_, numbers, _),) = reports([_row(0, mean_return=math.nan), _row(1, mean_return=4.0)])
    assert numbers == {"actor/mean_return": 4.0, "actor/mean_return/seed_1": 4.0}


def test_the_step_is_the_first_name_that_is_there_and_the_configuration_flat():
    fields = {"update": 1, "global_step": 2, "step": 3, "policy_version": 4, "timesteps": 5}
    for name, expected in (("timesteps", 5), ("policy_version", 4), ("step", 3), ("global_step", 2), ("update", 1)):
        assert step_of(fields) == expected
        fields[name] = None
    with pytest.raises(ValueError, match="none of timesteps"):
        step_of(fields)
    flat = flat_config(ppo_config(num_envs=8, kwargs={"a": [1]}))
    assert {"num_envs": "8", "kwargs": '{"a": [1]}', "level_set": "None", "seed": "0"}.items() <= flat.items()
    assert all(isinstance(value, str) for value in flat.values())
