"""`play_text.py`: the world that its flags name, beside the run's."""

import pytest
from support.asserts import refused

from stoix_like.commands.runs import play_text
from stoix_like.config.sections.runs import EnvironmentConfig
from stoix_like.errors import ConfigError

OWN = EnvironmentConfig(task_id="FrozenLake-text-v0", kwargs={"intended_p": 1.0, "max_actions": 8})


@pytest.mark.parametrize(
    ("task_id", "kwargs", "expected"),
    [
        (None, {}, {"intended_p": 1.0, "max_actions": 8}),
        (None, {"size": 6, "max_actions": 20}, {"intended_p": 1.0, "max_actions": 20, "size": 6}),
        ("FrozenLake-text-v0", {"size": 6}, {"intended_p": 1.0, "max_actions": 8, "size": 6}),
        ("Sokoban-text-v0", {"max_actions": 20}, {"max_actions": 20}),
    ],
)
def test_arguments_stand_beside_those_of_the_run_in_its_world_alone(task_id, kwargs, expected):
    found = play_text.world_of(OWN, task_id, kwargs)
    assert found == {"task_id": task_id or "FrozenLake-text-v0", "kwargs": expected}


@pytest.mark.parametrize("text", ["{size:", "[1]", "size", ""])
def test_arguments_that_are_no_mapping_are_refused_before_the_run_is_read(text):
    with refused(ConfigError, hint="write YAML in one line, such as '{size: 6}'") as caught:
        play_text.main(["--model", "none", "--kwargs", text])
    assert caught.value.what.startswith("--kwargs: ")
