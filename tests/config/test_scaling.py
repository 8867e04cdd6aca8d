"""The rule for the number of environments by hand, and the presets for a GPU that follow it."""

import pytest

import stoix_like as sl
from stoix_like.config.dicts import config_to_dict
from stoix_like.config.sections.runs import AlphaZeroConfig, PPOConfig, SPOConfig

PACE = {"eval_interval", "num_eval_envs", "num_eval_episodes", "save_interval", "keep_last_n"}


def leaves(config):
    return {name: value for section in config_to_dict(config).values() for name, value in section.items()}


def changed(config, num_envs):
    """{leaf: value} of the leaves that the rule changes."""
    before, after = leaves(config), leaves(sl.scale_to_envs(config, num_envs))
    return {name: after[name] for name in after if after[name] != before[name]}


def test_ppo_by_hand():
    config = sl.ppo_config(num_envs=128, rollout_length=40, actor_lr=0.001, critic_lr=0.0005)
    assert changed(config, 128) == {}
    assert changed(config, 1024) == {"num_envs": 1024, "rollout_length": 20, "actor_lr": 0.002, "critic_lr": 0.001}
    assert changed(config, 8192)["actor_lr"] == 0.002
    assert changed(config, 256) == {"num_envs": 256, "actor_lr": 0.00126, "critic_lr": 0.00063}  # 2 ** (1/3) = 1.26
    assert changed(config, 16) == {"num_envs": 16, "actor_lr": 0.0005, "critic_lr": 0.00025}


@pytest.mark.parametrize(("before", "after"), [(16, 16), (20, 16)])
def test_rollouts_of_ppo_are_not_halved_below_16_steps(before, after):
    config = sl.ppo_config(num_envs=64, rollout_length=before)
    assert sl.scale_to_envs(config, 1024).training_core.rollout_length == after


def test_replay_and_batches_of_spo_and_alphazero_grow_with_the_environments():
    spo = sl.spo_config(num_envs=64, replay_buffer_size=4096, batch_size=8, rollout_length=32, actor_lr=0.001)
    assert changed(spo, 128).keys() == {"num_envs", "replay_buffer_size", "batch_size", "actor_lr", "critic_lr"}
    assert changed(spo, 1024) | {"actor_lr": 0, "critic_lr": 0} == {
        **{"num_envs": 1024, "replay_buffer_size": 65_536, "batch_size": 128, "actor_lr": 0, "critic_lr": 0}
    }
    alphazero = sl.alphazero_config(task_id="connect_four", num_envs=256, replay_buffer_size=65_536, batch_size=256)
    scaled = sl.scale_to_envs(alphazero, 512).alphazero
    assert (scaled.replay_buffer_size, scaled.batch_size) == (131_072, 512)


@pytest.mark.parametrize(
    ("kind", "algorithm", "base", "scaled", "by_hand"),
    [
        (PPOConfig, "ppo", "ppo/maze", "ppo/maze_gpu", {"num_updates"}),
        (PPOConfig, "ppo", "ppo/binpack", "ppo/binpack_gpu", {"num_updates", "ent_coef"}),
        (SPOConfig, "spo", "spo/maze", "spo/maze_gpu", {"num_updates"}),
        (SPOConfig, "spo", "spo/quick", "spo/binpack_gpu", set()),
        (AlphaZeroConfig, "alphazero", "alphazero/connect_four", "alphazero/connect_four_gpu", set()),
    ],
)
def test_presets_for_a_gpu_follow_the_rule_but_for_what_is_chosen_by_hand(kind, algorithm, base, scaled, by_hand):
    small, large = (sl.load_config(kind, algorithm, ["--config", name], "").config for name in (base, scaled))
    wanted, found = leaves(sl.scale_to_envs(small, large.environment.num_envs)), leaves(large)
    assert {name for name in found if found[name] != wanted[name]} - PACE == by_hand


def test_small_rates_and_a_pool_of_a_given_size():
    config = sl.ppo_config(num_envs=64, actor_lr=4e-7, critic_lr=1.2e-6, reset_pool_size=512)
    assert changed(config, 128) == {
        "num_envs": 128,
        "actor_lr": 5.04e-7,
        "critic_lr": 1.512e-6,
        "reset_pool_size": 1024,
    }
    assert changed(config, 8) == {"num_envs": 8, "actor_lr": 2e-7, "critic_lr": 6e-7, "reset_pool_size": 64}
