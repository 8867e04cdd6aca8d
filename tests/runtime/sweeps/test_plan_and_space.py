"""Sweep files: what they may say, exact error texts, and what makes two of them comparable. No optuna is needed."""

import json
import sys
from pathlib import Path

import pytest
import yaml
from support.asserts import refused
from support.paths import ROOT
from support.transcripts import rows

from stoix_like.commands.entry import exit_code
from stoix_like.commands.runs.sweep import main
from stoix_like.config.checks.access import get_leaf
from stoix_like.config.sections.runs import PPOConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console import spelling
from stoix_like.runtime.loading.presets import find, preset_paths
from stoix_like.runtime.sweeps.plan import (
    SweepSettings,
    check_metric,
    fingerprint_differences,
    pace_note,
    read_plan,
)
from stoix_like.runtime.sweeps.space import Choices, Range

SPACE = "space: {actor_lr: {low: 1e-4, high: 1e-2, log: true}}\n"


@pytest.fixture
def plan(inside):
    """Reads a sweep file of that text from the working folder, so that messages begin `sweep.yaml:`."""

    def read(text, **replaced):
        Path("sweep.yaml").write_text(text)
        return read_plan(Path("sweep.yaml"), **replaced)

    return read


@pytest.fixture
def problems(plan):
    def found(text):
        with pytest.raises(ConfigError) as caught:
            plan(text)
        return caught.value.problems

    return found


def test_keys_of_a_whole_file_and_their_defaults(plan):
    found = plan(SPACE)
    assert found.settings == SweepSettings()
    assert found.settings.config is None
    assert isinstance(found.example, PPOConfig)
    assert plan("algorithm: spo\nspace: {epsilon: {low: 0.1, high: 1}}\nfixed: {eval_interval: 1}\n").example.spo
    assert found.example.environment.num_envs == 128  # ppo/quick
    assert found.space == {"actor_lr": Range(1e-4, 1e-2, log=True)}
    found = plan(
        """
        algorithm: spo
        config: spo/maze
        metric: evaluator_network/solve_rate
        direction: minimize
        num_trials: 1e1
        num_seeds: 3
        sampler: random
        sampler_seed: 7
        pruner: none
        fixed: {num_updates: 5, kwargs: {num_rows: 6, num_cols: 6}, level_set: none}
        space:
          epochs: {low: 1, high: 7, step: 2}
          epsilon: {low: 0.1, high: 0.7, step: 0.2}
          root: {choices: [iid, gumbel_topk]}
          search_gamma: {choices: [null, 0.9]}
          shared_torso: {choices: [true, false]}
        """
    )
    assert found.settings == SweepSettings(
        "spo", "spo/maze", "evaluator_network/solve_rate", "minimize", 10, 3, "random", 7, "none", 5, 1
    )
    assert found.space == {
        "epochs": Range(1, 7, step=2, is_whole=True),
        "epsilon": Range(0.1, 0.7, step=0.2),
        "root": Choices(("iid", "gumbel_topk")),
        "search_gamma": Choices((None, 0.9)),
        "shared_torso": Choices((True, False)),
    }
    parameters = {"epochs": 3, "epsilon": 0.3, "root": "gumbel_topk", "search_gamma": 0.9, "shared_torso": True}
    config = found.config_of(parameters, save_dir="runs/here", run_name="trial-0000")
    assert {name: get_leaf(config, name) for name in parameters} == parameters
    assert get_leaf(config, "kwargs") == {"num_rows": 6, "num_cols": 6}
    fixed = {"num_updates": 5, "num_seeds": 3, "level_set": None, "save_dir": "runs/here", "run_name": "trial-0000"}
    assert {name: get_leaf(config, name) for name in fixed} == fixed


