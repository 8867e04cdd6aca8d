"""Drawings of games: a frame for each position of every game, and the mark of the last move."""

from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from PIL import Image, ImageSequence

from stoix_like.config.checks.board_games import GAMES
from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.ringrift.boards import make_board
from stoix_like.runtime.figures import board_shapes, boards

STACKS = ("square8", "hex8", "square8_swap", "hex8_swap")
FIRST_MOVES = {"othello": 19}  # d3; elsewhere the first action is legal


def drawn(name, path):
    """(game, states, frames as RGB) of the position before and after the first move."""
    game = make_game(name)
    states = [game.init(), jax.jit(game.step)(game.init(), FIRST_MOVES.get(name, 0))]
    boards.save_board_gif(game, states, path)
    with Image.open(path) as image:
        return game, states, [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(image)]


@pytest.mark.parametrize("name", [name for name in GAMES if name not in STACKS])
def test_every_position_is_a_frame_and_shows_its_stones(name, tmp_path):
    game, states, (before, after) = drawn(name, tmp_path / "game.gif")
    centres, (width, height) = board_shapes.cell_centres(game)
    assert before.shape[1] == width
    assert before.shape[0] > height  # a line of text below
    for frame, state in ((before, states[0]), (after, states[1])):
        cells = np.asarray(game.cells(state))
        for (x, y), owner in zip(centres, cells, strict=True):
            wanted = board_shapes.EMPTY if owner < 0 else board_shapes.COLOURS[owner]
            pixel = frame[round(y), round(x)].astype(int)
            assert np.abs(pixel - [int(wanted[i : i + 2], 16) for i in (1, 3, 5)]).max() < 24, (name, owner)


def test_the_mark_is_on_the_new_stone_and_not_on_those_that_it_turned(tmp_path):
    game, states, (_, after) = drawn("othello", tmp_path / "game.gif")
    cells, before = (np.asarray(game.cells(state)) for state in states[::-1])
    placed, turned = np.flatnonzero((before < 0) & (cells >= 0)), np.flatnonzero((before >= 0) & (cells != before))
    assert (len(placed), len(turned)) == (1, 1)
    centres, _ = board_shapes.cell_centres(game)
    ring = np.arange(6, 13)  # pixels around its radius, 0.2 of a cell
    darkness = {
        kind: after[round(y), round(x) + ring].max(axis=1).min()
        for kind, (x, y) in (("placed", centres[placed[0]]), ("turned", centres[turned[0]]))
    }
    assert darkness["placed"] < 120 < darkness["turned"]


def ringrift_position():
    """Two rings of player 2 on one of player 1, a marker of each, and a cell that player 1 owns: cells 10 to 13."""
    game = make_game("hex8:3")
    word, bits = np.divmod(make_board("hex8").bits[10:14], 32)
    state = game.init()
    rings, markers, collapsed = (np.array(leaf) for leaf in (state.rings, state.markers, state.collapsed))
    for level, player in enumerate((1, 1, 0)):
        rings[level, player, word[0]] |= np.uint32(1) << np.uint32(bits[0])
    markers[0, word[1]] |= np.uint32(1) << np.uint32(bits[1])
    markers[2, word[2]] |= np.uint32(1) << np.uint32(bits[2])
    collapsed[0, word[3]] |= np.uint32(1) << np.uint32(bits[3])
    return game, state._replace(rings=rings, markers=markers, collapsed=collapsed)


def test_stacks_are_piles_of_rings_with_markers_and_territory(tmp_path):
    game, state = ringrift_position()
    drawn = board_shapes.drawing(game, state)
    centres, _ = board_shapes.cell_centres(game)
    cells, others = drawn.shapes[: len(centres)], drawn.shapes[len(centres) :]
    assert [shape.fill for shape in cells].count(board_shapes.EMPTY) == 60
    first, second, third = board_shapes.COLOURS[:3]
    assert [shape.fill for shape in others] == [first, second, second, first, third]  # from the lowest ring up
    assert [shape.kind for shape in others] == ["polygon"] * 3 + ["ellipse"] * 2
    heights = [np.mean([y for _, y in shape.points]) for shape in others[:3]]
    assert heights == sorted(heights, reverse=True)
    assert all(np.allclose(np.mean(shape.points, axis=0)[0], centres[10][0]) for shape in others[:3])
    boards.save_board_gif(game, [game.init(), state], tmp_path / "game.gif")
    with Image.open(tmp_path / "game.gif") as image:
        assert image.n_frames == 2


