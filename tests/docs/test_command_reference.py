"""docs/reference/commands.md is what the parsers say."""

import command_reference
import loop_tables
import pytest
import spa_figures
import spa_tables

from stoix_like.commands.table import COMMANDS
from stoix_like.errors import ConfigError

PAGE = command_reference.DOCUMENT.read_text(encoding="utf-8")


def test_the_page_is_up_to_date_and_has_markers():
    """So it shows every form of an argument as it is typed."""
    assert command_reference.with_commands(PAGE) == PAGE, "run: make docs"
    with pytest.raises(ConfigError, match=r"commands\.md: the markers"):
        command_reference.with_commands("# Commands\n")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_stands_there_and_every_argument_says_what_it_is(name):
    section = PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows
    assert [row for row in rows if not row.split(" | ")[1].strip(" |")] == []


def test_the_tables_of_loops_are_as_their_classes_say():
    text = loop_tables.DOCUMENT.read_text(encoding="utf-8")
    assert loop_tables.with_tables(text) == text, "run: make docs"


def test_the_results_of_spa_are_those_of_its_records():
    text = spa_tables.DOCUMENT.read_text(encoding="utf-8")
    assert spa_tables.with_tables(text) == text, "run: make docs"
    assert [path.name for path in spa_figures.outdated()] == [], "run: make docs"
    assert {path.name for path in spa_tables.FOLDER.glob("*.png")} == {path.name for path in spa_figures.figures()}
