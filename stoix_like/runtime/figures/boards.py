"""Games on boards as animated GIFs: one frame for each position, the last move marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stoix_like.games import BoardGame

CELL = 48  # pixels
_SCALE = 2  # drawn larger and reduced, so that edges are smooth
_MARGIN = 28
_COLOURS = ("#d1495b", "#f2c14e", "#3d7ea6", "#6a994e")  # of the players; they differ in greyscale
_BOARD, _LINE, _EMPTY, _TEXT = "#2f4858", "#22333b", "#f4f1ea", "#22333b"
_MILLISECONDS, _LAST_MILLISECONDS = 450, 2500


def save_board_gif(game: BoardGame, states: Sequence[Any], path: Path) -> None:
    """Writes the positions of one game, in order, as a GIF."""
    cells = [np.asarray(game.cells(state)) for state in states]
    captions = [_caption(game, state) for state in states]
    before = [None, *cells[:-1]]
    frames = [_frame(game, now, old, text) for now, old, text in zip(cells, before, captions, strict=True)]
    durations = [_MILLISECONDS] * (len(frames) - 1) + [_LAST_MILLISECONDS]
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0)


def _caption(game: BoardGame, state: Any) -> str:
    if not bool(game.is_over(state)):
        return f"player {int(game.player(state)) + 1} to move"
    outcome = np.asarray(game.outcome(state))
    winners = np.flatnonzero(outcome == outcome.max())
    who = ", ".join(str(winner + 1) for winner in winners)
    return "draw" if len(winners) == game.num_players else f"player {who} has won"


def _frame(game: BoardGame, cells: np.ndarray, before: np.ndarray | None, caption: str) -> Any:
    from PIL import Image, ImageDraw

    centres, (width, height) = _centres(game)
    image = Image.new("RGB", (width * _SCALE, (height + _MARGIN) * _SCALE), _EMPTY)
    draw = ImageDraw.Draw(image)
    changed = np.zeros(len(cells), bool) if before is None else (before < 0) & (cells >= 0)  # not what was turned over
    for index, (x, y) in enumerate(centres):
        _draw_cell(draw, game.layout.kind, x * _SCALE, y * _SCALE, int(cells[index]), bool(changed[index]))
    draw.text((_MARGIN * _SCALE // 2, height * _SCALE), caption, fill=_TEXT, font_size=16 * _SCALE)
    return image.resize((width, height + _MARGIN), Image.Resampling.LANCZOS).convert(
        "P", palette=Image.Palette.ADAPTIVE, colors=256
    )


def _centres(game: BoardGame) -> tuple[list[tuple[float, float]], tuple[int, int]]:
    """(the centre of each cell, the size of the drawing), pixels. Rows of hexagons are half a cell further right."""
    rows, columns = game.layout.shape
    is_hex = game.layout.kind == "hex"
    shift, down = (0.5, math.sqrt(3) / 2) if is_hex else (0.0, 1.0)
    half = CELL / 2 + 4
    centres = [(half + (c + shift * r) * CELL, half + r * down * CELL) for r in range(rows) for c in range(columns)]
    width = 2 * half + (columns - 1 + shift * (rows - 1)) * CELL
    return centres, (round(width), round(2 * half + (rows - 1) * down * CELL))


def _draw_cell(draw: Any, kind: str, x: float, y: float, owner: int, is_new: bool) -> None:
    half = CELL * _SCALE / 2
    if kind == "hex":
        size = half / math.cos(math.pi / 6)
        corners = [(x + size * math.sin(k * math.pi / 3), y + size * math.cos(k * math.pi / 3)) for k in range(6)]
        draw.polygon(corners, fill=_BOARD, outline=_LINE, width=_SCALE)
    else:
        draw.rectangle([x - half, y - half, x + half, y + half], fill=_BOARD, outline=_LINE, width=_SCALE)
    radius = 0.38 * CELL * _SCALE
    circle = [x - radius, y - radius, x + radius, y + radius]
    draw.ellipse(circle, fill=_EMPTY if owner < 0 else _COLOURS[owner % len(_COLOURS)])
    if is_new:
        ring = 0.2 * CELL * _SCALE
        draw.ellipse([x - ring, y - ring, x + ring, y + ring], outline=_TEXT, width=2 * _SCALE)
