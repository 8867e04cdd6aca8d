"""Reports from hand-made metrics."""

import math

import numpy as np
import pytest
from support.telemetry import run_meta

from stoix_like.runtime.telemetry import Clock, metrics

CLOCK = Clock(update=12, timesteps=98_304, elapsed_seconds=8.125)


def _metrics():
    """Two seeds; the second finished no episode, so its extremes are where a reduction starts."""
    infinity = np.inf
    accumulated = {
        "trainer/policy_loss": [0.012, -0.5],
        "trainer/entropy": [0.88, math.nan],
        "actor/episodes_count": [4.0, 0.0],
        "actor/episode_return_sum": [3.0, 0.0],
        "actor/episode_return_max": [1.0, -infinity],
        "actor/episode_return_min": [0.25, infinity],
        "actor/episode_length_sum": [90.0, 0.0],
        "actor/episode_length_max": [40.0, -infinity],
        "actor/episode_length_min": [10.0, infinity],
        "actor/levels_reused_sum": [2.0, 0.0],
        "actor/utilisation_sum": [3.2, 0.0],
    }
    return {name: np.asarray(values, np.float32) for name, values in accumulated.items()}


def test_the_values_of_each_seed_and_one_trainer_and_one_actor_row_for_it():
    report = metrics.training_report(_metrics(), CLOCK, 32_768.0, seeds=[7, 8])
    rows = list(report.rows())
    assert [(row["category"], row["seed"]) for row in rows] == [(c, s) for s in (7, 8) for c in ("TRAINER", "ACTOR")]
    moment = {"update": 12, "timesteps": 98_304, "elapsed_seconds": 8.125}
    trainer, actor, *_ = rows
    of_seed = {"category": "TRAINER", **moment, "seed": 7}
    assert trainer == of_seed | {"trainer/policy_loss": 0.012, "trainer/entropy": 0.88}  # shortest decimals of float32
    hand = {"steps_per_second": 32_768.0, "mean_return": 0.75, "max_return": 1.0, "min_return": 0.25, "episodes": 4}
    hand |= {"episode_length_mean": 22.5, "episode_length_max": 40, "episode_length_min": 10}
    hand |= {"levels_reused": 2, "utilisation": 0.8}
    assert actor == of_seed | {"category": "ACTOR"} | {f"actor/{name}": value for name, value in hand.items()}
    assert isinstance(actor["actor/episodes"], int)
    alone = {name: values[:1] for name, values in _metrics().items()}
    assert list(metrics.training_report(alone, CLOCK, 32_768.0, [7]).rows()) == rows[:2]
    *_, trainer, actor = rows  # without a finished episode there is no value
    missing = {name for name, value in actor.items() if "/" in name and math.isnan(value)}
    expected = "mean_return max_return min_return episode_length_mean episode_length_max episode_length_min utilisation"
    assert missing == {f"actor/{name}" for name in expected.split()}
    assert (actor["actor/episodes"], actor["actor/levels_reused"]) == (0, 0)
    assert math.isnan(trainer["trainer/entropy"])


def test_foreign_names_and_shapes_and_nothing_are_refused():
    for given in ({"loss": np.zeros(1)}, {"trainer/loss": np.zeros(2)}):
        with pytest.raises(ValueError, match="expected trainer/, actor/ or misc/"):
            metrics.training_report(given, CLOCK, 1.0, seeds=[0])
    with pytest.raises(ValueError, match="at least one update"):
        metrics.reduce_metrics({}, num_updates=0)
    with pytest.raises(ValueError, match="at least one episode"):
        metrics.evaluation_values({"episode_return": [[]], "episode_length": [[]]}, "deterministic", 0.1)


def test_means_alone_are_divided_and_integers_stay_exact():
    names = ("episode_return_sum", "episodes_count", "episode_return_max", "episode_return_min")
    accumulated = {f"actor/{name}": np.array([3.0, 6.0]) for name in names}
    accumulated["trainer/entropy"] = np.array([3.0, 6.0], np.float32)
    reduced = metrics.reduce_metrics(accumulated, num_updates=3)
    np.testing.assert_array_equal(reduced.pop("trainer/entropy"), [1.0, 2.0])
    for values in reduced.values():
        np.testing.assert_array_equal(values, [3.0, 6.0])
    assert metrics.to_number(np.int32(2**31 - 1)) == 2**31 - 1
    assert metrics.to_number(np.float32(0.1)) == 0.1
    assert all(math.isnan(metrics.to_number(value)) for value in (np.inf, -np.inf, np.nan, 1e300))


@pytest.mark.parametrize(
    ("mode", "prefix"),
    [("deterministic", "evaluator"), ("sampled", "evaluator_sampled"), ("network", "evaluator_network")],
)
def test_evaluator_values(mode, prefix):
    results = {
        "episode_return": np.array([[1.0, 0.0, 1.0, 1.0], [2.0] * 4], np.float32),
        "episode_length": np.array([[10, 100, 20, 30], [1, 1, 1, 2]], np.int32),
        "solve_rate": np.array([[1, 0, 1, 1], [0, 0, 0, 0]], bool),
    }
    values = metrics.evaluation_values(results, mode, duration_seconds=0.25)
    hand = {"episodes": [4, 4], "mean_return": [0.75, 2.0], "max_return": [1.0, 2.0], "min_return": [0.0, 2.0]}
    hand |= {"episode_length_mean": [40.0, 1.25], "episode_length_max": [100, 2], "episode_length_min": [10, 1]}
    hand |= {"solve_rate": [0.75, 0.0], "duration_ms": [250.0, 250.0]}
    assert values == {f"{prefix}/{name}": value for name, value in hand.items()}
    assert all(isinstance(value, int) for value in values[f"{prefix}/episode_length_max"])
    assert {*metrics.EVALUATION_METRICS, "episodes", "duration_ms", "solve_rate"} == hand.keys()


def test_the_report_of_a_start_that_resumes_stands_at_its_update():
    meta = run_meta(seed=3, num_seeds=2)._replace(resumed_update=5)
    (row,) = metrics.start_report(meta, 1.5).rows()
    facts = {"task_id": "Maze-v0", "algorithm": "PPO", "device": "cpu", "seed": 3, "num_seeds": 2, "num_envs": 64}
    facts |= {"rollout_length": 16, "num_updates": 200, "version_stoix_like": "0.1.0", "version_jax": "0.10.2"}
    moment = {"category": "MISC", "update": 5, "timesteps": 5 * 64 * 16, "elapsed_seconds": 1.5, "seed": None}
    assert row == moment | {"misc/event": "resume"} | {f"misc/{name}": value for name, value in facts.items()}
