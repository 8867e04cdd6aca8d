"""What must be known of each Jumanji task and cannot be read from its specs, by class name. Read from jumanji 1.1.2.

A task is deterministic if `step` never draws from `state.key`; tests/envs/test_jumanji.py proves it from the jaxpr.
Random steps: Game2048 (new tiles), MMST (order of conflicting agents), PacMan (ghosts), RobotWarehouse (requests),
Snake (fruit), Tetris (pieces).

A state is hidden as far as no player can know it, whatever it remembers: of Minesweeper, of RobotWarehouse and, where
agents do not see the whole grid, of LevelBasedForaging. What follows from earlier observations and actions is not
hidden, though the last observation may not show it: PacMan's ghost timers, past distances of MultiCVRP, schedules of
JobShop, Tetris' step count (jumanji shows 0 after every step), BinPack's spaces beyond `obs_num_ems`. Nor is what
randomness has yet to decide: that is the matter of `rekey`.

Only Connector and LevelBasedForaging truncate by themselves. At Connector's time limit the agents that are neither
connected nor blocked keep discount 1; were there none, the episode would have ended before (routing/connector/env.py).
All other limits of time are terminations (discount 0), and are shown in the observation, but for those of PacMan
and Tetris.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from stoix_like.types import Array, EnvState, TimeStep

Metric = Callable[[EnvState, TimeStep], Array]


def _no_limit(_env: Any) -> int | None:
    return None


def _own_limit(env: Any) -> int | None:
    return int(env.time_limit)


def _nothing_hidden(_env: Any) -> str | None:
    return None


def _beyond_sensors(env: Any) -> str | None:
    sees_all = env.sensor_range >= max(env.grid_size) - 1
    return None if sees_all else "the robots, shelves and requests beyond the sensors"


def _beyond_view(env: Any) -> str | None:
    return None if env.fov >= env.grid_size - 1 else "the agents and the food beyond the field of view"


class Task(NamedTuple):
    """Facts about one class of environments.

    Attributes:
        is_deterministic: `step` uses no randomness.
        can_truncate: a LAST step may have discount > 0.
        is_multi_agent: the factors of the action are agents, vehicles or machines.
        is_cooperative: per-agent rewards may be summed.
        observation_adapter: the network that fits.
        time_limit: instance -> most steps an episode takes, or None.
        metrics: names and functions of the final step of an episode.
        hidden_state: instance -> what no observation shows of its state, or None.
    """

    is_deterministic: bool = False
    can_truncate: bool = False
    is_multi_agent: bool = False
    is_cooperative: bool = False
    observation_adapter: str = "dense"
    time_limit: Callable[[Any], int | None] = _no_limit
    metrics: dict[str, Metric] = {}  # noqa: RUF012 - never written to
    hidden_state: Callable[[Any], str | None] = _nothing_hidden

    def episode_metrics(self, state: EnvState, timestep: TimeStep) -> dict[str, Array]:
        """{name: [] float32} of the final step of an episode."""
        return {name: metric(state, timestep).astype(jnp.float32) for name, metric in self.metrics.items()}


def task_of(env: Any) -> Task:
    """The facts for an instance, by its class or the nearest base of Jumanji's that is listed.

    A class without one is taken as random, untruncated and single-agent. A subclass of your own is taken as random too:
    its steps may draw what Jumanji's do not. Where they draw nothing, or truncate, say so with
    `from_jumanji(env, name)._replace(deterministic=True)`, or `can_truncate=True`.
    """
    kind = type(env.unwrapped)
    listed = (base for base in kind.__mro__ if base.__name__ in TASKS and base.__module__.startswith("jumanji."))
    base = next(listed, None)
    if base is None:
        return Task()
    is_reviewed = kind is base or kind.__module__.startswith("stoix_like.")  # our BinPack draws nothing either
    return TASKS[base.__name__] if is_reviewed else TASKS[base.__name__]._replace(is_deterministic=False)


def _from_extras(name: str) -> Metric:
    def metric(_state: EnvState, timestep: TimeStep) -> Array:
        return jnp.asarray(timestep.extras[name])

    return metric


def _from_state(name: str) -> Metric:
    def metric(state: EnvState, _timestep: TimeStep) -> Array:
        return jnp.asarray(getattr(state, name))

    return metric


def _all_packed(state: EnvState, _timestep: TimeStep) -> Array:
    return jnp.all(state.items_placed | ~state.items_mask)


def _maze_solved(state: EnvState, _timestep: TimeStep) -> Array:
    row = state.agent_position.row == state.target_position.row
    return row & (state.agent_position.col == state.target_position.col)


def _minesweeper_solved(state: EnvState, _timestep: TimeStep) -> Array:
    num_safe = state.board.size - state.flat_mine_locations.size
    return jnp.sum(state.board >= 0) == num_safe  # every square without a mine is explored


def _rubiks_cube_solved(state: EnvState, _timestep: TimeStep) -> Array:
    return jnp.all(jnp.max(state.cube, axis=(-1, -2)) == jnp.min(state.cube, axis=(-1, -2)))  # one colour per face


def _sliding_tiles_solved(_state: EnvState, timestep: TimeStep) -> Array:
    return timestep.extras["prop_correctly_placed"] == 1.0


def _sudoku_solved(state: EnvState, _timestep: TimeStep) -> Array:
    from jumanji.environments.logic.sudoku.utils import is_puzzle_solved

    return jnp.asarray(is_puzzle_solved(state.board))


TASKS: dict[str, Task] = {
    "BinPack": Task(
        is_deterministic=True,
        observation_adapter="binpack",
        time_limit=lambda env: int(env.generator.max_num_items),
        metrics={"utilisation": _from_extras("volume_utilization"), "solve_rate": _all_packed},
    ),
    "CVRP": Task(is_deterministic=True, time_limit=lambda env: 2 * int(env.num_nodes)),
    "Cleaner": Task(
        is_deterministic=True,
        is_multi_agent=True,
        time_limit=_own_limit,
        metrics={"ratio_dirty_tiles": _from_extras("ratio_dirty_tiles")},
    ),
    "Connector": Task(
        is_deterministic=True,
        can_truncate=True,
        is_multi_agent=True,
        is_cooperative=True,
        time_limit=_own_limit,
        metrics={"ratio_connections": _from_extras("ratio_connections")},
    ),
    "FlatPack": Task(is_deterministic=True, time_limit=lambda env: int(env.num_blocks)),
    "Game2048": Task(metrics={"highest_tile": _from_extras("highest_tile")}),
    "GraphColoring": Task(is_deterministic=True, time_limit=lambda env: int(env.num_nodes)),
    "JobShop": Task(is_deterministic=True, is_multi_agent=True),
    "Knapsack": Task(is_deterministic=True, time_limit=lambda env: int(env.num_items)),
    "LevelBasedForaging": Task(
        is_deterministic=True,
        can_truncate=True,
        is_multi_agent=True,
        time_limit=_own_limit,
        metrics={"ratio_eaten": lambda _state, timestep: timestep.extras["percent_eaten"] / 100.0},
        hidden_state=_beyond_view,
    ),
    "MMST": Task(
        is_multi_agent=True,
        time_limit=_own_limit,
        metrics={"ratio_connections": _from_extras("ratio_connections")},
    ),
    "Maze": Task(
        is_deterministic=True,
        observation_adapter="grid",
        time_limit=_own_limit,
        metrics={"solve_rate": _maze_solved},
    ),
    "Minesweeper": Task(
        is_deterministic=True,
        metrics={"solve_rate": _minesweeper_solved},
        hidden_state=lambda _env: "where the mines are",
    ),
    "MultiCVRP": Task(is_deterministic=True, is_multi_agent=True),
    "PacMan": Task(time_limit=_own_limit, metrics={"score": _from_state("score")}),
    "RobotWarehouse": Task(is_multi_agent=True, time_limit=_own_limit, hidden_state=_beyond_sensors),
    "RubiksCube": Task(is_deterministic=True, time_limit=_own_limit, metrics={"solve_rate": _rubiks_cube_solved}),
    "SlidingTilePuzzle": Task(
        is_deterministic=True,
        time_limit=_own_limit,
        metrics={"solve_rate": _sliding_tiles_solved},
    ),
    "Snake": Task(time_limit=_own_limit, metrics={"length": _from_state("length")}),
    "Sokoban": Task(is_deterministic=True, time_limit=_own_limit, metrics={"solve_rate": _from_extras("solved")}),
    "Sudoku": Task(is_deterministic=True, metrics={"solve_rate": _sudoku_solved}),
    "TSP": Task(is_deterministic=True, time_limit=lambda env: int(env.num_cities)),
    "Tetris": Task(time_limit=_own_limit, metrics={"score": _from_state("score")}),
}
