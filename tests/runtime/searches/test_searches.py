"""Searches at equal budgets: that costs are counted, levels are paired, and the tables say what was played."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from PIL import Image
from support.asserts import assert_same_bits
from support.exports import untrained_run
from support.marks import full

import stoix_like as sl
from stoix_like.algorithms import searching
from stoix_like.commands.entry import exit_code
from stoix_like.commands.runs.compare_search import main
from stoix_like.config.sections.runs import SPOSectionConfig
from stoix_like.envs.registry import ENVIRONMENTS
from stoix_like.evaluation import episodes
from stoix_like.evaluation.levels import LevelSet
from stoix_like.runtime.console.reporter import SILENT
from stoix_like.runtime.evaluators.scores import Evaluator, Levels, make_levels
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.searches import compare as compare_search
from stoix_like.runtime.searches import methods as compare_methods
from stoix_like.runtime.searches import tables
from stoix_like.runtime.searches.methods import RunOnLevels
from stoix_like.runtime.searches.settings import METHODS, ComparisonSettings
from stoix_like.types import ActionSpec, role_key

ITEMS = 6  # the horizon
SMALL = {"task_id": "Knapsack-v1", "kwargs": {"num_items": ITEMS, "total_budget": 1.5}}
SMALL |= {"num_envs": 4, "rollout_length": 2, "num_minibatches": 1, "hidden_dim": 8}
PROBE = SMALL | {"task_id": "probe/action_observation_reward", "kwargs": {}}
PROBE_LEVELS = "actionobservationreward"
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return saved_run.load_run(str(untrained_run(tmp_path_factory.mktemp("runs") / "a", **SMALL)))


@pytest.fixture(scope="module")
def levels(saved):
    return make_levels(saved.env, "knapsack-6", 0)


def _play(saved, levels, *methods, budgets=(4,), **settings):
    """{(method, budget): what was played}."""
    run = RunOnLevels(saved, levels)
    players = compare_methods.play_methods(run, ComparisonSettings(methods, budgets, **settings))
    return {(row.method, row.budget): row for player in players for row in player(saved.params, KEY)}


@pytest.fixture(scope="module")
def greedy(saved, levels):
    return _play(saved, levels, "greedy")["greedy", 0]


@pytest.fixture
def probe_run(inside):
    """Trains nothing: (name, leaves) -> a run of the probe in the test's own folder."""
    return lambda name="a", **leaves: untrained_run(Path(name), **PROBE | leaves)


def test_best_of_is_the_best_of_episodes_evaluated_one_by_one(saved, levels):
    rows = _play(saved, levels, "sampled", "best_of", budgets=(2, 5), num_envs=3)
    policy = saved.learner.network_policy
    evaluate = functools.partial(episodes.evaluate_levels, saved.env, policy, num_envs=3, deterministic=False)
    results = [jax.jit(evaluate)(saved.params, levels.frozen.keys, jax.random.fold_in(KEY, k)) for k in range(5)]
    returns, lengths = (np.stack([getattr(one, f"episode_{name}") for one in results]) for name in ("return", "length"))
    assert len(np.unique(returns)) > 6
    assert len(np.unique(lengths)) > 1
    for budget in (2, 5):
        played = rows["best_of", budget]
        np.testing.assert_array_equal(played.episodes.returns, returns[:budget].max(axis=0))
        np.testing.assert_array_equal(played.episodes.lengths, lengths[returns[:budget].argmax(axis=0), np.arange(6)])
        np.testing.assert_array_equal(played.model_steps, lengths[:budget].sum(axis=0))
    np.testing.assert_array_equal(rows["sampled", 0].episodes.returns, returns[0])
    assert rows["sampled", 0].model_steps_per_decision == 0.0


