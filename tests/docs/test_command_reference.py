"""docs/reference/commands.md is what the parsers say."""

import command_reference
import pytest

from stoix_like.commands.table import COMMANDS
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser

PAGE = command_reference.DOCUMENT.read_text(encoding="utf-8")


def test_the_page_is_up_to_date_has_markers_and_alternatives_as_words_of_their_own():
    assert command_reference.with_commands(PAGE) == PAGE, "run: make docs"
    with pytest.raises(ConfigError, match=r"commands\.md: the markers"):
        command_reference.with_commands("# Commands\n")
    assert command_reference._code("--kind a|b") == "`--kind a` or `b`"
    assert command_reference._code("--sampled") == "`--sampled`"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_there_and_every_argument_says_what_it_is(name):
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if not row.split(" | ")[1].strip(" |")] == []


@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        ({"dest": "run"}, "RUN"),
        ({"dest": "runs", "nargs": "+"}, "RUNS ..."),
        ({"dest": "task_ids", "nargs": "*", "metavar": "TASK"}, "[TASK ...]"),
        ({"flag": "--num-envs", "type": int}, "--num-envs NUM-ENVS"),
        ({"flag": "--kind", "choices": ["a", "b"]}, "--kind a|b"),
        ({"flag": "--sampled", "action": "store_true"}, "--sampled"),
        ({"flag": "--scale", "nargs": 3, "metavar": ("TASK", "MIN", "MAX")}, "--scale TASK MIN MAX"),
    ],
)
def test_arguments_are_shown_as_they_are_typed(arguments, form):
    named = arguments.pop("flag", None) or arguments.pop("dest")
    action = ArgumentParser("program", "").add_argument(named, **arguments)
    assert command_reference._form(action) == form


def test_the_tables_of_loops_are_as_their_classes_say():
    import loop_tables

    text = loop_tables.DOCUMENT.read_text(encoding="utf-8")
    assert loop_tables.with_tables(text) == text, "run: make docs"
