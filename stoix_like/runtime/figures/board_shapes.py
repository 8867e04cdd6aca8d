"""Positions of board games as shapes, for pictures of any format: sizes in pixels, colours as `#rrggbb`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from stoix_like.games import BoardGame

CELL = 48  # pixels
COLOURS = ("#d1495b", "#f2c14e", "#3d7ea6", "#6a994e")  # of the players; they differ in greyscale
BOARD, LINE, EMPTY, TEXT = "#2f4858", "#22333b", "#f4f1ea", "#22333b"
_STONE, _MARKER, _NEW = 0.38, 0.2, 0.2  # radii, of a cell
_PILE_WIDTH, _PILE_HEIGHT = 0.34, 0.84  # of a stack of rings, half and at most, of a cell
_RING_HEIGHT = 0.16  # at most, of a cell
_GROUND = 0.35  # how much of the owner's colour a collapsed cell has
_NOTE = 20  # pixels, the height of a line below the board
_NAME = 0.45  # how far below the centre of a cell its name stands, of a cell

Point = tuple[float, float]


class Shape(NamedTuple):
    """A polygon by its corners, or an ellipse by two corners of the rectangle around it."""

    kind: Literal["polygon", "ellipse"]
    points: tuple[Point, ...]
    fill: str | None
    outline: str | None = None
    width: float = 1.0


class Label(NamedTuple):
    """A small text, centred above a point."""

    point: Point
    text: str
    colour: str


class Note(NamedTuple):
    """A line of text below the board, which begins at the left of a point at half its height, after a player's mark."""

    point: Point
    text: str
    mark: Shape


class Drawing(NamedTuple):
    """The shapes of a position, the first ones below, texts above them, and the size of the picture with its notes."""

    shapes: list[Shape]
    labels: list[Label]
    width: int
    height: int
    notes: Sequence[Note] = ()


def drawing(
    game: BoardGame,
    state: Any,
    before: Any = None,
    names: Sequence[str] | None = None,
    shown: Sequence[int] | None = None,
) -> Drawing:
    """A position; with the state before it the cells that were empty and are taken now are marked.

    `names` [C] are written on the cells. If cells are `shown`, these alone are drawn, in a picture of their size. Of a
    whole board without names notes below say what the players have beside it.
    """
    chosen = np.arange(game.layout.num_cells) if shown is None else np.asarray(shown)
    centres, (width, height) = cell_centres(game, chosen)
    owners = np.asarray(game.cells(state))
    is_new = np.zeros(len(owners), bool)
    if before is not None:  # not what was turned over
        is_new = (np.asarray(game.cells(before)) < 0) & (owners >= 0)
    if game.picture is None:
        cells = [_cell(game.layout.kind, centre) for centre in centres]
        pieces = [_stone(centre, int(owner)) for centre, owner in zip(centres, owners[chosen], strict=True)]
    else:
        cells, pieces = _stacks(game, state, chosen, centres)
    marks = [_new_mark(centre) for centre, marked in zip(centres, is_new[chosen], strict=True) if marked]
    labels = [] if names is None else _labels([names[cell] for cell in chosen.tolist()], cells, centres)
    notes = _notes(game, state, height) if names is None and shown is None else []
    return Drawing(cells + pieces + marks, labels, width, height + len(notes) * _NOTE, notes)


def cell_centres(game: BoardGame, shown: np.ndarray | None = None) -> tuple[list[Point], tuple[int, int]]:
    """(the centre of each cell, or of those shown, the size of the drawing), pixels. Rows of hexagons are half a cell
    further right."""
    is_hex = game.layout.kind == "hex"
    shift, down = (0.5, math.sqrt(3) / 2) if is_hex else (0.0, 1.0)
    places = game.layout.places if shown is None else game.layout.places[shown]
    across = places[:, 1] + shift * places[:, 0]
    across, rows, half = across - across.min(), places[:, 0] - places[:, 0].min(), CELL / 2 + 4
    centres = [(half + x * CELL, half + row * down * CELL) for x, row in zip(across, rows, strict=True)]
    return centres, (round(2 * half + across.max() * CELL), round(2 * half + rows.max() * down * CELL))