def test_agents_that_write_are_swept_from_a_run_that_is_part_of_the_fingerprint(plan, problems):
    text = "algorithm: agent\nspace: {entropy_of: {choices: [all, answer]}}\nfixed: {load_path: %s}\n"
    found = plan(text % "base")
    assert found.example.agent.num_turns == 10  # agent/frozen_lake
    assert found.config_of({"entropy_of": "all"}).checkpointing.load_path == "base"
    assert "load_path" not in plan(SPACE).fingerprint()
    assert fingerprint_differences(found.fingerprint(), plan(text % "other").fingerprint()) == [
        'load_path is "other", and was "base" when the study began'
    ]
    searched = "metric: evaluator_network/mean_return\n"
    assert problems(text % "base" + searched) == [
        "sweep.yaml:4: metric: 'evaluator_network/mean_return' is of algorithms whose policy searches; token PPO's"
        " network is 'evaluator/mean_return'"
    ]
    assert plan("algorithm: pretrain\nspace: {weight_decay: {low: 0, high: 0.1}}\n").example.pretrain.all_modes


def test_flags_replace_keys_and_updates_and_steps_each_other(plan):
    assert plan(SPACE + "num_trials: 5\n", num_trials=7).settings.num_trials == 7
    # As flags replace what the file says.
    found = plan(SPACE + "fixed: {total_timesteps: 51200, eval_interval: 1}\n")
    assert found.example.training_core.num_updates == 10  # of 128 * 40 steps
    found = plan("fixed: {total_timesteps: 51200, eval_interval: 1}\nspace: {num_updates: {choices: [4, 8]}}\n")
    assert found.config_of({"num_updates": 8}).training_core.num_updates == 8
    found = plan("fixed: {total_timesteps: 51200, eval_interval: 1}\nspace: {rollout_length: {choices: [20, 80]}}\n")
    assert [found.config_of({"rollout_length": n}).training_core.num_updates for n in (20, 80)] == [20, 5]


