"""What leaves mean: every leaf has a role, and the lists made from roles are those worked out by hand."""

import dataclasses
from dataclasses import dataclass

import pytest

from stoix_like.config.sections.agent import DecoderSectionConfig
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, PretrainConfig
from stoix_like.config.sections.leaves import leaf
from stoix_like.config.sections.roles import Role, leaf_roles, leaves_with
from stoix_like.config.sections.runs import AlphaZeroConfig, OptimizationConfig, PPOConfig, SPOConfig
from stoix_like.config.sections.tables import LEAF_ROLES

ENVIRONMENT = {"task_id", "max_items", "max_ems", "max_episode_steps", "kwargs", "opponent", "opening_plies"}
BY_HAND = {
    Role.FIXED: ENVIRONMENT
    | {"num_envs", "reset_pool_size", "rollout_length", "seed", "num_seeds", "load_path", "run_name", "save_dir"}
    | {"hidden_dim", "num_layers", "num_heads", "shared_torso", "compute_dtype", "observation_adapter"}
    | {"replay_buffer_size", "batch_size", "num_particles", "search_depth", "root", "root_noise_correction"}
    | {"resampling", "resampling_period", "init_temperature", "init_alpha"},
    Role.ENVIRONMENT: ENVIRONMENT | {"exact_reference"},
    Role.TASK: ENVIRONMENT | {"level_set"},
    Role.PACE: {"num_envs", "rollout_length", "num_updates", "total_timesteps"},
    Role.SEED: {"seed", "num_seeds"},
    Role.SCORING: {"eval_interval", "num_eval_envs", "num_eval_episodes", "level_set", "evaluate_sampled"},
    Role.FOLDER: {"save_dir", "run_name"},
    Role.PROCESS: {"distributed", "coordinator_address", "num_processes", "process_id"},
}
SECTIONS = {
    Role.LEARNING: ("environment", "training_core", "optimization", "architecture", "spo"),
    Role.MACHINE: ("hardware", "logging", "checkpointing"),
}
CONFIG_TYPES = [PPOConfig, SPOConfig, AlphaZeroConfig, AgentConfig, PretrainConfig, FineTuneConfig]
EXCEPT = {Role.LEARNING: {"total_timesteps", "seed", "num_seeds", "load_path"}, Role.MACHINE: BY_HAND[Role.PROCESS]}


def without_role(config_type):
    return [name for name, roles in leaf_roles(config_type).items() if not roles]


@pytest.mark.parametrize("config_type", CONFIG_TYPES)
def test_every_leaf_has_a_role_and_a_forgotten_one_is_found(config_type):
    assert without_role(config_type) == []

    @dataclass(frozen=True)
    class Forgetful(OptimizationConfig):
        new_rate: float = leaf(0.5, "a leaf whose author forgot its roles")

    @dataclass(frozen=True)
    class Config(config_type):
        optimization: Forgetful = dataclasses.field(default_factory=Forgetful)

    Config.__annotations__["optimization"] = Forgetful  # a class of this function, which its name does not reach
    assert without_role(Config) == ["new_rate"]


@pytest.mark.parametrize("role", BY_HAND, ids=str)
def test_the_leaves_of_a_role_are_those_worked_out_by_hand(role):
    assert leaves_with(SPOConfig, role) == BY_HAND[role]
    assert leaves_with(PPOConfig, role) == BY_HAND[role] & leaf_roles(PPOConfig).keys()


@pytest.mark.parametrize("role", SECTIONS, ids=str)
def test_whole_sections_have_a_role_but_for_some_leaves(role):
    names = {n for section in SECTIONS[role] for n in vars(getattr(SPOConfig(), section))}
    moved = {"load_path"} if role is Role.LEARNING else set()
    assert leaves_with(SPOConfig, role) == names - EXCEPT[role] | moved


def test_roles_are_known_for_the_leaves_of_all_algorithms_and_the_same_in_all():
    all_leaves = [item for config_type in CONFIG_TYPES for item in leaf_roles(config_type).items()]
    assert set(all_leaves) == set(LEAF_ROLES.items())


def test_alphazeros_own_leaves():
    own = leaf_roles(AlphaZeroConfig).keys() - leaf_roles(PPOConfig).keys()
    sizes = {
        "num_simulations",
        "quick_simulations",
        "max_game_plies",
        "max_considered_actions",
        "replay_buffer_size",
        "batch_size",
    }
    assert leaves_with(AlphaZeroConfig, Role.FIXED) & own == sizes | {"self_play"}
    assert leaves_with(AlphaZeroConfig, Role.SCORING) & own == {"anchors"}
    assert leaves_with(AlphaZeroConfig, Role.LEARNING) & own == own - {"anchors"}


def test_an_agents_own_leaves():
    own = leaf_roles(AgentConfig).keys() - leaf_roles(PPOConfig).keys()
    lengths = {"num_turns", "actions_per_turn", "answer_length", "state_length"}
    of_ppo = {"critic", "entropy_of", "num_microbatches", "advantage_estimator", "kl_coef", "rollout_filter_ratio"}
    of_ppo |= {"loss_mask", "old_log_probs"}
    sizes = {"rendering", "mode", "order", "parser", "context", "group_size"} | lengths | of_ppo
    assert leaves_with(AgentConfig, Role.FIXED) & own == sizes | vars(DecoderSectionConfig()).keys()
    assert leaves_with(AgentConfig, Role.TASK) & own == {"parser", "num_turns", "actions_per_turn", "temperature"}
    assert leaves_with(AgentConfig, Role.SCORING) & own == {"num_eval_samples"}
    assert leaves_with(AgentConfig, Role.LEARNING) & own == own - {"num_eval_samples", "num_shown_episodes"}


def test_pretrainings_own_leaves():
    own = leaf_roles(PretrainConfig).keys() - leaf_roles(AgentConfig).keys()
    assert leaves_with(PretrainConfig, Role.FIXED) & own == {
        *("all_modes", "all_renderings", "second_rendering", "gradient_steps")
    }
    assert leaves_with(PretrainConfig, Role.LEARNING) & own == own


def test_fine_tunings_own_leaves():
    own = leaf_roles(FineTuneConfig).keys() - leaf_roles(AgentConfig).keys()
    shapes = {"batch_size", "max_length", "truncation", "schedule"}
    assert own == shapes | {"data_path", "warmup_share", "weight_decay", "adam_b1", "adam_b2"}
    assert leaves_with(FineTuneConfig, Role.FIXED) & own == shapes
    assert leaves_with(FineTuneConfig, Role.MACHINE) & own == {"data_path"}
    assert leaves_with(FineTuneConfig, Role.LEARNING) & own == own - {"data_path"}
