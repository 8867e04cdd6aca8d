"""Writes docs/reference/commands.md from the parsers that read the command lines.

`python docs/tools/command_reference.py` rewrites the file in a clone; a test fails if it is out of date. The page is
made from the arguments of the parsers, not from the text of `--help`, which depends on the version of Python.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from pathlib import Path

from config_table import replace_part

from stoix_like.commands.runs.spa import STAGES
from stoix_like.commands.table import COMMANDS, Command
from stoix_like.runtime.console.spelling import PROGRAM, script_of
from stoix_like.runtime.loading.flags import OPTION_HELP, flag_name

DOCUMENT = Path(__file__).parents[1] / "reference" / "commands.md"
BEGIN = "<!-- commands: written by python docs/tools/command_reference.py -->"
END = "<!-- end of commands -->"
#: Flags of every command, documented once above the first.
COMMON_FLAGS = ("-h", "--debug")
ANY_LEAF = "--LEAF VALUE", "any leaf of the [configuration](../configuration.md#every-leaf), such as `--num-envs 64`"


def with_commands(text: str) -> str:
    """The document with the sections of all commands between the markers."""
    parts = [_section(name, command) for name, command in COMMANDS.items()]
    return replace_part(text, DOCUMENT, BEGIN, END, "\n\n".join(parts))


def _section(name: str, command: Command) -> str:
    """A command's heading, summary, command lines, and the table of its arguments."""
    if name.startswith("train-"):
        places, rows = ["[--config FILE|PRESET]"], list(_training_rows())
    elif name == "spa":
        places = ["STAGE", "[NAME]", "[--from PATH]", "[--config FILE|PRESET]"]
        rows = [*_stage_rows(), *_training_rows()]
    else:
        arguments = _arguments(command)
        places = [_form(action) for action in arguments if not action.option_strings]
        rows = [(_form(action), _meaning(action)) for action in arguments]
        if name in ("run-training-loop", "master-loop"):
            rows += _option_rows("config", "print_config")
        if name in ("run-training-loop", "run-continuous-training", "master-loop"):
            rows.append(ANY_LEAF)
    synopsis = " ".join([*places, "[--flag VALUE ...]"])
    table = "\n".join(f"| {_code(form)} | {meaning} |" for form, meaning in rows)
    lines = f"```text\npython scripts/{script_of(name)} {synopsis}\n{PROGRAM} {name} {synopsis}\n```"
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    return f"## {name}\n\n{summary}\n\n{lines}\n\n| argument | meaning |\n| --- | --- |\n{table}"


def _training_rows() -> Iterator[tuple[str, str]]:
    """The options of the training commands. All leaves are one row: they have a page of their own."""
    yield from _option_rows(*(name for name in OPTION_HELP if name not in ("help", "debug")))
    yield ANY_LEAF


def _stage_rows() -> Iterator[tuple[str, str]]:
    """What STAGE may be, and what pipelines have beside the options of the training commands."""
    for name, summary in STAGES.items():
        yield name, f"STAGE: {summary}"
    yield "NAME", "of a pipeline; its leaves are on [the page of SPA](../spa.md#leaves)"
    yield "--from PATH", "take stages that are done from this pipeline, or this stage of one; may be repeated"


def _option_rows(*names: str) -> Iterator[tuple[str, str]]:
    for name in names:
        metavar, meaning = OPTION_HELP[name]
        yield f"{flag_name(name)} {metavar}".rstrip(), meaning


def _arguments(command: Command) -> list[argparse.Action]:
    parser: argparse.ArgumentParser = importlib.import_module(command.module).make_parser()
    return [action for action in parser._actions if not set(COMMON_FLAGS) & set(action.option_strings)]


def _form(action: argparse.Action) -> str:
    """The form of an argument: `RUN`, `RUN ...`, `--seed N`, `--search-root iid|topk`, `--sampled`."""
    name = action.option_strings[-1] if action.option_strings else ""
    if action.nargs == 0:
        return name
    if isinstance(action.metavar, tuple):
        value = " ".join(action.metavar)
    elif action.choices is not None:
        value = "|".join(map(str, action.choices))
    else:
        value = action.metavar or action.dest.upper().replace("_", "-")
    if action.nargs in ("+", "*"):
        value = f"{value} ..." if action.nargs == "+" else f"[{value} ...]"
    return f"{name} {value}".strip()


def _code(form: str) -> str:
    """The form as code for a table cell. `|` becomes the word or: Markdown parsers treat it differently in a cell."""
    flag, space, value = form.partition(" ")
    return f"`{flag}{space}" + "` or `".join(value.split("|")) + "`"


def _meaning(action: argparse.Action) -> str:
    help_text = (action.help or "") % {**vars(action), "prog": PROGRAM}
    return help_text.replace("<", "&lt;").replace("*", "\\*").replace("|", "\\|")


if __name__ == "__main__":
    DOCUMENT.write_text(with_commands(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
