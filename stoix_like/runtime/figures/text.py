"""Worlds that are text as animated GIFs: each state as the environment writes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

_SIZE, _MARGIN = 18, 16  # pixels
_PAPER, _INK = "#f4f1ea", "#22333b"
_MILLISECONDS, _LAST_MILLISECONDS = 450, 2500


def save_text_gif(render: Callable[[Any], str], states: Sequence[Any], path: Path) -> None:
    """Writes the texts of the states, in order, as a GIF."""
    from matplotlib import font_manager  # its font has all symbols, and one width for them
    from PIL import Image, ImageDraw, ImageFont

    texts = [render(jax.device_get(state)) for state in states]
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans Mono"), _SIZE)
    drawing = ImageDraw.Draw(Image.new("L", (1, 1)))
    boxes = [drawing.multiline_textbbox((0, 0), text, font=font) for text in texts]
    width, height = (int(max(box[side] for box in boxes)) + 2 * _MARGIN for side in (2, 3))
    frames = []
    for text in texts:
        image = Image.new("RGB", (width, height), _PAPER)
        ImageDraw.Draw(image).multiline_text((_MARGIN, _MARGIN), text, fill=_INK, font=font)
        frames.append(image)
    durations = [_MILLISECONDS] * (len(frames) - 1) + [_LAST_MILLISECONDS]
    frames[0].save(path, format="GIF", save_all=True, append_images=frames[1:], duration=durations, loop=0)
