"""An SPO run from start to end in this process: rows, checkpoints with and without replay, continuing, evaluating."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from support.asserts import assert_same_bits, key_data
from support.marks import full
from support.scripted_runs import SMALL_PPO_RUN as PPO
from support.scripted_runs import SMALL_SPO_RUN as SPO
from support.scripted_runs import assert_same_run, command, cut_back, rows_of
from support.transcripts import rows

from stoix_like.algorithms import searching, spo
from stoix_like.config.checks.access import leaf_types
from stoix_like.config.sections.roles import Role, leaves_with
from stoix_like.config.sections.runs import SPOConfig, SPOSectionConfig, spo_config
from stoix_like.envs.probes import make_action_observation_reward, make_truncated_constant
from stoix_like.envs.registry import ENVIRONMENTS
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.evaluators.policies import SearchChoice, select_policy
from stoix_like.runtime.evaluators.scores import Evaluator, make_levels
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.build import make_env, make_network
from stoix_like.runtime.runs.checkpoint import CheckpointStore
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.searches.compare import compare
from stoix_like.runtime.searches.settings import ComparisonSettings
from stoix_like.runtime.telemetry import read_rows
from stoix_like.search.model import may_resample

pytestmark = pytest.mark.usefixtures("inside")


def test_rows_and_the_best_of_search_and_network_duals_and_warm_up(spo_run):
    rows, last = rows_of(spo_run, "EVALUATOR"), saved_run.load_run(str(spo_run), "latest")
    names, settings = [], last.config.evaluation
    levels = make_levels(last.env, settings.level_set, settings.num_eval_episodes)
    for prefix, policy, mode in (
        ("evaluator", last.learner.policy, "deterministic"),
        ("evaluator_network", last.learner.network_policy, "network"),
    ):
        own = [row for row in rows if f"{prefix}/mean_return" in row]
        assert [row["update"] for row in own] == [2, 4, 6]
        evaluator = Evaluator(last.env, policy, levels, settings.num_eval_envs, mode=mode)
        scores = evaluator(last.params, jax.random.key(0), 6).mean_return()
        assert own[-1][f"{prefix}/mean_return"] == float(scores[0])
        names.append([name.removeprefix(prefix) for name in own[-1]])
    assert names[0] == names[1]
    assert len(rows) == 6
    key = "evaluator/mean_return"
    scores = {row["update"]: row[key] for row in rows_of(spo_run, "EVALUATOR") if key in row}
    best = saved_run.load_run(str(spo_run), "best")
    assert best.meta.host["scores"] == [max(scores.values())]
    assert best.meta.update == min(u for u, score in scores.items() if score == max(scores.values()))
    assert_same_bits(best.params, saved_run.load_run(str(spo_run), str(best.meta.update)).params)
    rows = rows_of(spo_run, "TRAINER")
    assert [row["trainer/gradient_steps_sum"] for row in rows] == [0.0] + [2.0] * 5
    for name in ("temperature", "alpha", "kl_nonparametric", "kl_policy", "effective_sample_size_depth_1"):
        assert all(f"trainer/{name}" in row for row in rows)
    assert all(row["trainer/model_steps_sum"] == 8 * 4 * 3 for row in rows)  # every episode lasts one step
    assert rows[1]["trainer/temperature"] == pytest.approx(2.0, rel=1e-3)


@pytest.mark.full
def test_a_run_cut_back_to_an_earlier_checkpoint_ends_the_same_with_its_replay(spo_run):
    assert command("train-spo", "--resume", cut_back(shutil.copytree(spo_run, "cut"), 3)) == 0
    assert bool(saved_run.load_run("cut", "latest").state.replay.is_full)
    assert_same_run(spo_run, "cut")


@pytest.mark.integration
def test_saving_the_replay_can_be_switched_when_a_run_is_continued(spo_run, capsys):
    """What a checkpoint holds is what was said when it was written."""
    cut_back(shutil.copytree(spo_run, "cut"), 2)
    assert command("train-spo", "--resume", "cut", "--no-save-replay", "--num-updates", "4") == 0
    out = capsys.readouterr().out
    assert "note: resumed with num_updates = 4 (was 6), save_replay = False (was True)\n" in out
    assert "holds no replay" not in out
    assert all(row["trainer/gradient_steps_sum"] == 2.0 for row in rows_of("cut", "TRAINER")[2:4])
    light = saved_run.load_run("cut", "latest")
    assert_same_bits(saved_run.load_run(str(spo_run), "4").params, light.params)
    assert not any(leaf.any() for leaf in jax.tree.leaves(key_data(light.state.replay)))  # empty, in shape
    with pytest.raises(CheckpointError, match=r"does not fit: replay/experience/.* is not stored"):
        CheckpointStore(Path("cut/checkpoints")).load(saved_run.state_template(light.learner, 1))
    assert command("train-spo", "--resume", "cut", "--save-replay", "--num-updates", "5") == 0
    note = "the checkpoint holds no replay: it is filled again, and the run differs from an uninterrupted one"
    assert f"note: {note}\n" in capsys.readouterr().out
    assert rows_of("cut", "TRAINER")[-1]["trainer/gradient_steps_sum"] == 0.0
    assert command("train-spo", "--resume", "cut", "--num-updates", "6") == 0
    assert "holds no replay" not in capsys.readouterr().out
    assert int(saved_run.load_run("cut", "latest").state.replay.current_index) == 8  # of updates 5 and 6


@pytest.mark.integration
def test_changed_numbers_take_over_and_what_is_null_follows_the_learner(spo_run, capsys):
    cut_back(shutil.copytree(spo_run, "cut"), 3)
    assert command("train-spo", "--resume", "cut", "--gamma", "0.5", "--epsilon", "0.25", "--num-updates", "3") == 0
    assert "note: resumed with num_updates = 3 (was 6), gamma = 0.5 (was 0.9), epsilon = 0.25 (was 0.5)" in (
        capsys.readouterr().out
    )
    assert command("train-spo", "--resume", "cut", "--num-updates", "4") == 0
    hyper = saved_run.load_run("cut", "latest").state.hyper
    expected = {"gamma": 0.5, "search_gamma": 0.5, "epsilon": 0.25, "num_updates": 4.0}  # search_gamma is null
    assert {name: float(getattr(hyper, name)) for name in expected} == expected
    assert command("train-spo", "--resume", "cut", "--search-gamma", "0.25", "--num-updates", "5") == 0
    hyper = saved_run.load_run("cut", "latest").state.hyper
    assert (float(hyper.gamma), float(hyper.search_gamma)) == (0.5, 0.25)


FIXED = {"replay_buffer_size": 160, "batch_size": 16, "num_particles": 5, "search_depth": 3, "root": "gumbel_topk"}
FIXED |= {"root_noise_correction": "true", "resampling": "ess", "resampling_period": 1}
FIXED |= {"init_temperature": 5.0, "init_alpha": 5.0}  # where the duals began: nothing would read them again


@pytest.mark.parametrize("leaf", FIXED)
def test_what_gives_the_state_its_form_cannot_change(spo_run, leaf, capsys):
    flag = f"--{leaf.replace('_', '-')}"
    assert command("train-spo", "--resume", spo_run, flag, FIXED[leaf]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"error: {leaf} cannot change when a run is resumed",
        f"hint: leave it out, or start a new run with --load-path {spo_run}",
    ]


OTHER_VALUES = {"num_particles": [5], "search_depth": [1, 4, "full"], "continuation": ["greedy"], "sample_period": [2]}
OTHER_VALUES |= {"root": ["gumbel_topk"], "root_exploration_dirichlet_fraction": [0.25]}
OTHER_VALUES |= {"replay_buffer_size": [8 * 20], "sample_sequence_length": [5], "batch_size": [4, 6]}
OTHER_VALUES |= {"resampling": ["ess", "none"], "resampling_period": [1], "resampler": ["multinomial"]}
OTHER_VALUES |= {"temperature_mode": ["solve", "fixed", "std"], "kl_constraint": ["root"], "rekey_particles": [True]}
OTHER_VALUES |= {"search_gamma": [0.5], "search_gae_lambda": [None], "root_noise_correction": [True]}


@pytest.mark.parametrize("task", [full("probe/action_observation_reward"), "probe/truncated_constant"])
def test_every_leaf_of_the_section_that_changes_the_form_is_fixed(task):
    """Numbers, which all have a place of their own in the state, are left at their defaults."""
    sizes = ("num_envs", "rollout_length", "hidden_dim", "num_layers", "num_particles", "search_depth", "batch_size")
    leaves = {name: SPO[name] for name in (*sizes, "replay_buffer_size", "sample_sequence_length")}
    env = make_env(spo_config(task_id=task).environment)

    def form(**changes):
        config = spo_config(**leaves | changes)
        learner = spo.make(env, make_network(env, config), config)
        state = jax.eval_shape(learner.init, jax.random.key(0))
        return jax.tree.map(lambda x: (x.shape, x.dtype), state), jax.tree.structure(state)

    before = form()
    changing = {name for name, values in OTHER_VALUES.items() if any(form(**{name: x}) != before for x in values)}
    assert changing <= leaves_with(SPOConfig, Role.FIXED)
    assert {"num_particles", "replay_buffer_size", "root_noise_correction", "resampling_period"} <= changing
    numbers = {"dual_lr", "epsilon", "epsilon_policy", "init_temperature", "init_alpha", "resampling_ess_threshold"}
    numbers |= {"fixed_temperature", "temperature_floor", "root_exploration_dirichlet_alpha"}
    assert set(leaf_types(SPOSectionConfig)) == OTHER_VALUES.keys() | numbers  # a new leaf belongs into one of them


@pytest.mark.integration
def test_a_run_of_the_other_algorithm_is_not_continued(ppo_run, spo_run, capsys):
    for script, path, words_of in (("train-spo", ppo_run, ("PPO", "SPO")), ("train-ppo", spo_run, ("SPO", "PPO"))):
        assert command(script, "--resume", path) in (2, 4)
        assert f"is a run of {words_of[0]}, not of {words_of[1]}" in capsys.readouterr().err


def test_distinct_roots_of_factored_actions_are_refused_before_anything_is_written(capsys):
    leaves = SPO | {"task_id": "JobShop-v0", "root": "gumbel_topk", "save_dir": "runs"}
    assert command("train-spo", **leaves) == 2
    assert "distinct actions, and this environment's action has several factors" in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.parametrize(("name", "kind"), [("spo/maze", "period"), ("spo/maze_mlp", "ess")])
def test_two_presets_resample_within_their_search(name, kind):
    """Period 4 of depth 4, the paper's, never does: by period and by sample size one preset each has to show it."""
    config = load_config(SPOConfig, "spo", ["--config", name], "").config
    core = config.training_core
    search = searching.search_config(make_env(config.environment), config.spo, core.gamma, core.gae_lambda)
    assert (search.resampling, may_resample(search)) == (kind, True)


