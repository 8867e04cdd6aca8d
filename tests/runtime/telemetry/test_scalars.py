"""Reports as dashboards take them, by hand."""

import math

from stoix_like.config.sections.runs import ppo_config
from stoix_like.runtime.telemetry import Clock, Report
from stoix_like.runtime.telemetry.scalars import flat_config, numbers

CLOCK, TEXTS = Clock(2, 64, 1.5), {"trainer/note": "text"}


def test_one_seed_has_plain_keys_and_texts_and_what_is_not_finite_are_left_out():
    report = Report(
        CLOCK, {"actor/mean_return": [0.5], "actor/max_return": [math.nan], "trainer/loss": [2]}, TEXTS, [3]
    )
    assert numbers(report) == {"actor/mean_return": 0.5, "trainer/loss": 2.0}
    event = Report(CLOCK, {"misc/compile_seconds": [7.0]}, TEXTS)  # of all seeds
    assert numbers(event) == {"misc/compile_seconds": 7.0}


def test_several_seeds_have_one_value_over_all_and_their_own():
    values = {"mean_return": [1.0, 4.0], "max_return": [5.0, 3.0], "min_return": [-1.0, -3.0]}
    values |= {"steps_per_second": [100.0, 50.0]}
    found = numbers(Report(CLOCK, {f"actor/{name}": each for name, each in values.items()}, seeds=[0, 1]))
    over_all = {"mean_return": 2.5, "max_return": 5.0, "min_return": -3.0, "steps_per_second": 150.0}
    assert {key: value for key, value in found.items() if "seed_" not in key} == {
        f"actor/{name}": value for name, value in over_all.items()
    }
    assert (found["actor/mean_return/seed_0"], found["actor/mean_return/seed_1"]) == (1.0, 4.0)
    found = numbers(Report(CLOCK, {"actor/mean_return": [math.nan, 4.0]}, seeds=[0, 1]))
    assert found == {"actor/mean_return": 4.0, "actor/mean_return/seed_1": 4.0}


def test_the_configuration_is_flat():
    flat = flat_config(ppo_config(num_envs=8, kwargs={"a": [1]}))
    assert {"num_envs": "8", "kwargs": '{"a": [1]}', "level_set": "None", "seed": "0"}.items() <= flat.items()
    assert all(isinstance(value, str) for value in flat.values())
