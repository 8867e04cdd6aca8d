"""Tables of what commands answer, written as on a terminal."""

import re
import shlex

import pytest


def unfolded(text):
    """The lines of a table; an indented line goes on with the one above it."""
    return re.sub(r"\n +", " ", text.strip()).splitlines()


def rows(text):
    """Pairs of texts, from lines `one => other`, each row with the first as its name."""
    pairs = [line.split(" => ") for line in unfolded(text) if line]
    return [pytest.param(one, other, id=one) for one, other in pairs]


def transcripts(text):
    """Rows (exit code, words of the command, lines of its answer) of blocks such as `2$ plot --bogus`, error, hint."""
    found = []
    for block in re.split(r"\n(?=\d\$ )", "\n".join(filter(None, unfolded(text)))):
        head, *lines = block.splitlines()
        code, command = head.split("$ ", 1)
        found.append(pytest.param(int(code), shlex.split(command), lines, id=command))
    return found


def assert_shown(lines, expected):
    """That they are these lines; of one that ends in … what follows there is left open."""
    for line, shown in zip(lines, expected, strict=True):
        assert line == shown or (shown.endswith("…") and line.startswith(shown[:-1])), line