def still(**leaves):
    """A run of two updates that learns nothing."""
    return leaves | {"num_updates": 2, "actor_lr": 0, "critic_lr": 0, "seed": 9, "run_name": "taken"}


@pytest.mark.integration
def test_networks_go_from_ppo_to_spo_and_back(ppo_run, spo_run):
    assert command("train-spo", **SPO | still(load_path=ppo_run)) == 0
    taken, given = saved_run.load_run("taken", "0").params, saved_run.load_run(str(ppo_run), "best").params
    assert_same_bits(taken.online, given)
    assert_same_bits(taken.target, given)
    assert float(taken.duals.temperature) == pytest.approx(2.0, rel=1e-6)  # its own
    assert command("train-ppo", **PPO | still(load_path=spo_run) | {"run_name": "back"}) == 0
    best = saved_run.load_run(str(spo_run), "best").params
    assert_same_bits(saved_run.load_run("back", "0").params, best.online)
    # of another SPO run targets and duals are taken, too
    assert command("train-spo", **SPO | still(load_path=spo_run) | {"run_name": "again"}) == 0
    assert_same_bits(saved_run.load_run("again", "0").params, best)
    assert float(best.duals.temperature) != pytest.approx(2.0, rel=1e-4)


@pytest.fixture
def evaluate(capsys):
    """`evaluate.py` on a run: (run, flags) -> the result; what is printed names the policy."""

    def evaluated(path, *argv):
        assert command("evaluate", path, *argv, "--num-episodes", "16", "--json", "result.json") == 0
        result = json.loads(Path("result.json").read_text())
        assert f", {result['policy']}, {result['mode']}, levels: fresh" in capsys.readouterr().out
        assert result["seeds"]["0"]["episode_return"]["episodes"] == 16
        return result

    return evaluated


