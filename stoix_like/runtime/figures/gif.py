"""Episodes as animated GIFs. The environment draws them; no display is needed."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path

from stoix_like.errors import RunError, UnsupportedEnvironmentError
from stoix_like.runtime.figures.boards import save_board_gif
from stoix_like.runtime.figures.text import save_text_gif
from stoix_like.runtime.storage.atomic import atomic_write_output
from stoix_like.types import Environment, EnvState


def save_gif(env: Environment, states: list[EnvState], path: Path) -> Path:
    """The path of the GIF of an episode: `path` with the suffix .gif. It has one frame per state.

    Of a board game the states are those of the game, not of the environment.

    Raises UnsupportedEnvironmentError if the environment cannot be drawn, and RunError if there are no states, or the
    file cannot be written.
    """
    if not env.is_drawable:
        raise UnsupportedEnvironmentError(
            f"{env.task_id} cannot be drawn: it has no `animate`", "give Environment.animate, or choose another task"
        )
    if not states:
        raise RunError("an animation needs at least one state", "record an episode first")
    with atomic_write_output(path.with_suffix(".gif")) as temporary, _headless():
        if env.animate is not None:
            env.animate(states, str(temporary))
        elif env.render is not None:
            save_text_gif(env.render, states, temporary)
        else:
            save_board_gif(env.game, states, temporary)
    return path.with_suffix(".gif")


@contextlib.contextmanager
def _headless() -> Iterator[None]:
    """Switches matplotlib to a backend without windows and hides its warning that pillow replaces ffmpeg."""
    import matplotlib

    before = matplotlib.get_backend(auto_select=False)
    logger = logging.getLogger("matplotlib.animation")
    level = logger.level
    matplotlib.use("Agg")
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
        if before is not None:
            matplotlib.use(before, force=False)
