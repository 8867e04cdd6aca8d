"""docs/ringrift.md: its drawings, numbers, commands and counts are those of the code."""

import re
from collections import Counter

import jax
import numpy as np
import pytest
import ringrift_drawings
from envs.ringrift.test_cases import CASES, kind_of
from support.paths import ROOT

from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.ringrift.actions import PAIR, PAY, PLACE, REGION, SEGMENT, SKIP, WHOLE, make_actions
from stoix_like.envs.ringrift.planes import num_planes
from stoix_like.envs.ringrift.state import make_rules

PAGE = (ROOT / "docs" / "ringrift.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("|")]
NAMES = ("hex8", "hex8:3", "hex8:4", "square8", "square8:3", "square8:4")
#: How cases are compared, in the order of the page.
KINDS = ("whole", "refused", "effects", "contradicted", "a turn fits", "no turn fits", "game")


def rules_of(name):
    return make_rules(name.partition(":")[0], make_game(name).num_players)


def test_the_drawings_are_up_to_date_small_and_all_shown():
    assert [path.name for path in ringrift_drawings.outdated()] == [], "run: make docs"
    there = {path.name: path.stat().st_size for path in ringrift_drawings.FOLDER.iterdir()}
    assert max(there.values()) < 20_000
    assert sorted(re.findall(r"\]\(images/ringrift/([\w.]+)\)", PAGE)) == sorted(there)


def test_a_drawing_of_what_is_not_legal_is_an_error():
    (figure,) = (figure for figure in ringrift_drawings.FIGURES if figure.name == "capture")
    board = rules_of(ringrift_drawings.SMALL).board
    state = ringrift_drawings.start_of(board, figure, ringrift_drawings.words_of(board, figure))
    with pytest.raises(AssertionError, match="a1 to b2 is not legal"):
        ringrift_drawings.played(state, ["a1 to b2"])


@pytest.mark.parametrize("figure", ringrift_drawings.FIGURES, ids=lambda figure: figure.name)
def test_the_page_names_the_actions_that_were_drawn(figure):
    heads = [line for line in PAGE.splitlines() if line.startswith("| before |")]
    (head,) = [head for head, below in zip(heads, figure_rows(), strict=True) if f"/{figure.name}_0.svg" in below]
    written = re.findall(r"`([^`]+)`", head)
    drawn = [name for actions in figure.actions for name in actions]
    assert list(dict.fromkeys(written)) == list(dict.fromkeys(drawn))


def figure_rows():
    lines = PAGE.splitlines()
    return [lines[index + 2] for index, line in enumerate(lines) if line.startswith("| before |")]


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_are_those_of_the_game(name):
    game, rules = make_game(name), rules_of(name)
    size = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(game.init()))
    numbers = (rules.line_length, rules.ring_victory, rules.territory_victory, game.num_actions, game.max_plies, size)
    row = [f"`{name}`", str(rules.board.num_cells), *(f"{number:,}" for number in numbers), str(num_planes(rules))]
    assert row in ROWS


def test_the_numbers_of_actions_by_kind_are_those_of_hex8():
    counts = Counter(make_actions(rules_of("hex8")).kind.tolist())
    wanted = [counts[kind] for kind in (PLACE, PAIR, WHOLE, SEGMENT, REGION, PAY, SKIP)]
    first = next(index for index, row in enumerate(ROWS) if row[0] == "actions") + 2
    assert [int(row[1].replace(",", "")) for row in ROWS[first : first + len(wanted)]] == wanted
    assert make_game("hex8_swap").num_actions == make_game("hex8").num_actions + 1


@pytest.mark.parametrize("name", NAMES)
def test_the_planes_add_up(name):
    """The table of planes, with the letters of the page."""
    rules = rules_of(name)
    first = next(index for index, row in enumerate(ROWS) if row[0] == "planes") + 2
    formulas = [row[1] for row in ROWS[first : first + 12]]
    values = {"H": rules.board.max_height, "P": rules.num_players}
    python = [re.sub(r"(\d) P", r"\1 * P", formula).replace("·", "*").replace("−", "-") for formula in formulas]
    assert sum(eval(formula, {}, values) for formula in python) == num_planes(rules)


def test_the_counts_of_recorded_cases_are_those_of_the_tests():
    counts = Counter(map(kind_of, CASES))
    first = next(index for index, row in enumerate(ROWS) if row[0] == "how a case is compared") + 2
    assert [int(row[1]) for row in ROWS[first : first + len(KINDS)]] == [counts[kind] for kind in KINDS]
    assert f"There are {len(CASES)}:" in PAGE