def mean_return(result):
    return result["seeds"]["0"]["episode_return"]["mean"]


def test_an_spo_run_is_evaluated_by_its_search_its_network_or_another_search(evaluate, spo_run):
    """After one update, when the network knows nothing yet."""
    own, network = (evaluate(spo_run, *flags, "--checkpoint", "1") for flags in ((), ("--network",)))
    assert [(r["policy"], r["mode"]) for r in (own, network)] == [
        ("search as trained: 3 x 2, root iid, sampled, resampling none, learned temperature", "deterministic"),
        ("network", "deterministic"),
    ]
    assert own["seeds"] != network["seeds"]
    flags = ("--search-particles", "2", "--search-root", "gumbel_topk", "--search-temperature", "0.01", "--sampled")
    distinct = evaluate(spo_run, *flags, "--checkpoint", "1")
    assert distinct["policy"] == "search 2 x 2, root gumbel_topk, sampled, resampling none, temperature 0.01"
    assert mean_return(distinct) == 1.0  # both actions are tried; at the run's own temperature the worse is drawn, too


@pytest.mark.integration
def test_sampling_a_search_that_changes_nothing_and_one_of_a_ppo_run(evaluate, spo_run, ppo_run):
    own, search = (evaluate(spo_run, *flags, "--checkpoint", "1") for flags in ((), ("--search",)))
    words = "3 x 2, root iid, sampled, resampling none, learned temperature"  # period 4: never within two steps
    assert search["policy"] == f"search {words}"
    assert search["seeds"] == own["seeds"]
    for flags, name in (((), f"search as trained: {words}"), (("--network",), "network")):
        sampled = evaluate(spo_run, *flags, "--sampled", "--checkpoint", "1")
        assert (sampled["policy"], sampled["mode"]) == (name, "sampled")
        assert mean_return(sampled) < 1.0  # both draw: the temperature is 2
        assert sampled == evaluate(spo_run, *flags, "--sampled", "--checkpoint", "1")
    assert evaluate(ppo_run)["policy"] == "network"
    searched = evaluate(ppo_run, "--search")
    assert searched["policy"] == "search 4 x full, root topk, greedy, resampling none, temperature 0.001"
    assert mean_return(searched) == 1.0
    planned = evaluate(ppo_run, "--search-incumbent", "--search-depth", "1")
    assert planned["policy"] == "search 4 x 1, root topk, greedy, resampling none, temperature 0.001, incumbent plan"
    assert mean_return(planned) == 1.0