@pytest.mark.parametrize(
    ("text", "problem"),
    rows("""
num_trial: 3 => unknown key 'num_trial'; did you mean 'num_trials'?
spaces: {} => unknown key 'spaces'; did you mean 'space'?
num_updates: 3 => unknown key 'num_updates'; it is a leaf, which belongs under 'fixed' or 'space'
num_trials: 0 => num_trials: must be at least 1, got 0
num_trials: few => num_trials: expected int, got 'few' (str)
sampler: tpw => sampler: expected tpe, random, got 'tpw' (str); did you mean 'tpe'?
direction: 1 => direction: expected maximize, minimize, got 1 (int)
config: ppo/mase => config: no file or preset 'ppo/mase'; did you mean 'ppo/maze'?; presets: agent/frozen_lake,
    alphazero/connect_four, alphazero/connect_four_gpu, alphazero/go_9x9, alphazero/hex8, alphazero/hex_11x11,
    alphazero/othello, alphazero/square8,
    alphazero/tic_tac_toe, ppo/binpack, ppo/binpack_gpu, ppo/binpack_large, ppo/binpack_v0, ppo/connect_four,
    ppo/frozen_lake, ppo/maze, ppo/maze_gpu, ppo/maze_mlp, ppo/quick, ppo/snake, ppo/sokoban, ppo/sudoku,
    pretrain/frozen_lake, selfplay/connect_four, selfplay/hex8_2p, selfplay/othello, selfplay/square8_2p,
    selfplay/square8_4p, selfplay/tic_tac_toe, selfplay/unified_loop,
    sft/frozen_lake, spa/small/frozen_lake, spa/small/frozen_lake_6x6, spa/small/smoke, spa/small/sokoban,
    spo/binpack, spo/binpack_gpu, spo/binpack_v0, spo/frozen_lake, spo/maze, spo/maze_gpu, spo/maze_mlp, spo/quick,
    spo/sokoban, spo/sudoku
metric: mean_return => metric: 'mean_return' is not of evaluations; did you mean 'evaluator/mean_return'?
metric: evaluator_sampled/mean_return =>
    metric: 'evaluator_sampled/mean_return' needs 'evaluate_sampled: true' under 'fixed'
metric: evaluator_network/mean_return =>
    metric: 'evaluator_network/mean_return' is of algorithms whose policy searches; PPO's network is
    'evaluator/mean_return'
"""),
)
def test_wrong_keys(problems, text, problem):
    assert problems(f"{SPACE}{text}\n") == [f"sweep.yaml:2: {problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    rows("""
|  => : space: nothing is searched; give a leaf, such as 'actor_lr: {low: 1e-4, high: 1e-2}'
- 3 => :1: the file must hold keys, such as 'algorithm:'
space: 3 => :1: section 'space' must hold keys, such as 'actor_lr:'
SPACE|fixed: [3] => :2: section 'fixed' must hold keys, such as 'fixed: {task_id: ...}'
SPACE|num_seeds: 2|num_seeds: 2 => :3: duplicate key 'num_seeds' (first at line 2)
SPACE|fixed: {num_updates: 10} => : pruner: nothing is evaluated before the end: eval_interval is 10 and num_updates
    10; fix a lower eval_interval, or give 'pruner: none'
fixed: {num_envs: 5, rollout_length: 10}|space: {num_minibatches: {choices: [3, 7]}} => : at the first values of the
    space: training_core.num_minibatches: num_envs * rollout_length = 5 * 10 = 50 is not divisible by 3; use 2 or 5
"""),
)
def test_wrong_files(problems, text, problem):
    """A bar ends a line."""
    assert problems(text.replace("SPACE|", SPACE).replace("|", "\n")) == [f"sweep.yaml{problem}"]


@pytest.mark.parametrize(
    ("leaf", "problem"),
    rows("""
actor_lrs: {low: 0.1, high: 1} => unknown key 'space.actor_lrs'; did you mean 'actor_lr'?
optimization: {actor_lr: 1} => unknown key 'space.optimization'; it is a section: give its leaves without it
num_particles: {low: 4, high: 8} => unknown key 'space.num_particles'; it is one of section 'spo', which this
    algorithm does not use
num_seeds: {low: 1, high: 2} => .num_seeds: it is a key of the sweep itself, next to 'config'
run_name: {choices: [a, b]} => .run_name: each trial has a folder in that of the study: --save-dir and --study
distributed: {choices: [true, false]} => .distributed: a sweep runs in one process
seed: {low: 0, high: 9} => .seed: a seed is not a parameter; each trial has num_seeds of them
num_eval_envs: {low: 8, high: 16} =>
    .num_eval_envs: leaves of section 'evaluation' are the same in all trials; put it under 'fixed'
critic_lr: {low: 0, high: 1} => .critic_lr: it is also fixed (sweep.yaml:1); keep one of them
actor_lr: 0.1 => .actor_lr: expected {low: ..., high: ...} with log or step, or {choices: [...]}
actor_lr: {low: 1} => .actor_lr: expected {low: ..., high: ...} with log or step, or {choices: [...]}
actor_lr: {low: 0.1, hihg: 1} => unknown key 'space.actor_lr.hihg'; did you mean 'high'?
actor_lr: {choices: [1, 2], log: true} => .actor_lr.log: choices take no other key; leave it out
actor_lr: {low: -1, high: 1} => .actor_lr.low: must be at least 0, got -1.0
actor_lr: {low: a, high: 1} => .actor_lr.low: expected float, got 'a' (str)
gamma: {low: 0.9, high: 1.1} => .gamma.high: must lie in [0, 1], got 1.1
epochs: {low: 1.5, high: 3} => .epochs.low: expected int, got 1.5 (float)
value_clip_eps: {low: null, high: 3} => .value_clip_eps.low: expected a number, got null
reset_pool_size: {low: auto, high: 3} => .reset_pool_size.low: expected a number, got 'auto'
actor_lr: {low: 1, high: 1} => .actor_lr: low = 1.0 is not below high = 1.0
actor_lr: {low: 0, high: 1, log: true} => .actor_lr: log needs low above 0, got 0.0
actor_lr: {low: 0, high: 1, log: yes} => .actor_lr.log: expected bool, got 'yes' (str)
actor_lr: {low: 0.1, high: 1, log: true, step: 0.1} => .actor_lr: log and step exclude each other; keep one
actor_lr: {low: 0, high: 1, step: 0} => .actor_lr.step: must be greater than 0, got 0.0
actor_lr: {low: 0, high: 1, step: .nan} => .actor_lr.step: must be finite, got nan
epochs: {low: 1, high: 4, step: 0.5} => .epochs.step: expected int or null, got 0.5 (float)
epochs: {low: 1, high: 6, step: 3} => .epochs: steps of 3 from 1 do not reach 6; use high = 4 or 7
gamma: {low: 0.9, high: 0.95, step: 0.1} => .gamma: steps of 0.1 from 0.9 do not reach 0.95; use high = 1.0
gamma: {choices: [0.9]} => .gamma.choices: expected a list of at least two values, got [0.9]
gamma: {choices: 0.9} => .gamma.choices: expected a list of at least two values, got 0.9
gamma: {choices: [0.9, 1.1]} => .gamma.choices: must lie in [0, 1], got 1.1
gamma: {choices: [1, 1.0]} => .gamma.choices: 1.0 is given twice
kwargs: {choices: [{a: 1}, {a: 2}]} => .kwargs.choices: only numbers, words, true, false and null can be searched
shared_torso: {low: 0, high: 1} => .shared_torso: it is not a number; give choices: [true, false]
standardize_advantages: {low: 0, high: 1} =>
    .standardize_advantages: it is not a number; give choices: [batch, minibatch, none]
"""),
)
def test_wrong_spaces(problems, leaf, problem):
    text = f"fixed: {{critic_lr: 0.001}}\nspace:\n  ent_coef: {{low: 0, high: 1}}\n  {leaf}\n"
    expected = f"space{problem}" if problem.startswith(".") else problem
    assert problems(text) == [f"sweep.yaml:4: {expected}"]


def test_each_key_of_a_dimension_has_its_line_and_leaves_are_read_as_in_a_configuration(problems, plan):
    text = "space:\n  gamma:\n    low: 2\n    high: none\n    log: 1\n  epochs:\n    choices:\n      - 1\n      - few\n"
    assert problems(text) == [
        "sweep.yaml:3: space.gamma.low: must lie in [0, 1], got 2.0",
        "sweep.yaml:4: space.gamma.high: expected float, got 'none' (str)",
        "sweep.yaml:5: space.gamma.log: expected bool, got 1 (int)",
        "sweep.yaml:7: space.epochs.choices: expected int, got 'few' (str)",
    ]
    fixed = "algorithm: spo\nfixed: {adaptive_temperature: false, eval_interval: 1, save_dir: 3}\n" + SPACE
    assert problems(fixed) == [
        "sweep.yaml:2: fixed.save_dir: each trial has a folder in that of the study: --save-dir and --study"
    ]
    assert get_leaf(plan(fixed.replace(", save_dir: 3", "")).example, "temperature_mode") == "fixed"


def test_all_problems_are_reported_at_once_those_of_the_runs_own_file_with_its_lines(problems, tmp_path):
    text = "sampler: tp\nconfig: ppo/mase\nfixed:\n  gama: 1\n  gamma: 2\nspace:\n  actor_lr: {low: 2, high: 1}\n"
    found = problems(text)
    assert [line.partition(": ")[0] for line in found] == [f"sweep.yaml:{line}" for line in (1, 2, 4, 5, 7)]
    (tmp_path / "run.yaml").write_text("training_core:\n  gama: 1\n")
    assert problems(SPACE + "config: run.yaml\n") == [
        "run.yaml:2: unknown key 'training_core.gama'; did you mean 'gamma'?"
    ]


def test_a_space_with_a_possible_corner_is_taken_and_an_impossible_trial_says_why(plan):
    """The run's own 8 minibatches do not divide either; only the last value does."""
    found = plan("fixed: {num_envs: 5, rollout_length: 10}\nspace: {num_minibatches: {choices: [3, 5]}}\n")
    assert found.example.training_core.num_minibatches == 5
    with pytest.raises(ConfigError, match=r"5 \* 10 = 50 is not divisible by 3; use 2 or 5"):
        found.config_of({"num_minibatches": 3})


def test_the_fingerprint_holds_what_makes_values_comparable(plan):
    base = "num_trials: 5\nfixed: {hidden_dim: 8}\n" + SPACE
    now = plan(base).fingerprint()
    assert json.loads(json.dumps(now)) == now
    same = "num_trials: 9\nsampler: random\npruner: none\nfixed: {hidden_dim: 8, keep_last_n: 3, log_interval: 5}\n"
    assert fingerprint_differences(now, plan(same + SPACE).fingerprint()) == []
    changed = "num_seeds: 2\nmetric: evaluator/max_return\nfixed: {hidden_dim: 16}\n"
    other = plan(changed + "space: {actor_lr: {low: 1e-4, high: 1e-2}, gamma: {choices: [0.9, 1]}}\n").fingerprint()
    assert fingerprint_differences(now, other) == [
        'metric is "evaluator/max_return", and was "evaluator/mean_return" when the study began',
        'space.actor_lr is {"low": 0.0001, "high": 0.01}, and was {"low": 0.0001, "high": 0.01, "log": true} when the '
        "study began",
        "gamma is missing, and was 1.0 when the study began",
        "num_seeds is 2, and was 1 when the study began",
        "hidden_dim is 16, and was 8 when the study began",
        'space.gamma is {"choices": [0.9, 1.0]}, and was missing when the study began',
    ]


def test_a_metric_that_the_task_does_not_report_is_refused_and_trials_of_different_pace_are_noted(plan):
    found = plan(SPACE + "metric: evaluator/solve_rat\n")
    check_metric(found._replace(settings=SweepSettings()), ["mean_return"])
    what = "sweep.yaml: metric: evaluations of BinPack-v2 report no 'solve_rat'; did you mean 'solve_rate'?"
    with refused(ConfigError, what, "they report evaluator/mean_return, evaluator/solve_rate"):
        check_metric(found, ["mean_return", "solve_rate"])
    paced = "space: {rollout_length: {choices: [20, 40]}, num_envs: {choices: [64, 128]}}\n"
    assert pace_note(plan(paced)) == (
        "trials differ in num_envs, rollout_length, and the pruner compares them at the same update"
    )
    assert pace_note(plan(paced + "pruner: none\n")) is None
    assert pace_note(plan(SPACE)) is None


def test_a_sweep_is_found_by_path_or_shipped_name(plan, tmp_path):
    plan(SPACE)
    assert find("sweep.yaml", "sweep") == Path("sweep.yaml")
    shipped = ROOT / "configs/sweep/ppo_maze.yaml"
    assert find("sweep/ppo_maze", "sweep") == find("sweep/ppo_maze.yaml", "sweep") == shipped
    for name, what, hint in (
        ("ppo_maze", "no sweep file or preset 'ppo_maze'; did you mean 'sweep/ppo_maze'?", "presets: sweep/ppo_maze"),
        (".", "'.' is a folder, not a file", "name a YAML file in it"),
    ):
        with refused(ConfigError, what, hint):
            find(name, "sweep")
    with pytest.raises(ConfigError, match="no file or preset 'sweep/ppo_maze'"):
        find("sweep/ppo_maze", "ppo")


@pytest.mark.parametrize("name", sorted(preset_paths(sweeps=True)))
def test_every_shipped_sweep_is_sound_and_commented(name):
    path = preset_paths(sweeps=True)[name]
    plan = read_plan(path)
    text = path.read_text()
    assert [line for line in text.splitlines() if line and "#" not in line] == ["fixed:", "space:"]
    stated, defaults = yaml.safe_load(text), vars(SweepSettings())
    assert [key for key in defaults if key != "num_trials" and stated.get(key) == defaults[key]] == []
    core, num_envs = plan.example.training_core, plan.example.environment.num_envs
    steps = f"{num_envs} environments * {core.rollout_length} steps * {core.num_updates} updates"
    assert f"{steps} = {num_envs * core.rollout_length * core.num_updates:,} steps" in text


def test_the_documentation_has_the_defaults():
    page = (ROOT / "docs" / "how-to" / "sweep.md").read_text()
    lines = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    cells = {name.strip(" `"): default.strip(" `") for _, name, default, *_ in lines}
    defaults = {name: default for name, default in cells.items() if name not in ("fixed", "space")}
    assert defaults.pop("config") == "by algorithm"
    assert defaults == {name: str(value) for name, value in vars(SweepSettings()).items() if name != "config"}


def test_without_optuna_the_extra_is_named(plan, monkeypatch, capfd):
    plan(SPACE)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert exit_code(main, ["sweep.yaml"]) == 5
    assert capfd.readouterr().err.splitlines() == [
        "error: a sweep needs the 'sweep' extra",
        f"hint: {spelling.pip_command('stoix_like[sweep]')}",
    ]
    assert not Path("runs").exists()
