"""Sokoban: push every box onto a target. Levels of any size, made in jit by pulling boxes away from their targets.

Rules and rewards are those of gym_sokoban (mpSchrader/gym-sokoban), which RAGEN and SPA (arXiv 2510.15047) use. Rooms
are walks over a full grid, as there; a level is then played backwards at random, so that it can be solved.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from stoix_like.envs.text.banks import Bank, make_resets
from stoix_like.envs.text.grids import ROOM_MOVES, Position, Room, on_cell, position_text, rows_text
from stoix_like.envs.text.levels import draw_until, is_held_out
from stoix_like.envs.text.oracles import Turns, sokoban_ceiling
from stoix_like.errors import ConfigError
from stoix_like.types import FIRST, LAST, MID, ActionSpec, Array, Environment, Key, Observation, TimeStep

MOVE_NAMES = ("Up", "Down", "Left", "Right")
STEP_REWARD, BOX_REWARD, SOLVED_REWARD = -0.1, 1.0, 10.0
ROOM_TURNS = 0.35  # probability that a walk that digs a room turns, as in gym_sokoban
#: What a step of that walk digs, relative to where it is: five shapes of 3 by 3, as in gym_sokoban.
ROOM_SHAPES = np.array(
    [
        [[0, 0, 0], [1, 1, 1], [0, 0, 0]],
        [[0, 1, 0], [0, 1, 0], [0, 1, 0]],
        [[0, 0, 0], [1, 1, 0], [0, 1, 0]],
        [[0, 0, 0], [1, 1, 0], [1, 1, 0]],
        [[0, 0, 0], [0, 1, 1], [0, 1, 0]],
    ],
    bool,
)


class SokobanState(NamedTuple):
    """A room that is played."""

    room: Room
    num_actions: Array  # [] int32 since the reset


class _Rules(NamedTuple):
    shape: tuple[int, int]
    num_boxes: int
    max_actions: int
    num_pulls: int


def make_sokoban(
    num_rows: int = 6,
    num_cols: int = 6,
    num_boxes: int = 1,
    max_actions: int = 10,
    num_pulls: int = 20,
    bank: Bank | None = None,
) -> Environment:
    """Sokoban of `num_rows` times `num_cols` cells, the border included.

    -0.1 a step, 1 for a box that comes onto a target, -1 for one that leaves it, 10 at the end if all are on targets.

    Args:
        num_rows, num_cols, num_boxes: of the room, which has as many targets.
        max_actions: the limit. It belongs to the task: the steps made are in the observation, and the end is one.
        num_pulls: random moves backwards from the solved room, by which a level is made. Levels that no `max_actions`
            moves solve may come of more of them than the limit.
        bank: levels that were made before, in rooms of the same size. By default each reset makes one from its key.

    Raises:
        ConfigError: sizes in which boxes have no room.
    """
    rules = _Rules((num_rows, num_cols), num_boxes, max_actions, num_pulls)
    _check(rules)
    reset, held_out = make_resets(functools.partial(_reset, rules), functools.partial(_drawn, rules), bank)
    return Environment(
        reset,
        functools.partial(_step, rules),
        ActionSpec(4),
        task_id="Sokoban-text-v0",
        deterministic=True,
        episode_metrics=lambda state, _: {"solve_rate": _is_solved(state.room).astype(jnp.float32)},
        rekey=lambda state, _: state,
        observation_adapter="cells",
        time_limit=max_actions,
        held_out=held_out,
        render=_render,
        ceiling=lambda state, budget=None: sokoban_ceiling(state.room, Turns.of_budget(budget, max_actions)),
        bank_hash=None if bank is None else bank.hash,
    )


def _drawn(rules: _Rules, held_out: bool, key: Key) -> Room:
    def draw(key: Key) -> Room:
        room_key, pull_key = jax.random.split(key)
        return _pulled(_solved_room(room_key, rules.shape, rules.num_boxes), pull_key, rules.num_pulls)

    def accept(room: Room) -> Array:
        has_all = (room.targets.sum() == rules.num_boxes) & ~room.walls[room.player.row, room.player.col]
        return has_all & ~_is_solved(room) & (is_held_out(room) == held_out)

    return draw_until(draw, accept, key)


def _reset(rules: _Rules, draw: Callable[[Key], Room], key: Key) -> tuple[SokobanState, TimeStep]:
    state = SokobanState(draw(key), jnp.int32(0))
    return state, _timestep(state, jnp.int8(FIRST), jnp.float32(0.0), rules.max_actions)


def _step(rules: _Rules, state: SokobanState, action: Array) -> tuple[SokobanState, TimeStep]:
    room = move(state.room, jnp.asarray(ROOM_MOVES)[action])
    state, before = SokobanState(room, state.num_actions + 1), _num_placed(state.room)
    solved = _is_solved(room)
    reward = STEP_REWARD + BOX_REWARD * (_num_placed(room) - before) + jnp.where(solved, SOLVED_REWARD, 0.0)
    step_type = jnp.where(solved | (state.num_actions >= rules.max_actions), LAST, MID).astype(jnp.int8)
    return state, _timestep(state, step_type, reward.astype(jnp.float32), rules.max_actions)


def move(room: Room, direction: Array) -> Room:
    """The room after a move [2]: into a free cell, or into that of a box which has a free cell behind it."""
    ahead, behind = _neighbour(room, direction, 1), _neighbour(room, direction, 2)
    has_box = room.boxes[ahead.row, ahead.col]
    is_free = ~(room.walls | room.boxes)[behind.row, behind.col]
    moves = ~room.walls[ahead.row, ahead.col] & (~has_box | is_free)
    pushed = (room.boxes & ~on_cell(ahead, room.boxes.shape)) | on_cell(behind, room.boxes.shape)
    boxes = jnp.where(moves & has_box, pushed, room.boxes)
    player = jax.tree.map(lambda new, old: jnp.where(moves, new, old), ahead, room.player)
    return room._replace(boxes=boxes, player=player)


def pull(room: Room, direction: Array, takes_box: Array) -> Room:
    """The room before a move in the opposite of `direction`: the player steps, and takes a box behind it along."""
    ahead, behind = _neighbour(room, direction, 1), _neighbour(room, direction, -1)
    moves = ~(room.walls | room.boxes)[ahead.row, ahead.col]
    takes = moves & takes_box & room.boxes[behind.row, behind.col]
    pulled = (room.boxes & ~on_cell(behind, room.boxes.shape)) | on_cell(room.player, room.boxes.shape)
    player = jax.tree.map(lambda new, old: jnp.where(moves, new, old), ahead, room.player)
    return room._replace(boxes=jnp.where(takes, pulled, room.boxes), player=player)


def _neighbour(room: Room, direction: Array, distance: int) -> Position:
    """The cell so far in a direction, or the border, which is a wall."""
    rows, columns = room.walls.shape
    row, col = room.player.row + distance * direction[0], room.player.col + distance * direction[1]
    return Position(jnp.clip(row, 0, rows - 1), jnp.clip(col, 0, columns - 1))


def _solved_room(key: Key, shape: tuple[int, int], num_boxes: int) -> Room:
    """A room dug by a walk, with boxes on random targets and the player on another cell."""
    walk_key, cells_key = jax.random.split(key)
    walls = _dug(walk_key, shape)
    places = jax.random.uniform(cells_key, shape) + walls  # random order of the free cells, walls last
    order = jnp.argsort(places.reshape(-1))
    chosen = [Position.of_cell(order[i], shape[1]) for i in range(num_boxes + 1)]
    targets = jnp.zeros(shape, bool)
    for place in chosen[:-1]:
        targets |= on_cell(place, shape) & ~walls
    return Room(walls, targets, targets, chosen[-1])


def num_room_steps(shape: tuple[int, int]) -> int:
    """The steps of the walk that digs a room [R, C], as in gym_sokoban."""
    return int(1.7 * sum(shape))


def _dug(key: Key, shape: tuple[int, int]) -> Array:
    """[R, C] bool walls: a random walk digs its shapes out of rock."""
    start_key, walk_key = jax.random.split(key)
    inside = jnp.array([shape[0] - 2, shape[1] - 2])
    start = 1 + jnp.floor(jax.random.uniform(start_key, (2,)) * inside).astype(jnp.int32)
    direction = jax.random.randint(jax.random.fold_in(start_key, 1), (), 0, 4)
    rows, columns = jnp.arange(shape[0])[:, None], jnp.arange(shape[1])[None]

    def dig(_: Array, carry: tuple[Array, Array, Array, Key]) -> tuple[Array, Array, Array, Key]:
        free, place, direction, key = carry
        key, turn_key, direction_key, shape_key = jax.random.split(key, 4)
        turned = jax.random.randint(direction_key, (), 0, 4)
        direction = jnp.where(jax.random.bernoulli(turn_key, ROOM_TURNS), turned, direction)
        place = jnp.clip(place + jnp.asarray(ROOM_MOVES)[direction], 1, inside)
        brush = jnp.asarray(ROOM_SHAPES)[jax.random.randint(shape_key, (), 0, len(ROOM_SHAPES))]
        near = (abs(rows - place[0]) <= 1) & (abs(columns - place[1]) <= 1)
        row, col = jnp.clip(rows - place[0] + 1, 0, 2), jnp.clip(columns - place[1] + 1, 0, 2)
        return free | (near & brush[row, col]), place, direction, key

    free, *_ = lax.fori_loop(0, num_room_steps(shape), dig, (jnp.zeros(shape, bool), start, direction, walk_key))
    is_border = (rows == 0) | (rows == shape[0] - 1) | (columns == 0) | (columns == shape[1] - 1)
    return ~free | is_border


def _pulled(room: Room, key: Key, num_pulls: int) -> Room:
    """The room after random moves backwards; a box behind the player mostly comes along."""

    def back(room: Room, key: Key) -> tuple[Room, None]:
        direction_key, takes_key = jax.random.split(key)
        direction = jnp.asarray(ROOM_MOVES)[jax.random.randint(direction_key, (), 0, 4)]
        return pull(room, direction, jax.random.bernoulli(takes_key, 0.8)), None

    room, _ = lax.scan(back, room, jax.random.split(key, num_pulls))
    return room


def _num_placed(room: Room) -> Array:
    return (room.boxes & room.targets).sum()


def _is_solved(room: Room) -> Array:
    return jnp.all(room.boxes == room.targets)


def _check(rules: _Rules) -> None:
    (num_rows, num_cols), num_boxes, max_actions, num_pulls = rules
    problems = []
    if min(num_rows, num_cols) < 3 or max(num_rows, num_cols) < 5:
        what = f"a room needs at least 3 by 5 cells with its border, got {num_rows} by {num_cols}"
        problems.append(f"environment.kwargs: {what}")
    elif not 1 <= num_boxes <= (num_rows - 2) * (num_cols - 2) // 3:
        most = (num_rows - 2) * (num_cols - 2) // 3
        problems.append(f"environment.kwargs.num_boxes: must be from 1 to {most} in this room, got {num_boxes}")
    if max_actions < 1:
        problems.append(f"environment.kwargs.max_actions: must be at least 1, got {max_actions}")
    if num_pulls < 1:
        problems.append(f"environment.kwargs.num_pulls: must be at least 1, got {num_pulls}")
    if problems:
        raise ConfigError(problems, "the paper's are num_rows 6, num_cols 6, num_boxes 1, max_actions 10")


def _timestep(state: SokobanState, step_type: Array, reward: Array, max_actions: int) -> TimeStep:
    room = state.room
    cells = jnp.stack([room.walls, room.targets, room.boxes], axis=-1).astype(jnp.float32)
    view = {  # without the border, which is the same in every room
        "cells": cells[1:-1, 1:-1],  # [R - 2, C - 2, 3]
        "player": on_cell(room.player, room.walls.shape).astype(jnp.float32)[1:-1, 1:-1],  # 1 at one cell
        "actions_left": (max_actions - state.num_actions).astype(jnp.float32) / max_actions,
    }
    moves = jax.vmap(lambda direction: _can_move(room, direction))(jnp.asarray(ROOM_MOVES))
    discount = (step_type != LAST).astype(jnp.float32)
    return TimeStep(step_type, reward, discount, Observation(view, moves), {})


def _can_move(room: Room, direction: Array) -> Array:
    after = move(room, direction).player
    return (after.row != room.player.row) | (after.col != room.player.col)


def _render(state: SokobanState) -> str:
    """The room in RAGEN's symbols and, as the paper adds, in coordinates."""
    walls, targets, boxes = (np.asarray(x) for x in (state.room.walls, state.room.targets, state.room.boxes))
    symbols = np.where(walls, "#", np.where(targets, np.where(boxes, "√", "O"), np.where(boxes, "X", "_")))
    player = (int(state.room.player.row), int(state.room.player.col))
    symbols[player] = "S" if targets[player] else "P"
    where = "; ".join(
        [
            f"Player (P) is at {position_text(player)}",
            f"box (X) is at {', '.join(map(position_text, np.argwhere(boxes)))}",
            f"target (O) is at {', '.join(map(position_text, np.argwhere(targets)))}.",
        ]
    )
    return f"{rows_text(symbols)}\n{where}"