@pytest.mark.parametrize(
    ("flags", "error"),
    rows("""
--search-particles 0 => argument --search-particles: expected a positive whole number, got '0'
--search-depth ful => argument --search-depth: expected a positive whole number, got 'ful'
--search-temperature 0 => argument --search-temperature: expected a number above 0, got '0'
--search-temperature nan => argument --search-temperature: expected a number above 0, got 'nan'
--search-resampling none --search-period 3 => --search-period: resampling is none, which has no period
--search-resampling none --search-ess-threshold 0.5 =>
    --search-ess-threshold: resampling is none, which has no threshold
--search-gamma 1.1 => argument --search-gamma: expected a number from 0 to 1, got '1.1'
--search-gae-lambda x => argument --search-gae-lambda: expected a number from 0 to 1, got 'x'
--network --search => --network: the network alone does not search
--network --search-particles 3 => --network: the network alone does not search
--network --search-incumbent => --network: the network alone does not search
"""),
)
def test_flags_of_a_search_are_checked(spo_run, flags, error, capsys):
    assert command("evaluate", spo_run, *flags.split()) == 2
    found, hint = capsys.readouterr().err.splitlines()
    assert found == f"error: {error}"
    assert ("--network" in flags) == (hint == "hint: leave out --network or the search")


@pytest.mark.integration
def test_an_spo_run_is_compared_by_its_own_search_too(spo_run, ppo_run):
    """Its row is what `evaluate.py` plays; a PPO run has none, and that is said where it was asked for."""
    settings = ComparisonSettings(("own",), (4,))
    (block,) = compare([spo_run], "1", "actionobservationreward-64", settings)["runs"]
    own = block["rows"][-1]
    assert [row["method"] for row in block["rows"]] == ["greedy", "own"]
    assert (own["budget"], own["particles"]) == (6, 3)
    assert own["model_steps_per_decision"] == 3.0  # episodes of one step: the second of a search finds all finished
    words = "3 x 2, root iid, sampled, resampling none, learned temperature"
    assert block["searches"]["own"] == f"{words}; whatever the budgets"
    flags = ("--checkpoint", "1", "--level-set", "actionobservationreward-64", "--json", "r.json")
    assert command("evaluate", spo_run, *flags) == 0
    result = json.loads(Path("r.json").read_text())
    assert result["level_hash"] == block["level_hash"]
    assert mean_return(result) == pytest.approx(own["mean"])
    (block,) = compare([ppo_run], "1", "actionobservationreward-64", settings)["runs"]
    assert block["notes"] == ["own is left out: a run of PPO has no search of its own"]


