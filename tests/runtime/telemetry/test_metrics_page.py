"""docs/reference/metrics.md names every key that a run writes, and none besides."""

import re
import tempfile
from pathlib import Path

import jax
import numpy as np
from support import rows
from support.paths import ROOT

import stoix_like as sl
from stoix_like.algorithms.rollout import refuse_breaches
from stoix_like.envs.jumanji_tasks import TASKS
from stoix_like.language.spans import SPANS
from stoix_like.runtime.evaluators.items import metrics_of_items
from stoix_like.runtime.runs.build import build
from stoix_like.runtime.telemetry import Clock, metrics

GAME = "tic_tac_toe"
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text()


def documented(prefix):
    """The keys of one prefix, in the first column of a table."""
    cells = [line.partition("| ")[2].partition(" |")[0] for line in PAGE.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(rf"`({prefix}/[\w<>]+)`", cell)}


def logged_names(algorithm):
    """The keys of the report that one update of an algorithm gives, without being compiled."""
    sizes = {"num_envs": 2, "rollout_length": 4, "num_updates": 4}
    if algorithm is sl.spo:
        config = sl.spo_config(**sizes, sample_sequence_length=4, replay_buffer_size=64)
    else:
        config = sl.ppo_config(**sizes, epochs=1, num_minibatches=1)
    env = sl.make_env("Maze-v0")
    if algorithm is sl.alphazero:
        env = sl.make_env(GAME)
        config = sl.alphazero_config(**sizes, replay_buffer_size=64, batch_size=4, max_game_plies=8)
    rules = env if env.game is None else env.game._replace(max_legal=9)
    learner = algorithm.make(rules, sl.make_network(env, config), config)
    _, accumulated = jax.eval_shape(lambda key: learner.update(learner.init(key)), jax.random.key(0))
    logged = refuse_breaches({name: np.zeros(1) for name in accumulated}, "Maze-v0")
    report = metrics.training_report(logged, Clock(1, 8, 1.0), 8.0, [0])
    return {re.sub(r"depth_\d+$", "depth_<d>", name) for name in report.values}


def agent_learners():
    """Of PPO over tokens, of pretraining and of fine-tuning, tiny."""
    sizes = {"hidden_dim": 8, "num_layers": 1, "num_heads": 2, "num_turns": 2, "num_minibatches": 1, "num_updates": 4}
    of_one = {"all_modes": False, "all_renderings": False}
    held = {"kl_coef": 0.1, "load_path": "none"}  # which is read by the run, not by the learner
    for algorithm, make_config, own in (("agent", sl.agent_config, held), ("pretrain", sl.pretrain_config, of_one)):
        yield build(algorithm, make_config(**sizes, **own, task_id="FrozenLake-text-v0", num_envs=8)).learner
    with tempfile.TemporaryDirectory() as folder:
        rows.write_folder(Path(folder))
        yield build("sft", sl.fine_tune_config(**rows.LEAVES, data_path=folder)).learner


def names_of_agents(learner):
    """The keys of the report of an update, without being compiled, and of an evaluation."""
    _, accumulated = jax.eval_shape(lambda key: learner.update(learner.init(key)), jax.random.key(0))
    report = metrics.training_report({name: np.zeros(1) for name in accumulated}, Clock(1, 8, 1.0), 8.0, [0])
    spans = f"_({'|'.join(SPANS)})$"
    of_items = (re.sub(r"at_[0-9]+$", "at_<k>", name) for name in metrics_of_items(learner))
    of_items = (f"evaluator/{re.sub(spans, '_<span>', name)}" for name in of_items)
    return {*report.values, *of_items}


def own_metrics():
    """The metrics of the tasks themselves, of those that can be played, and of a game against an opponent."""
    state, timestep = jax.eval_shape(sl.make_env(GAME).reset, jax.random.key(0))
    of_games = jax.eval_shape(sl.make_env(GAME).episode_metrics, state, timestep)
    playable = [task for task in TASKS.values() if task.is_cooperative or not task.is_multi_agent]
    return {name for task in playable for name in task.metrics} | set(of_games)


def test_every_key_prefix_and_event_is_named():
    logged = {name for algorithm in (sl.ppo, sl.spo, sl.alphazero) for name in logged_names(algorithm)}
    of_agents = {name for learner in agent_learners() for name in names_of_agents(learner)}
    logged |= of_agents
    assert documented("trainer") == {name for name in logged if name.startswith("trainer/")}
    keys = {name for name in logged if name.startswith("actor/")}
    assert documented("actor") == keys | {f"actor/{name}" for name in own_metrics()}
    results = {name: np.ones((1, 2)) for name in ("episode_return", "episode_length", "unfinished")}
    keys = {*metrics.evaluation_values(results, "deterministic", 1.0), "evaluator/level_hash"}
    keys |= {name for name in of_agents if name.startswith("evaluator/")}
    assert documented("evaluator") == keys
    prefixes = [metrics.evaluation_prefix(mode) for mode in ("deterministic", "network", "sampled", "vs_<engine>")]
    assert [prefix for prefix in prefixes if f"`{prefix}/" not in PAGE] == []
    source = "\n".join(path.read_text() for path in Path(metrics.__file__).parents[1].rglob("*.py"))
    events = {*re.findall(r"\bevent\([\w.]+(?:\(\w*\))?, \"(\w+)\"", source)}
    assert len(events) >= 5
    rows = PAGE.partition("## MISC")[2]
    assert [event for event in events | {"start", "resume"} if f"`{event}`" not in rows] == []
