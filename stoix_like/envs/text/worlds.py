"""The worlds that are read and acted in as text: how each is written, how its actions are spelled, and its marks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

from stoix_like.config.checks.values import nearest
from stoix_like.envs.text import frozen_lake, sokoban
from stoix_like.envs.text.sudoku import SIZE
from stoix_like.envs.text.writing import lake_pieces, room_pieces, sudoku_pieces
from stoix_like.errors import ConfigError
from stoix_like.types import Environment, Pieces, Prompt, TextWorld


class TextMaker(NamedTuple):
    """How an environment becomes a world of text.

    Attributes:
        name: of the world in marks, and of its file of prompts.
        sizes: state after a reset -> {name of a size: number}, the same for all levels.
        pieces: (**sizes) -> {rendering: how states are written}.
        grammar: the spelling of each action.
        succeeded: a state -> the one on its level in which the task is done; None if there are several.
    """

    name: str
    sizes: Callable[[Any], dict[str, Any]]
    pieces: Callable[..., Mapping[str, Pieces]]
    grammar: tuple[str, ...]
    succeeded: Callable[[Any], Any] | None = None


def text_world(env: Environment, prompts: Mapping[str, Prompt], budget: tuple[int, int] | None = None) -> TextWorld:
    """The world of text of an environment. Raises ConfigError if it is none of `TEXT_WORLDS`.

    With a budget of (turns, actions a turn), the ceiling is that of players who write so many actions at once.
    """
    maker = _maker(env)
    if budget is not None and env.ceiling is not None:
        env = env._replace(ceiling=functools.partial(env.ceiling, budget=budget))
    return TextWorld(env, maker.pieces(**sizes(env)), maker.grammar, prompts)


def name_of(env: Environment) -> str:
    """The name of a world of text. Raises ConfigError if the environment is none of `TEXT_WORLDS`."""
    return _maker(env).name


def succeeded_of(env: Environment) -> Callable[[Any], Any] | None:
    """(state) -> the state of its level in which the task is done. None if a world has several.

    Raises ConfigError if the environment is none of `TEXT_WORLDS`.
    """
    return _maker(env).succeeded


def sizes(env: Environment) -> dict[str, int]:
    """{"size"}, {"num_rows", "num_cols", "num_boxes"} or {"num_empty"}: numbers of which prompts speak.

    They are read from one level, which is drawn. Raises ConfigError if the environment is none of `TEXT_WORLDS`.
    """
    maker = _maker(env)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    return {name: int(number) for name, number in maker.sizes(state).items()}


def marks(env: Environment) -> tuple[str, ...]:
    """The words for world and sizes, such as ("<sokoban>", "6", "6", "1"), that begin a prompt of words.

    Raises ConfigError if the environment is none of `TEXT_WORLDS`.
    """
    return (f"<{_maker(env).name}>", *(str(number) for number in sizes(env).values()))


def _maker(env: Environment) -> TextMaker:
    if env.task_id not in TEXT_WORLDS:
        raise ConfigError(
            f"'{env.task_id}' is no world of text{nearest(env.task_id, TEXT_WORLDS)}",
            f"worlds of text: {', '.join(TEXT_WORLDS)}",
        )
    return TEXT_WORLDS[env.task_id]


def _room_sizes(state: sokoban.SokobanState) -> dict[str, Any]:
    num_rows, num_cols = state.room.walls.shape
    return {"num_rows": num_rows, "num_cols": num_cols, "num_boxes": state.room.boxes.sum()}


#: {task id: how its environment becomes a world of text}
TEXT_WORLDS: dict[str, TextMaker] = {
    "FrozenLake-text-v0": TextMaker(
        "frozen_lake",
        lambda state: {"size": state.lake.holes.shape[0]},
        lake_pieces,
        frozen_lake.MOVE_NAMES,
        lambda state: state._replace(position=state.lake.goal),
    ),
    "Sokoban-text-v0": TextMaker("sokoban", _room_sizes, room_pieces, sokoban.MOVE_NAMES),
    "Sudoku-text-v0": TextMaker(
        "sudoku",
        lambda state: {"num_empty": (~state.given).sum()},
        sudoku_pieces,
        tuple(
            f"{row},{column},{number}"
            for row in range(1, SIZE + 1)
            for column in range(1, SIZE + 1)
            for number in range(1, SIZE + 1)
        ),
    ),
}