def test_an_svg_has_all_shapes():
    game, state = ringrift_position()
    root = ElementTree.fromstring(boards.board_svg(game, state))
    assert [child.tag.rpartition("}")[2] for child in root].count("polygon") == 61 + 3
    assert [child.tag.rpartition("}")[2] for child in root].count("ellipse") == 2


def texts_of(svg):
    """{text: (its place, its colour)} of an SVG."""
    found = [child for child in ElementTree.fromstring(svg).iter() if child.tag.endswith("}text")]
    return {child.text: (float(child.get("x")), float(child.get("y")), child.get("fill")) for child in found}


def test_names_stand_at_the_lower_ends_of_cells_in_a_colour_that_is_seen():
    game, state = ringrift_position()
    names = [f"<{cell}>" for cell in range(61)]
    texts = texts_of(boards.board_svg(game, state, names))
    assert list(texts) == names
    centres, _ = board_shapes.cell_centres(game)
    for (x, y), name in zip(centres, names, strict=True):
        assert texts[name][0] == pytest.approx(x, abs=0.06)
        assert y + 17 < texts[name][1] < y + 24  # below a pile of four rings, within the cell
    assert {name: texts[name][2] for name in names if texts[name][2] != board_shapes.TEXT} == {
        "<13>": board_shapes.EMPTY  # on a cell that somebody owns
    }


def test_notes_below_say_what_players_have_beside_the_board():
    game, state = ringrift_position()
    drawn = board_shapes.drawing(game, state._replace(hand=np.array([3, 4, 5], np.int8)))
    assert [note.text.split(",")[0] for note in drawn.notes] == ["3 in hand", "4 in hand", "5 in hand"]
    assert [note.mark.fill for note in drawn.notes] == list(board_shapes.COLOURS[:3])
    _, (_, height) = board_shapes.cell_centres(game)
    assert height < drawn.notes[0].point[1] < drawn.notes[2].point[1] < drawn.height
    texts = texts_of(boards.board_svg(game, state))
    assert next(iter(texts)) == "18 in hand, 0 of 24 eliminated, 1 of 21 territory"
    assert board_shapes.drawing(game, state, shown=[1]).notes == []  # nor with names, as on a map of the board
    othello = make_game("othello")
    assert texts_of(boards.board_svg(othello, othello.init())) == {}


def test_some_cells_alone_are_drawn_in_a_picture_of_their_size():
    game, state = ringrift_position()
    part = board_shapes.drawing(game, state, names=[str(cell) for cell in range(61)], shown=[11, 12, 13])  # of one row
    whole = board_shapes.drawing(game, state)
    assert part.shapes[2].fill == whole.shapes[13].fill != board_shapes.EMPTY  # owned
    assert [shape.fill for shape in part.shapes[3:]] == [shape.fill for shape in whole.shapes[-2:]]  # two markers
    assert [label.text for label in part.labels] == ["11", "12", "13"]
    assert (part.width, part.height) == (3 * board_shapes.CELL + 8, board_shapes.CELL + 8)
    corners = np.array([point for shape in part.shapes[:3] for point in shape.points])
    assert corners[:, 0].min() == pytest.approx(4)
    assert corners[:, 0].max() == pytest.approx(part.width - 4)


def test_the_mark_of_the_last_move_is_drawn_if_its_cell_is_shown():
    game, state = ringrift_position()
    shapes = [board_shapes.drawing(game, state, game.init(), shown=shown).shapes for shown in ([9, 10], [8, 9])]
    assert [sum(shape.fill is None for shape in found) for found in shapes] == [1, 0]