@pytest.mark.integration
def test_searches_that_an_environment_cannot_have_are_refused(ppo_run):
    saved = saved_run.load_run(str(ppo_run))
    random_steps = saved._replace(env=saved.env._replace(deterministic=False))
    stochastic = "is stochastic, and a plan can only be followed where steps are deterministic"
    with pytest.raises(ConfigError, match=stochastic):
        select_policy(random_steps, SearchChoice(incumbent=True), False, True)
    endless = saved._replace(env=saved.env._replace(time_limit=None))
    with pytest.raises(ConfigError, match="search_depth: full needs an end"):
        select_policy(endless, SearchChoice(depth="full"), False, True)
    assert select_policy(endless, SearchChoice(), False, True).name.startswith("search 4 x 4, ")  # as deep as SPO's own


@pytest.mark.full
def test_a_search_that_sees_what_is_hidden_is_told_at_start_and_where_it_is_scored(spo_run, monkeypatch, capsys):
    draw = lambda _states, path: Path(path).write_bytes(b"GIF89a")
    hiding = make_action_observation_reward()._replace(hidden_state="the sign", animate=draw)
    monkeypatch.setitem(ENVIRONMENTS, SPO["task_id"], lambda: hiding)
    shutil.copytree(spo_run, "h")
    assert command("train-spo", "--resume", cut_back("h", 5)) == 0
    told = f"a search steps the state of {SPO['task_id']}, which holds the sign"
    assert capsys.readouterr().out.count(told) == 1
    assert command("evaluate", "h", num_episodes=8) == 0
    assert "learned temperature, which sees the sign" in capsys.readouterr().out.splitlines()[0]
    for flags, sees in ((), True), (("--network",), False):
        assert command("animate", "h", *flags) == 0
        assert (", which sees the sign, return " in capsys.readouterr().out) == sees


@pytest.mark.full
@pytest.mark.parametrize(("script", "leaves"), [("train-ppo", PPO), full("train-spo", SPO)])
def test_a_truncation_that_was_not_declared_stops_a_run_after_its_first_chunk(script, leaves, monkeypatch, capsys):
    monkeypatch.setitem(ENVIRONMENTS, "undeclared", lambda: make_truncated_constant(3)._replace(can_truncate=False))
    leaves = leaves | {"task_id": "undeclared", "log_interval": 100}
    assert command(script, **leaves, run_name="u") == 3
    error, hint = capsys.readouterr().err.strip().splitlines()[-2:]
    assert error.startswith("error: undeclared: 8 episode(s) ended by LAST with a discount above 0")
    assert hint.startswith("hint: set can_truncate=True")
    assert [row["update"] for row in read_rows(Path("u/metrics.jsonl"))][-1] == 1


def test_an_evaluation_refuses_a_truncation_that_was_not_declared(ppo_run, monkeypatch, capsys):
    right = make_action_observation_reward()

    def step(state, action):
        state, timestep = right.step(state, action)
        return state, timestep._replace(discount=jnp.float32(1.0))

    monkeypatch.setitem(ENVIRONMENTS, PPO["task_id"], lambda: right._replace(step=step))
    assert command("evaluate", ppo_run, num_episodes=8) == 3
    assert f"error: {PPO['task_id']}: 8 episode(s) ended by LAST" in capsys.readouterr().err