def test_greedy_thinks_nothing_and_one_greedy_particle_to_the_end_plays_it_and_costs_every_step_left(
    saved, levels, greedy
):
    evaluate = functools.partial(episodes.evaluate_levels, saved.env, saved.learner.policy, num_envs=6)
    results = jax.jit(evaluate)(saved.params, levels.frozen.keys, KEY)
    np.testing.assert_array_equal(greedy.episodes.returns, results.episode_return)
    assert (greedy.model_steps_per_decision, greedy.budget, greedy.particles) == (0.0, 0, 0)
    filled_up = _play(saved, levels, "greedy", num_envs=4)["greedy", 0]  # six levels as two rounds of four
    np.testing.assert_array_equal(filled_up.episodes.returns, greedy.episodes.returns)
    played = _play(saved, levels, "distinct", budgets=(2, ITEMS))
    for budget in (2, ITEMS):  # below the horizon there is still one particle
        row = played["distinct", budget]
        np.testing.assert_array_equal(row.episodes.returns, greedy.episodes.returns)
        np.testing.assert_array_equal(row.model_steps, greedy.episodes.lengths * (greedy.episodes.lengths + 1) // 2)
        assert row.particles == 1


def _search(env, network, **changes):
    """(the arguments of `searching`'s policies, the counting policy)."""
    config = searching.search_config(env, SPOSectionConfig(), 1.0, 0.95)._replace(**changes)
    arguments = searching.search_model(env, network), config, lambda params: params, lambda _: 0.01
    return arguments, searching.counting_policy(env, *arguments)


def _scores(env, policy, params, keys, num_envs):
    levels = Levels(len(keys), LevelSet("probes-24", "probes", keys))
    return Evaluator(env, policy, levels, num_envs)(params, KEY, 0)


def _env_and_network(task, **kwargs):
    env, keys = sl.make_env(task, kwargs=kwargs), jax.random.split(KEY, 24)
    network = sl.make_network(env, sl.ppo_config(hidden_dim=8, observation_adapter="dense"))
    _, timestep = jax.vmap(env.reset)(keys)
    return env, network, jax.jit(network.init)(KEY, timestep.observation), keys


@pytest.mark.parametrize("depth", [full(4), "full"])
def test_model_steps_are_those_of_unfinished_particles_at_every_decision(depth):
    """Episodes of 1 to 8 steps, whatever is done: what is left of them is all that a particle can walk."""
    env, network, params, keys = _env_and_network("probe/tagged_levels")
    _, policy = _search(env, network, num_particles=3, search_depth=depth)
    scores = _scores(env, policy, params, keys, 24)
    lengths = scores.results["episode_length"]
    assert set(lengths[0].tolist()) >= {2, 5, 8}
    deepest = 8 if depth == "full" else depth
    expected = [3 * sum(min(deepest, left) for left in range(1, length + 1)) for length in lengths[0]]
    np.testing.assert_array_equal(scores.memory.model_steps, [expected])
    assert scores.memory.plan is None


@pytest.mark.full
def test_counting_changes_no_decision():
    """A policy without a counter makes the same decisions, from the same keys."""
    env, network, params, keys = _env_and_network(SMALL["task_id"], **SMALL["kwargs"])
    changes = {"num_particles": 2, "search_depth": "full", "root": "gumbel_topk", "dirichlet_fraction": 0.3}
    arguments, counting = _search(env, network, **changes)
    counted, expected = (_scores(env, p, params, keys, 8) for p in (counting, searching.search_policy(*arguments)))
    assert_same_bits(counted.results, expected.results)
    lengths = counted.results["episode_length"]
    assert len(set(lengths[0].tolist())) > 2
    assert (counted.memory.model_steps > lengths).any()


def test_particles_are_what_a_budget_pays_for(saved):
    at = functools.partial(compare_methods.num_particles, saved.env)
    assert [at("smc", budget) for budget in (1, 16, 64, 1024)] == [1, 4, 16, 256]
    # 6 steps at the first decision, 1 at the last: 3.5 in the mean.
    assert [at("plan", budget) for budget in (1, 6, 7, 10, 11, 64)] == [1, 1, 2, 2, 3, 18]


@pytest.mark.parametrize(
    ("particles", "asked", "expected"),
    [(1, None, 128), (1, 200, 200), (1, 900, 512), (256, None, 64), (256, 32, 32), (99_999, None, 1)],
)
def test_fewer_levels_are_played_at_a_time_where_particles_are_many(particles, asked, expected):
    assert compare_methods.envs_at_a_time(Levels(512), ComparisonSettings(num_envs=asked), particles) == expected


@pytest.mark.parametrize(
    ("changes", "excluded"),
    [
        ({}, {}),
        ({"time_limit": None}, {"distinct": "states no time limit", "plan": "states no time limit"}),
        ({"deterministic": False}, {"best_of": "stochastic", "plan": "stochastic"}),
        ({"deterministic": False, "rekey": None}, dict.fromkeys(("smc", "distinct", "best_of", "plan"), "stochastic")),
        ({"action_spec": ActionSpec(4, 2)}, {"distinct": "several factors", "plan": "several factors"}),
    ],
)
def test_what_cannot_be_played_is_left_out_with_the_reason(saved, changes, excluded):
    found = compare_methods.excluded_methods(saved.env._replace(**changes), METHODS)
    assert found.keys() == excluded.keys()
    assert all(text in found[method] for method, text in excluded.items())
    described = compare_methods.describe_searches(saved.env._replace(**changes), ComparisonSettings())
    assert described.keys() == {"smc", "distinct", "plan"} - excluded.keys()


def test_the_command_prints_and_writes_what_it_compared(probe_run, capfd):
    probe_run("runs/a")
    flags = ["--level-set", f"{PROBE_LEVELS}-8", "--methods", "smc,sampled", "--budgets", "8,2,8"]
    flags += ["--json", "out.json", "--plot", "out.png"]
    assert exit_code(main, ["a", *flags]) == 0
    captured = capfd.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    result = json.loads(Path("out.json").read_text())
    assert result["over_runs"] == []
    (block,) = result["runs"]
    order = [("greedy", 0), ("sampled", 0), ("smc", 2), ("smc", 8)]
    assert [(row["method"], row["budget"]) for row in block["rows"]] == order
    head = lines.index(tables.HEAD)
    assert lines[head + 1 : head + 5] == [tables.row_text(row) for row in block["rows"]]
    assert lines[0].startswith("runs/a, seed 0: PPO on probe/action_observation_reward, checkpoint best of update 1")
    assert [lines[1]] == [f"{name}: {text}" for name, text in block["searches"].items()]
    assert "temperature 0.005" in lines[1]
    assert lines[-1] == "figure out.png"
    with Image.open("out.png") as picture:
        assert picture.format == "PNG"


@pytest.mark.full
def test_a_result_is_plain_json_and_follows_the_seed(probe_run):
    """One-step episodes: the best of many samples gets the larger reward, one sample does not always."""
    settings = ComparisonSettings(("sampled", "best_of"), (32,))
    compare = functools.partial(compare_search.compare, [probe_run()], "best", f"{PROBE_LEVELS}-64")
    first, other = (compare(settings._replace(seed=seed)) for seed in (0, 1))
    assert json.loads(json.dumps(first)) == first
    _, sampled, best = first["runs"][0]["rows"]
    assert sampled["mean"] < best["mean"]
    assert best["mean"] == best["high"] == 1.0
    assert 0.9 < best["low"] < 1.0  # nothing failed in 64 levels, which is no proof that nothing will
    assert _means(first) != _means(other)


@pytest.mark.full
def test_what_a_search_sees_is_noted_where_one_is_played(probe_run, monkeypatch):
    env = sl.make_env(PROBE["task_id"])._replace(hidden_state="the sign")
    monkeypatch.setitem(ENVIRONMENTS, PROBE["task_id"], lambda: env)
    run = probe_run()
    for methods, is_noted in ((("sampled",), False), (("sampled", "best_of"), True), (("smc",), True)):
        settings = ComparisonSettings(methods, (2,), temperature=0.005)
        (seed,) = compare_search.compare([run], "best", f"{PROBE_LEVELS}-8", settings)["runs"]
        assert seed["notes"] == [searching.hidden_note(env)] * is_noted


def _means(result):
    return [row["mean"] for block in result["runs"] for row in block["rows"]]


@pytest.mark.full
def test_the_key_of_a_comparison_is_that_of_evaluations_and_the_default_levels_are_256(probe_run):
    settings = ComparisonSettings(("sampled",), seed=5)
    result = compare_search.compare([probe_run()], "best", f"{PROBE_LEVELS}-32", settings)
    saved = saved_run.load_run("a")
    level_set = sl.level_set(f"{PROBE_LEVELS}-32", PROBE["task_id"])
    key = jax.random.fold_in(role_key(jax.random.key(5), "evaluation"), 0)
    play = functools.partial(episodes.evaluate_levels, saved.env, saved.learner.network_policy, num_envs=32)
    results = play(saved.params, level_set.keys, key, deterministic=False)
    assert result["runs"][0]["rows"][1]["mean"] == np.asarray(results.episode_return, np.float64).mean()
    (block,) = compare_search.compare(["a"], settings=ComparisonSettings(("greedy",)))["runs"]
    assert block["levels"] == f"{PROBE_LEVELS}-256"
    expected = make_levels(saved.env, f"{PROBE_LEVELS}-256", 0)
    assert block["level_hash"] == expected.level_hash  # as `evaluate.py` prints it
    assert [row["method"] for row in block["rows"]] == ["greedy"]


@pytest.mark.full
def test_levels_at_a_time_are_told_only_where_they_are_not_what_was_asked(probe_run, monkeypatch):
    monkeypatch.setattr(compare_methods, "MAX_PARTICLES", 8)
    compare = functools.partial(compare_search.compare, [probe_run()], "best", f"{PROBE_LEVELS}-8")
    for num_envs, notes in ((None, []), (8, ["plan at 4: 2 levels at a time, to limit the number of particles"])):
        told, settings = [], ComparisonSettings(("plan",), (1, 4), num_envs=num_envs)
        (block,) = compare(settings, SILENT._replace(note=told.append))["runs"]
        assert block["notes"] == told == notes
        assert [row["num_envs"] for row in block["rows"]] == [8, 8, 2]
