"""Games on boards as animated GIFs, one frame for each position with the last move marked, and positions as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from stoix_like.games import BoardGame
from stoix_like.runtime.figures.board_shapes import EMPTY, TEXT, Drawing, Label, Note, Shape, drawing

_SCALE = 2  # drawn larger and reduced, so that edges are smooth
_MARGIN = 28
_NAME_SIZE, _NOTE_SIZE, _CAPTION_SIZE = 9, 13, 16  # pixels
_MILLISECONDS, _LAST_MILLISECONDS = 450, 2500


def save_board_gif(game: BoardGame, states: Sequence[Any], path: Path) -> None:
    """Writes the positions of one game, in order, as a GIF."""
    drawings = [drawing(game, state, before) for state, before in zip(states, [None, *states[:-1]], strict=True)]
    frames = [_frame(drawn, _caption(game, state)) for drawn, state in zip(drawings, states, strict=True)]
    durations = [_MILLISECONDS] * (len(frames) - 1) + [_LAST_MILLISECONDS]
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0)


def board_svg(
    game: BoardGame, state: Any, names: Sequence[str] | None = None, shown: Sequence[int] | None = None
) -> str:
    """A position as the text of an SVG, with `names` [C] on the cells; of the `shown` cells alone, if given."""
    drawn = drawing(game, state, names=names, shown=shown)
    size = f'width="{drawn.width}" height="{drawn.height}" viewBox="0 0 {drawn.width} {drawn.height}"'
    ground = f'<rect width="100%" height="100%" fill="{EMPTY}"/>'
    lines = [ground, *map(_svg_shape, drawn.shapes), *_svg_labels(drawn.labels), *_svg_notes(drawn.notes)]
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', *lines, "</svg>\n"])


def _svg_labels(labels: Sequence[Label]) -> list[str]:
    if not labels:
        return []
    texts = [f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{escape(text)}</text>' for (x, y), text, colour in labels]
    return [f'<g font-family="sans-serif" font-size="{_NAME_SIZE}" text-anchor="middle">', *texts, "</g>"]


def _svg_notes(notes: Sequence[Note]) -> list[str]:
    if not notes:
        return []
    marks = [_svg_shape(note.mark) for note in notes]
    texts = [f'<text x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>' for (x, y), text, _ in notes]
    style = f'font-family="sans-serif" font-size="{_NOTE_SIZE}" fill="{TEXT}" dominant-baseline="central"'
    return ["<g>", *marks, f"<g {style}>", *texts, "</g>", "</g>"]


def _svg_shape(shape: Shape) -> str:
    outline = "" if shape.outline is None else f' stroke="{shape.outline}" stroke-width="{shape.width:g}"'
    paint = f'fill="{shape.fill or "none"}"{outline}'
    if shape.kind == "polygon":
        return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in shape.points)}" {paint}/>'
    (left, top), (right, bottom) = shape.points
    middle = f'cx="{(left + right) / 2:.1f}" cy="{(top + bottom) / 2:.1f}"'
    return f'<ellipse {middle} rx="{(right - left) / 2:.1f}" ry="{(bottom - top) / 2:.1f}" {paint}/>'


def _caption(game: BoardGame, state: Any) -> str:
    if not bool(game.is_over(state)):
        return f"player {int(game.player(state)) + 1} to move"
    outcome = np.asarray(game.outcome(state))
    winners = np.flatnonzero(outcome == outcome.max())
    who = ", ".join(str(winner + 1) for winner in winners)
    return "draw" if len(winners) == game.num_players else f"player {who} has won"


def _frame(drawn: Drawing, caption: str) -> Any:
    from PIL import Image, ImageDraw

    width, height = drawn.width, drawn.height
    image = Image.new("RGB", (width * _SCALE, (height + _MARGIN) * _SCALE), EMPTY)
    draw = ImageDraw.Draw(image)
    for shape in [*drawn.shapes, *(note.mark for note in drawn.notes)]:
        points = [(x * _SCALE, y * _SCALE) for x, y in shape.points]
        paint = draw.polygon if shape.kind == "polygon" else draw.ellipse
        paint(points, fill=shape.fill, outline=shape.outline, width=round(shape.width * _SCALE))
    for (x, y), text, _ in drawn.notes:
        draw.text((x * _SCALE, y * _SCALE), text, fill=TEXT, font_size=_NOTE_SIZE * _SCALE, anchor="lm")
    draw.text((_MARGIN * _SCALE // 2, height * _SCALE), caption, fill=TEXT, font_size=_CAPTION_SIZE * _SCALE)
    return image.resize((width, height + _MARGIN), Image.Resampling.LANCZOS).convert(
        "P", palette=Image.Palette.ADAPTIVE, colors=256
    )