def _cell(kind: str, centre: Point, fill: str = BOARD) -> Shape:
    x, y = centre
    half = CELL / 2
    if kind == "hex":
        size = half / math.cos(math.pi / 6)
        corners = [(x + size * math.sin(k * math.pi / 3), y + size * math.cos(k * math.pi / 3)) for k in range(6)]
    else:
        corners = [(x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)]
    return Shape("polygon", tuple(corners), fill, LINE)


def _circle(centre: Point, radius: float, fill: str | None, outline: str | None = None, width: float = 1.0) -> Shape:
    x, y = centre
    return Shape("ellipse", ((x - radius, y - radius), (x + radius, y + radius)), fill, outline, width)


def _stone(centre: Point, owner: int) -> Shape:
    return _circle(centre, _STONE * CELL, EMPTY if owner < 0 else COLOURS[owner % len(COLOURS)])


def _new_mark(centre: Point) -> Shape:
    return _circle(centre, _NEW * CELL, None, TEXT, 2.0)


def _labels(names: Sequence[str], cells: list[Shape], centres: list[Point]) -> list[Label]:
    """The names of cells at their lower ends, dark on light cells and light on dark ones."""
    return [
        Label((x, y + _NAME * CELL), name, TEXT if cell.fill == EMPTY else EMPTY)
        for name, cell, (x, y) in zip(names, cells, centres, strict=True)
    ]


def _notes(game: BoardGame, state: Any, top: int) -> list[Note]:
    """A line for each player of a game in which players have something beside the board, with a ring of its colour."""
    if game.wording is None or game.wording.holdings is None:
        return []
    found = []
    for player, text in enumerate(game.wording.holdings(state)):
        left, middle = _NOTE / 2, top + (player + 0.5) * _NOTE
        right, half = left + 2 * _PILE_WIDTH * CELL, _RING_HEIGHT * CELL / 2
        corners = ((left, middle - half), (right, middle - half), (right, middle + half), (left, middle + half))
        mark = Shape("polygon", corners, COLOURS[player % len(COLOURS)], LINE)
        found.append(Note((right + _NOTE / 2, middle), text, mark))
    return found


def _stacks(game: BoardGame, state: Any, shown: np.ndarray, centres: list[Point]) -> tuple[list[Shape], list[Shape]]:
    """(cells in the colours of their territory, stacks as piles of rings and markers as dots)."""
    assert game.picture is not None  # narrows the type
    rings, markers, territory = (np.asarray(leaf)[shown] for leaf in game.picture(state))
    cells = [
        _cell(game.layout.kind, centre, EMPTY if owner < 0 else _mixed(COLOURS[owner], BOARD, _GROUND))
        for centre, owner in zip(centres, territory, strict=True)
    ]
    pieces = []
    for centre, stack, marker in zip(centres, rings, markers, strict=True):
        if marker >= 0:
            pieces.append(_circle(centre, _MARKER * CELL, COLOURS[marker], LINE, 1.5))
        pieces += _pile(centre, stack[stack >= 0])
    return cells, pieces


def _pile(centre: Point, stack: np.ndarray) -> list[Shape]:
    """The rings of a stack, by owners from the lowest up, seen from the side."""
    x, y = centre
    thick = min(_RING_HEIGHT, _PILE_HEIGHT / max(len(stack), 1)) * CELL
    left, right, lowest = x - _PILE_WIDTH * CELL, x + _PILE_WIDTH * CELL, y + thick * len(stack) / 2
    shapes = []
    for level, owner in enumerate(stack):
        bottom, top = lowest - level * thick, lowest - (level + 1) * thick
        corners = ((left, top), (right, top), (right, bottom), (left, bottom))
        shapes.append(Shape("polygon", corners, COLOURS[owner], LINE))
    return shapes


def _mixed(colour: str, ground: str, share: float) -> str:
    """`share` of a colour on a ground."""
    parts = [(int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)
