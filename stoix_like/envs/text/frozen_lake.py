"""FrozenLake: walk over slippery ice from a start to a goal, and into no hole.

The rules are those of Gymnasium's FrozenLake, whose lakes have their start and goal in two corners; here both lie
anywhere, as in RAGEN's (mll-lab-nu/RAGEN). The observation is a maze's, so that the network of Maze reads it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.text.banks import Bank, make_resets
from stoix_like.envs.text.grids import LAKE_MOVES, Lake, Position, can_reach, on_cell, position_text, rows_text
from stoix_like.envs.text.levels import draw_until, is_held_out
from stoix_like.envs.text.oracles import Turns, frozen_lake_ceiling
from stoix_like.errors import ConfigError
from stoix_like.types import FIRST, LAST, MID, ActionSpec, Array, Environment, Key, Observation, TimeStep

MOVE_NAMES = ("Left", "Down", "Right", "Up")


class FrozenLakeState(NamedTuple):
    """A lake that is walked on."""

    lake: Lake
    position: Position
    num_actions: Array  # [] int32 since the reset
    key: Key  # of the slips


class _Rules(NamedTuple):
    size: int
    frozen_p: float
    intended_p: float
    max_actions: int


def make_frozen_lake(
    size: int = 4,
    frozen_p: float = 0.8,
    intended_p: float = 1 / 3,
    max_actions: int = 10,
    bank: Bank | None = None,
) -> Environment:
    """FrozenLake of `size` times `size` cells. Reward 1 for the goal, and an end there, in a hole or after the limit.

    Args:
        size: rows, and columns.
        frozen_p: the share of cells that are no holes, before levels without a way are drawn again.
        intended_p: probability that a move goes where it should. Otherwise it goes to one of the two sides.
        max_actions: the limit. It belongs to the task: the steps made are in the observation, and the end is one.
        bank: levels that were made before, by the same rules. By default they are drawn from the key of each reset.

    Raises:
        ConfigError: a value out of its range.
    """
    rules = _Rules(size, frozen_p, intended_p, max_actions)
    _check(rules)
    reset, held_out = make_resets(_reset, functools.partial(_drawn, rules), bank)
    return Environment(
        reset,
        functools.partial(_step, rules),
        ActionSpec(4),
        task_id="FrozenLake-text-v0",
        deterministic=intended_p == 1.0,
        episode_metrics=lambda state, _: {"solve_rate": _is_solved(state).astype(jnp.float32)},
        rekey=lambda state, key: state._replace(key=key),
        observation_adapter="grid",
        time_limit=max_actions,
        held_out=held_out,
        render=_render,
        ceiling=lambda state, budget=None: frozen_lake_ceiling(
            state.lake, intended_p, Turns.of_budget(budget, max_actions)
        ),
        bank_hash=None if bank is None else bank.hash,
        rules={"intended_p": intended_p},
    )


def _draw(rules: _Rules, key: Key) -> Lake:
    ice_key, cells_key = jax.random.split(key)
    cells = jax.random.choice(cells_key, rules.size**2, (2,), replace=False)
    start, goal = (Position.of_cell(cell, rules.size) for cell in cells)
    frozen = jax.random.bernoulli(ice_key, rules.frozen_p, (rules.size, rules.size))
    return Lake(~(frozen | on_cell(start, frozen.shape) | on_cell(goal, frozen.shape)), start, goal)


def _drawn(rules: _Rules, held_out: bool, key: Key) -> Lake:
    def accept(lake: Lake) -> Array:
        is_near = can_reach(lake.start, ~lake.holes, rules.max_actions)[lake.goal.row, lake.goal.col]
        return is_near & (is_held_out(lake) == held_out)

    return draw_until(functools.partial(_draw, rules), accept, key)


def _reset(draw: Callable[[Key], Lake], key: Key) -> tuple[FrozenLakeState, TimeStep]:
    level_key, key = jax.random.split(key)
    lake = draw(level_key)
    state = FrozenLakeState(lake, lake.start, jnp.int32(0), key)
    return state, _timestep(state, jnp.int8(FIRST), jnp.float32(0.0))


def _step(rules: _Rules, state: FrozenLakeState, action: Array) -> tuple[FrozenLakeState, TimeStep]:
    key, slip_key = jax.random.split(state.key)
    side = (1.0 - rules.intended_p) / 2.0
    turn = jax.random.categorical(slip_key, jnp.log(jnp.array([side, rules.intended_p, side]))) - 1
    row, col = jnp.asarray(LAKE_MOVES)[(action + turn) % 4]
    moved = (state.position.row + row, state.position.col + col)
    position = Position(*(jnp.clip(x, 0, rules.size - 1) for x in moved))
    state = FrozenLakeState(state.lake, position, state.num_actions + 1, key)
    is_end = _is_solved(state) | _has_drowned(state) | (state.num_actions >= rules.max_actions)
    step_type = jnp.where(is_end, LAST, MID).astype(jnp.int8)
    return state, _timestep(state, step_type, _is_solved(state).astype(jnp.float32))


def _check(rules: _Rules) -> None:
    size, frozen_p, intended_p, max_actions = rules
    problems = []
    if size < 2:
        problems.append(f"environment.kwargs.size: a lake needs at least 2 rows, got {size}")
    if not 0.0 <= frozen_p <= 1.0:
        problems.append(f"environment.kwargs.frozen_p: must be from 0 to 1, got {frozen_p}")
    if not 0.0 < intended_p <= 1.0:
        problems.append(f"environment.kwargs.intended_p: must be above 0 and at most 1, got {intended_p}")
    if max_actions < 1:
        problems.append(f"environment.kwargs.max_actions: must be at least 1, got {max_actions}")
    if problems:
        raise ConfigError(problems, "the paper's are size 4, frozen_p 0.8, intended_p 0.333, max_actions 10")


def _is_solved(state: FrozenLakeState) -> Array:
    goal = state.lake.goal
    return (state.position.row == goal.row) & (state.position.col == goal.col)


def _has_drowned(state: FrozenLakeState) -> Array:
    return state.lake.holes[state.position.row, state.position.col]


def _timestep(state: FrozenLakeState, step_type: Array, reward: Array) -> TimeStep:
    view = {
        "walls": state.lake.holes,
        "agent_position": state.position,
        "target_position": state.lake.goal,
        "step_count": state.num_actions,
    }
    discount = (step_type != LAST).astype(jnp.float32)
    return TimeStep(step_type, reward, discount, Observation(view, jnp.ones(4, bool)), {})


def _render(state: FrozenLakeState) -> str:
    """The lake in RAGEN's symbols and, as the paper adds, in coordinates."""
    holes = np.asarray(state.lake.holes)
    symbols = np.where(holes, "O", "_")
    goal, player = (tuple(int(x) for x in place) for place in (state.lake.goal, state.position))
    symbols[goal] = "G"
    symbols[player] = "X" if holes[player] else "√" if player == goal else "P"
    where = "; ".join(
        [
            f"Player (P) is at {position_text(player)}",
            f"holes (O) are at {', '.join(map(position_text, np.argwhere(holes))) or 'no cell'}",
            f"goal (G) is at {position_text(goal)}.",
        ]
    )
    return f"{rows_text(symbols)}\n{where}"
