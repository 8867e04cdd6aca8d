"""Arms, and the configurations of stages: each leaf of a pipeline reaches the run that it is for, and no other."""

import dataclasses

import pytest

from stoix_like.config.checks.access import get_leaf, leaf_sections, leaf_types, replace_leaves
from stoix_like.config.sections.spa import SPAConfig
from stoix_like.spa.arms import STAGE_NAMES, arm_of
from stoix_like.spa.stage_configs import _TABLES, _in_our_words, config_problems, settings_of, stage_config

OF_THE_PIPELINE = {"arm", "save_dir", "save_interval", "baseline_lr"}
OTHERS = {  # other values than the defaults, where one more, or the other choice, is none
    "task_id": "Sokoban-text-v0",
    "kwargs": {"size": 5},
    "num_kv_heads": 4,
    "head_dim": 4,
    "ffn_dim": 32,
    "answer_length": 60,
    "state_length": 90,
    "hidden_dim": 64,
    "num_heads": 4,
    "ppo_envs": 64,
    "ppo_group_size": 4,
    "pretrain_envs": 32,
    "pretrain_microbatches": 2,
    "pretrain_gradient_steps": 4,
    "sft_batch_size": 8,
    "sft_microbatches": 2,
    "sft_max_length": 50,
    "ppo_value_clip_eps": 0.3,
    "ppo_dual_clip": 3.0,
    "rollout_filter_ratio": 0.5,
    "ppo_minibatches": 2,
    "ppo_microbatches": 2,
    "ppo_critic_warmup_updates": 1,
}


def other_value(config, name):
    value, kind = get_leaf(config, name), leaf_types(type(getattr(config, leaf_sections(SPAConfig)[name])))[name]
    if name in OTHERS:
        return OTHERS[name]
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 0.5 if value else 0.25
    return next(choice for choice in kind.__args__ if choice != value)


def test_ppo_without_language_has_the_settings_that_it_reads():
    config = replace_leaves(SPAConfig(), {"arm": "plain_ppo"})
    arm = arm_of(config)
    assert settings_of(config, arm, "evaluate").keys() == {"task_id", "kwargs", "seed", "final_eval_levels"}
    assert {"ppo_updates", "ppo_envs", "actor_lr"} < settings_of(config, arm, "ppo").keys()
    assert "ppo_lr" not in settings_of(config, arm, "ppo")


def test_a_problem_of_several_stages_is_told_once_and_in_the_leaves_of_the_pipeline():
    config = replace_leaves(SPAConfig(), {"task_id": "Foo", "ppo_group_size": 7})
    assert config_problems(config, arm_of(config)) == [
        "pretrain: world.task_id: Foo is no world of text; use FrozenLake-text-v0, Sokoban-text-v0, Sudoku-text-v0",
        "ppo: ppo.ppo_group_size: 7 does not divide ppo_envs = 128",
    ]


def test_words_that_leaves_have_as_names_stay_in_a_problem():
    problem = "agent.mode: the mode base is no mode of rows in this order, and num_envs and token_ppo.clip_eps stay"
    told = "ppo.ppo_mode: the mode base is no mode of rows in this order, and ppo_envs and ppo.ppo_clip_eps stay"
    assert _in_our_words(problem, arm_of(SPAConfig()), "ppo") == told


def test_every_leaf_is_read_by_a_stage_or_by_the_pipeline():
    config = SPAConfig()
    read = {name for stage in STAGE_NAMES for name in settings_of(config, arm_of(config), stage)}
    machine = {
        field.name for section in ("hardware", "logging") for field in dataclasses.fields(getattr(config, section))
    }
    assert read | OF_THE_PIPELINE | machine | {"eval_levels", "eval_interval"} == leaf_sections(SPAConfig).keys()
    assert not read & OF_THE_PIPELINE


