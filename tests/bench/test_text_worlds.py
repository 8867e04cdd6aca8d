"""The trainings on text worlds: what is compared at equal steps has equal steps."""

import pytest

from stoix_like.bench.learning import text_worlds
from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.sections.runs import PPOConfig, SPOConfig
from stoix_like.runtime.runs.sources import load_config

TASKS = {task.name: task for task in text_worlds.TASKS}


def loaded(training):
    algorithm = training.preset.partition("/")[0]
    flags = ["--config", training.preset, *training.flags]
    return load_config(SPOConfig if algorithm == "spo" else PPOConfig, algorithm, flags, "").config


def steps(config):
    return steps_per_update(config) * config.training_core.num_updates


@pytest.mark.parametrize("name", TASKS)
def test_both_algorithms_play_the_same_world_and_a_brief_ppo_as_many_steps(name):
    configs = {training.name: loaded(training) for training in text_worlds._trainings(TASKS[name])}
    worlds = [(config.environment.task_id, config.environment.kwargs) for config in configs.values()]
    assert worlds == worlds[:1] * len(worlds)
    *of_ppo, of_spo = configs.values()
    assert [steps(config) for config in of_ppo[1:]] == [steps(of_spo)] * len(of_ppo[1:])
    assert [len(of_ppo), type(of_spo)] == [1 + ("sokoban" in name), SPOConfig]


@pytest.mark.parametrize("name", TASKS)
def test_spo_is_compared_with_every_ppo_in_rows_of_their_own(name):
    pairs, claims = list(text_worlds._pairs(TASKS[name])), {c.row: c for c in text_worlds._claims(TASKS[name])}
    assert len({pair.name or pair.ours for pair in pairs}) == len(pairs) == len(claims) - 2
    for ours, theirs, row in pairs:
        assert claims[ours].training.preset.startswith("spo/")
        assert claims[theirs].training.preset.startswith("ppo/")
        assert claims[ours].network == claims[theirs].network
        assert row.endswith("at_equal_steps") == ("brief" in theirs)


@pytest.mark.parametrize("name", TASKS)
def test_each_training_plays_alone_and_with_a_search(name):
    claims = list(text_worlds._claims(TASKS[name]))
    assert len({claim.row for claim in claims}) == len(claims) == 2 * len(list(text_worlds._trainings(TASKS[name])))
    for claim in claims:
        is_search = claim.row.endswith("/search")
        assert claim.network != is_search
        assert (claim.search is not None) == (is_search and claim.training.preset.startswith("ppo/"))
