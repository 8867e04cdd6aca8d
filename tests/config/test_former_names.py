"""Leaves that were renamed or are gone: files, flags and stored configurations with them are read."""

from dataclasses import dataclass, field

import pytest

from stoix_like.config.dicts import config_from_dict, config_to_dict
from stoix_like.config.sections import runs, tables
from stoix_like.config.sections.leaves import leaf
from stoix_like.config.sections.runs import PPOConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.runs.sources import load_config


@dataclass(frozen=True)
class _Section:
    """A section with a leaf that was renamed."""

    reward_limit: float = leaf(1.0, "largest absolute reward", above=0.0, former="clip_rewards")
    sums_rewards: bool = leaf(True, "rewards of agents are summed", former="summed")


@dataclass(frozen=True)
class _Config(PPOConfig):
    """PPO with this section."""

    rewards: _Section = field(default_factory=_Section)


def load(tmp_path, text, *flags):
    path = tmp_path / "old.yaml"
    path.write_text(text)
    return load_config(_Config, "ppo", ["--config", str(path), *flags], "")


def test_a_former_name_is_read_with_a_note(tmp_path):
    loaded = load(tmp_path, "rewards:\n  clip_rewards: 2.0\n")
    assert loaded.config.rewards.reward_limit == 2.0
    assert loaded.notes == (f"{tmp_path / 'old.yaml'}:2: 'rewards.clip_rewards' is called reward_limit now",)
    loaded = load(tmp_path, "", "--clip-rewards", "3")
    assert loaded.config.rewards.reward_limit == 3.0
    assert loaded.notes == ("--clip-rewards is called --reward-limit now",)
    assert load(tmp_path, "rewards: {reward_limit: 2.0}", "--seed", "1").notes == ()


def test_a_former_switch_is_turned_off_and_no_former_name_is_proposed(tmp_path):
    loaded = load(tmp_path, "", "--no-summed")
    assert not loaded.config.rewards.sums_rewards
    assert loaded.notes == ("--no-summed is called --no-sums-rewards now",)
    assert load(tmp_path, "", "--summed", "false").notes == ("--summed is called --sums-rewards now",)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path, "", "--clip-reward", "1")
    assert "--clip-rewards" not in str(refused.value)


def test_a_section_of_another_algorithm_is_read_with_its_former_names(tmp_path, monkeypatch):
    monkeypatch.setitem(tables.CHECKED_ONLY_SECTIONS, PPOConfig, {"rewards": _Section})
    path = tmp_path / "old.yaml"
    path.write_text("rewards: {clip_rewards: 2.0}\n")
    assert load_config(PPOConfig, "ppo", ["--config", str(path)], "").config == PPOConfig()


def test_both_names_at_once_and_wrong_values_are_problems_of_the_leaf(tmp_path):
    with pytest.raises(ConfigError, match="are the same key"):
        load(tmp_path, "rewards: {clip_rewards: 2.0, reward_limit: 2.0}")
    with pytest.raises(ConfigError, match="--reward-limit: given twice"):
        load(tmp_path, "", "--clip-rewards", "3", "--reward-limit", "3")
    with pytest.raises(ConfigError, match="clip_rewards: must be"):
        load(tmp_path, "rewards: {clip_rewards: -2.0}")


def test_a_configuration_that_was_stored_with_a_former_name_is_read():
    stored = config_to_dict(_Config())
    stored["rewards"] = {"clip_rewards": 4.0}
    assert config_from_dict(_Config, stored).rewards.reward_limit == 4.0


def test_a_leaf_that_is_gone_is_not_read(tmp_path):
    loaded = load(tmp_path, "architecture: {relations: false, hidden_dim: 8}\n")
    assert loaded.config.architecture.hidden_dim == 8
    where = f"{tmp_path / 'old.yaml'}:1: 'architecture.relations'"
    assert loaded.notes == (f"{where} is not read: the network of BinPack always compares lengths",)
    with pytest.raises(ConfigError, match="unknown flag '--no-relations'; the network of BinPack always compares"):
        load(tmp_path, "", "--no-relations")
    with pytest.raises(ConfigError, match=r"unknown key 'environment.relations'"):
        load(tmp_path, "environment: {relations: false}\n")
    with pytest.raises(ConfigError, match="unknown leaf 'relations'; the network of BinPack always compares"):
        runs.ppo_config(relations=True)


@pytest.mark.parametrize(
    ("task_id", "value", "is_gone"), [("BinPack-v0", True, 0), ("BinPack-v0", False, 1), ("Maze-v0", False, 0)]
)
def test_a_run_that_was_stored_with_what_is_gone_is_refused(task_id, value, is_gone):
    config = runs.ppo_config(task_id=task_id)
    stored = config_to_dict(config)
    stored["architecture"]["relations"] = value
    if not is_gone:
        assert config_from_dict(PPOConfig, stored) == config
        return
    with pytest.raises(
        ConfigError, match="the run was stored with relations = False; the network of BinPack always compares"
    ) as refused:
        config_from_dict(PPOConfig, stored)
    assert "versions.json" in (refused.value.hint or "")


@pytest.mark.parametrize("task_id", ["BinPack-v2", "Maze-v0"])
def test_a_leaf_that_is_gone_for_all_tasks(task_id):
    config = runs.ppo_config(task_id=task_id)
    stored = config_to_dict(config)
    stored["optimization"]["decay_entropy"] = False
    assert config_from_dict(PPOConfig, stored) == config
    stored["optimization"]["decay_entropy"] = True
    with pytest.raises(ConfigError, match="decay_entropy = True; the entropy bonus is constant"):
        config_from_dict(PPOConfig, stored)