@pytest.mark.parametrize("stage", STAGE_NAMES)
def test_each_leaf_of_a_table_arrives_in_the_run_of_its_stage(stage):
    base, arrived = SPAConfig(), 0
    leaves = {"load_path": "base"} if stage == "ppo" else {}
    for name, ours in _TABLES[stage].items():
        value = other_value(base, name)
        config = replace_leaves(base, {name: value})
        found = stage_config(config, arm_of(config), stage, leaves)
        assert get_leaf(found, ours) == value, name
        if not name.startswith("eval_") or stage == "evaluate":  # what is shown while a stage trains changes nothing
            assert settings_of(config, arm_of(config), stage)[name] == value
        before = stage_config(base, arm_of(base), stage, leaves)
        assert get_leaf(before, ours) == get_leaf(base, name)
        arrived += 1
    assert arrived > 20


@pytest.mark.parametrize(
    ("arm", "stages", "leaves"),
    [
        ("spa", "pretrain generate sft ppo evaluate", {"rendering": "coordinates", "ppo_mode": "worldmodel"}),
        ("masked", "pretrain generate sft ppo evaluate", {"sft_loss_mask": "non_state", "ppo_lr": 3e-4}),
        ("belief", "pretrain generate sft ppo evaluate", {"generate_states": "self_belief"}),
        ("state", "pretrain ppo evaluate", {"rendering": "coordinates", "ppo_mode": "base", "ppo_lr": 1e-3}),
        ("vanilla", "pretrain ppo evaluate", {"rendering": "grid", "ppo_mode": "base", "ppo_lr": 1e-3}),
        ("baseline", "pretrain ppo evaluate", {"rendering": "grid", "ppo_mode": "base", "ppo_lr": 1e-3}),
        ("plain_ppo", "ppo evaluate", {}),
    ],
)
def test_what_an_arm_is(arm, stages, leaves):
    config = replace_leaves(SPAConfig(), {"arm": arm, "baseline_lr": 1e-3})
    found = arm_of(config)
    assert " ".join(found.stages) == stages
    assert {name: get_leaf(found.config, name) for name in leaves} == leaves
    for stage in found.stages:
        stage_config(config, found, stage, {})


def test_all_arms_begin_with_the_same_base():
    """So that one is made for all: what an arm sets is no setting of `pretrain`."""
    given = [
        settings_of(config, arm_of(config), "pretrain")
        for config in (SPAConfig(), replace_leaves(SPAConfig(), {"arm": "vanilla"}))
    ]
    assert given[0] == given[1]
    other = replace_leaves(SPAConfig(), {"arm": "vanilla", "vanilla_rendering": "both"})
    assert settings_of(other, arm_of(other), "ppo")["rendering"] == "both"


@pytest.mark.parametrize(
    ("leaves", "problem"),
    [
        ({"ppo_envs": 100}, "ppo: ppo.ppo_group_size: 8 does not divide ppo_envs = 100"),
        ({"sft_microbatches": 3}, "sft: sft.sft_batch_size: 16 rows are not divisible by sft_microbatches = 3"),
        ({"pretrain_all_modes": False}, "pretrain.pretrain_all_modes: the base learns answers of the mode base alone"),
    ],
)
def test_all_stages_are_checked_before_the_first_begins(leaves, problem):
    config = replace_leaves(SPAConfig(), leaves)
    assert any(found.startswith(problem) for found in config_problems(config, arm_of(config)))
    assert config_problems(SPAConfig(), arm_of(SPAConfig())) == []


def test_the_base_learns_the_renderings_of_all_arms_and_no_other():
    config = replace_leaves(SPAConfig(), {"rendering": "positions", "vanilla_rendering": "both"})
    for name in ("spa", "vanilla"):
        arm = arm_of(replace_leaves(config, {"arm": name}))
        found = stage_config(arm.config, arm, "pretrain", {})
        section = found.pretrain
        assert (section.second_rendering, section.all_renderings) == ("both", False)
    one = arm_of(config)
    assert stage_config(config, one, "pretrain", {}).agent.rendering == "positions"


@pytest.mark.parametrize("stage", ["pretrain", "generate", "sft", "evaluate"])
def test_only_ppo_reads_the_penalty_of_the_format(stage):
    arm = arm_of(SPAConfig())
    assert "format_penalty" in settings_of(SPAConfig(), arm, "ppo")
    assert "format_penalty" not in settings_of(SPAConfig(), arm, stage)
