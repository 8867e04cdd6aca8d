"""Reading the configurations of agents that write: defaults, combinations that cannot work, the way back to YAML."""

import shlex
from pathlib import Path

import pytest
from support.transcripts import rows

from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.config.sections.agent_runs import (
    AgentConfig,
    FineTuneConfig,
    PretrainConfig,
    agent_config,
    pretrain_config,
)
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.config import preset_note
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.loading.help import help_text
from stoix_like.runtime.loading.presets import DEFAULT_PRESETS, configs_folder, preset_paths
from stoix_like.runtime.runs.sources import load_config

CONFIG_TYPES = {"agent": AgentConfig, "pretrain": PretrainConfig, "sft": FineTuneConfig}


def loaded(algorithm, *argv):
    return load_config(CONFIG_TYPES[algorithm], algorithm, argv, default_config=DEFAULT_PRESETS[algorithm])


def problems(algorithm, *argv):
    with pytest.raises(ConfigError) as caught:
        loaded(algorithm, *argv)
    return caught.value.problems


@pytest.mark.parametrize(
    ("words", "expected"),
    rows("""
--rollout-length 16 => --rollout-length: an update plays one whole episode in each environment, so that a step is an
    episode; it is 1, got 16
--task-id Maze-v0 => --task-id: Maze-v0 is no world of text; use FrozenLake-text-v0, Sokoban-text-v0, Sudoku-text-v0
--group-size 6 => --group-size: 6 does not divide num_envs = 128
--group-size 128 --num-devices 2 => --num-devices: num_envs / group_size = 1 groups are not divisible by 2
--num-devices 3 => --num-devices: num_envs = 128 is not divisible by 3; use 2 or 4
--num-minibatches 7 => --num-minibatches: num_envs * num_turns = 1280 rows of tokens are not divisible by
    num_minibatches * num_microbatches = 56; num_envs can be a multiple of 28
--group-size 8 --num-minibatches 7 => --num-minibatches: num_envs * num_turns = 1280 rows of tokens are not divisible by
    num_minibatches * num_microbatches = 56; num_envs can be a multiple of 56
--context full --num-minibatches 64 => --num-minibatches: num_envs = 128 rows of tokens are not divisible by
    num_minibatches * num_microbatches = 512; num_envs can be a multiple of 512
--kl-coef 0.02 => --kl-coef: the run is held to the parameters that it begins with; give load_path
--advantage-estimator rloo => --advantage-estimator: rloo compares episodes of a group; group_size is 1
--rollout-filter-ratio 0.25 => --rollout-filter-ratio: groups of one episode have no spread; group_size is 1
--format-penalty 0.1 => --format-penalty: must be at most 0, got 0.1
--temperature 0 => --temperature: must be greater than 0, got 0.0
--num-turns 100 => --num-turns: must lie in [1, 99], got 100
--all-modes => unknown flag '--all-modes'; it belongs to section 'pretrain', which this command does not use
"""),
)
def test_problems_of_an_agent_word_for_word(words, expected):
    assert problems("agent", *shlex.split(words)) == [expected]


def test_a_length_of_a_rollout_names_its_line(file):
    path = file("training_core:\n  rollout_length: 8\n")
    (problem,) = problems("agent", "--config", path)
    assert problem.startswith("run.yaml:2: training_core.rollout_length: an update plays one whole episode")


@pytest.mark.parametrize(
    ("words", "expected"),
    rows("""
--num-minibatches 7 => --num-minibatches: num_envs * num_turns = 640 rows of tokens are not divisible by
    num_minibatches = 7; num_envs can be a multiple of 7
--critic shared => unknown flag '--critic'; it belongs to section 'token_ppo', which this command does not use
"""),
)
def test_problems_of_pretraining_word_for_word(words, expected):
    assert problems("pretrain", *shlex.split(words)) == [expected]


def test_pretraining_has_no_groups():
    """It plays every level once, so neither environments nor devices need fit the size of a group."""
    config = loaded("pretrain", "--num-envs", "12", "--num-devices", "3").config
    assert (config.environment.num_envs, config.agent.group_size) == (12, 8)
    assert pretrain_config(num_envs=2, num_minibatches=1).environment.num_envs == 2


def test_tokens_need_not_divide_as_steps_do():
    """Of PPO's batch of one step in each environment, 64 minibatches would be too many."""
    assert agent_config(num_envs=32, num_minibatches=40).training_core.num_minibatches == 40


def test_one_file_serves_both(file):
    """The section of the other is checked, and its values are not read."""
    path = file(
        "agent: {num_turns: 3}\npretrain: {all_modes: maybe}\ntoken_ppo: {critic: shared, num_microbatches: 3}\n"
    )
    assert loaded("agent", "--config", path).config == agent_config(num_turns=3, critic="shared", num_microbatches=3)
    Path("run.yaml").write_text("agent: {num_turns: 3}\ntoken_ppo: {critic: none}\npretrain: {all_modes: false}\n")
    assert loaded("pretrain", "--config", path).config == pretrain_config(num_turns=3, all_modes=False)
    Path("run.yaml").write_text("pretrain: {all_mode: true}\n")
    unknown = "run.yaml:1: unknown key 'pretrain.all_mode'; did you mean 'all_modes'?"
    assert problems("agent", "--config", path) == [unknown]


@pytest.mark.parametrize("algorithm", CONFIG_TYPES)
def test_yaml_feeds_back_to_the_identical_configuration(algorithm, file):
    words = ("--mode", "worldmodel", "--answer-length", "40", "--rope-theta", "1e6", "--kwargs", "{size: 5}")
    config = loaded(algorithm, *words, "--num-minibatches", "2").config
    assert config != loaded(algorithm).config
    assert loaded(algorithm, "--config", file(to_yaml(config))).config == config
    assert config_from_dict(CONFIG_TYPES[algorithm], config_to_dict(config)) == config


def test_help_names_the_command_and_its_stage():
    shown = {name: help_text(kind, name, DEFAULT_PRESETS[name]) for name, kind in CONFIG_TYPES.items()}
    assert "train_agent.py [--config FILE|PRESET]" in shown["agent"].splitlines()[0]
    assert "spa.py pretrain [--config FILE|PRESET]" in shown["pretrain"].splitlines()[0]
    for name, text in shown.items():
        assert f"the preset {DEFAULT_PRESETS[name]} is used" in " ".join(text.split())
        assert "--num-kv-heads INT" in text
    assert ("--clip-eps-high" in shown["agent"], "--all-modes" in shown["agent"]) == (True, False)
    assert ("--clip-eps-high" in shown["pretrain"], "--all-modes" in shown["pretrain"]) == (False, True)


def test_a_preset_of_the_other_is_told():
    assert preset_note(loaded("agent")) is None
    assert preset_note(loaded("pretrain")) is None
    assert preset_note(loaded("agent", "--config", "pretrain/frozen_lake")) == (
        "the values of pretrain/frozen_lake were chosen for pretraining on FrozenLake-text-v0; --config"
        " agent/frozen_lake is for FrozenLake-text-v0 and token PPO, and scripts/spa.py pretrain trains pretraining"
    )


def test_prompts_are_no_presets():
    assert {path.stem for path in (configs_folder() / "prompts").glob("*.yaml")} == {"frozen_lake", "sokoban", "sudoku"}
    assert [name for name in [*preset_paths(), *preset_paths(sweeps=True)] if name.startswith("prompts/")] == []
