"""What every board game promises and an abstract evaluation of its functions can show. Nothing is played.

Self-play carries games through loops and reads boards by tables, so that a broken promise would end in JAX's words
about carries and gathers. What only playing can show, such as a game of more than `max_plies` actions, is for tests.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.errors import UnsupportedEnvironmentError
from stoix_like.games import ActionPlaces, BoardGame


def check_game(game: BoardGame) -> None:
    """Refuses a game that neither self-play nor matches can play.

    Raises:
        UnsupportedEnvironmentError: a state of another shape or type after `step` than at the start, a function that
            returns another shape or type than `BoardGame` says, or a table that does not fit the board.
    """
    for name in ("num_players", "num_actions", "max_plies", "max_legal", "self_play_plies"):
        if (value := getattr(game, name)) is not None and value < 1:
            raise _broken(game, f"{name} is {getattr(game, name)}", "it is at least 1")
    state: Any = jax.eval_shape(game.init)
    _check_step(game, state)
    _check_functions(game, state)
    _check_layout(game)
    _check_symmetries(game)


def _broken(game: BoardGame, what: str, hint: str) -> UnsupportedEnvironmentError:
    return UnsupportedEnvironmentError(f"{game.name}: {what}", hint)


def _check_step(game: BoardGame, state: Any) -> None:
    following = jax.eval_shape(game.step, state, jax.ShapeDtypeStruct((), jnp.int32))
    before, after = _shapes(state), _shapes(following)
    hint = "step must return what init returns: the same structure, shapes and types"
    for path in before | after:
        if before.get(path) != after.get(path):
            what = f"step changes the state's {path} from {before.get(path)} to {after.get(path)}"
            raise _broken(game, what, hint)


def _shapes(tree: Any) -> dict[str, str]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path) or "array": f"{leaf.dtype} {leaf.shape}" for path, leaf in leaves}


def _check_functions(game: BoardGame, state: Any) -> None:
    num_cells, num_actions = game.layout.num_cells, game.num_actions
    observation = jax.eval_shape(game.observe, state)
    planes = observation.agent_view
    if planes.ndim != 2 or planes.shape[0] != num_cells or planes.shape[1] < 2 or planes.dtype != bool:
        what = f"observe shows planes {planes.dtype} {planes.shape}"
        hint = f"planes are bool [{num_cells}, channels]: the mover's cells, those of others, then what you like"
        raise _broken(game, what, hint)
    if not 0 <= game.layout.num_shared_planes < planes.shape[1]:
        what = f"layout.num_shared_planes is {game.layout.num_shared_planes} of {planes.shape[1]} planes"
        raise _broken(game, what, "it is the number of the last planes that are the same on all cells")
    if game.picture is not None:
        _check_picture(game, jax.eval_shape(game.picture, state))
    found = {
        "observe(state).action_mask": observation.action_mask,
        **{name: jax.eval_shape(getattr(game, name), state) for name in ("legal_actions", "is_over", "outcome")},
        **{name: jax.eval_shape(getattr(game, name), state) for name in ("cells", "preference")},
    }
    wanted: dict[str, tuple[tuple[int, ...], Any]] = {
        "observe(state).action_mask": ((num_actions,), jnp.bool_),
        "legal_actions": ((num_actions,), jnp.bool_),
        "is_over": ((), jnp.bool_),
        "outcome": ((game.num_players,), jnp.float32),
        "cells": ((num_cells,), jnp.int8),
        "preference": ((num_actions,), jnp.float32),
    }
    for name, (shape, dtype) in wanted.items():
        if (found[name].shape, found[name].dtype) != (shape, dtype):
            hint = f"make it {np.dtype(dtype)} {shape}"
            raise _broken(game, f"{name} is {found[name].dtype} {found[name].shape}", hint)
    if game.random_action is not None:
        number = jax.ShapeDtypeStruct((), jnp.uint32)
        action = jax.eval_shape(game.random_action, state, number)
        if action.shape != () or not jnp.issubdtype(action.dtype, jnp.integer):
            raise _broken(game, f"random_action is {action.dtype} {action.shape}", "make it an integer ()")
    player = jax.eval_shape(game.player, state)
    if player.shape != () or not jnp.issubdtype(player.dtype, jnp.integer):
        raise _broken(game, f"player is {player.dtype} {player.shape}", "make it an integer ()")


def _check_picture(game: BoardGame, picture: Any) -> None:
    cells = game.layout.num_cells
    for name, leaf in picture._asdict().items():
        if leaf.shape[:1] != (cells,) or leaf.dtype != jnp.int8 or leaf.ndim != (2 if name == "rings" else 1):
            hint = f"make it int8 ({cells}{', levels' if name == 'rings' else ','})"
            raise _broken(game, f"picture.{name} is {leaf.dtype} {leaf.shape}", hint)


def _check_layout(game: BoardGame) -> None:
    layout = game.layout
    num_cells = layout.num_cells
    if len(layout.action_names) != game.num_actions:
        what = f"layout.action_names has {len(layout.action_names)} names for {game.num_actions} actions"
        raise _broken(game, what, "name every action")
    tables: dict[str, tuple[np.ndarray, int, int | None]] = {"layout.neighbors": (layout.neighbors, -1, num_cells)}
    if layout.coordinates is not None:
        _check_coordinates(game, layout.coordinates)
    if layout.lines is not None:
        tables["layout.lines.cells"] = (layout.lines.cells, 0, None)
        if layout.lines.below is not None:
            tables["layout.lines.below"] = (layout.lines.below, -1, num_cells)
    for name, (table, low, rows) in tables.items():
        if rows is not None and len(table) != rows:
            raise _broken(game, f"{name} has {len(table)} rows for {num_cells} cells", "give one row to each cell")
        if table.min(initial=0) < low or table.max(initial=0) >= num_cells:
            hint = f"its entries are cells, {low} to {num_cells - 1}"
            raise _broken(game, f"{name} has entries from {table.min()} to {table.max()}", hint)
    if layout.action_places is not None:
        _check_places(game, layout.action_places)


def _check_places(game: BoardGame, places: ActionPlaces) -> None:
    num_cells, on_cells = game.layout.num_cells, places.cells >= 0
    for name, table in places._asdict().items():
        if table.shape != (game.num_actions,) or not np.issubdtype(table.dtype, np.integer):
            hint = f"make it integers ({game.num_actions},)"
            raise _broken(game, f"layout.action_places.{name} is {table.dtype} {table.shape}", hint)
    for name, table in (("cells", places.cells), ("landings", places.landings)):
        if table.min() < -1 or table.max() >= num_cells:
            what = f"layout.action_places.{name} has entries from {table.min()} to {table.max()}"
            raise _broken(game, what, f"its entries are cells, 0 to {num_cells - 1}, or -1")
    pairs = np.stack([places.cells, places.landings])[:, places.landings >= 0]
    for what, keys in (("cell and plane", np.stack([places.cells, places.planes])), ("cell and landing", pairs)):
        if len(np.unique(keys, axis=1).T) != keys.shape[1] or (keys < -1).any():
            raise _broken(game, f"layout.action_places has two actions of one {what}", "give each a place of its own")
    numbers = np.sort(places.planes[~on_cells])
    if not on_cells.any() or (places.landings >= 0)[~on_cells].any() or (numbers != np.arange(len(numbers))).any():
        what = "layout.action_places has actions without a cell that are not numbered from 0 on, or land"
        raise _broken(game, what, "give them the planes 0, 1, …, and no landing")


def _check_coordinates(game: BoardGame, coordinates: np.ndarray) -> None:
    shape = np.array(game.layout.shape)
    if coordinates.ndim != 2 or coordinates.shape[1] != 2 or len(np.unique(coordinates, axis=0)) != len(coordinates):
        what = f"layout.coordinates {coordinates.shape} is no list of different places"
        raise _broken(game, what, "give each cell a row and a column of its own")
    if (coordinates < 0).any() or (coordinates >= shape).any():
        raise _broken(game, "layout.coordinates leave the board", f"rows and columns are below {tuple(shape.tolist())}")


def _check_symmetries(game: BoardGame) -> None:
    num_cells = game.layout.num_cells
    cells, actions, unmapped = game.symmetries
    if len(cells) != len(actions) or len(cells) < 1:
        what = f"symmetries has {len(cells)} rows of cells and {len(actions)} of actions"
        raise _broken(game, what, "give both one row for each symmetry; row 0 is the identity")
    for name, table, number in (("cells", cells, num_cells), ("actions", actions, game.num_actions)):
        each = np.arange(number)
        if table.shape != (len(cells), number) or (np.sort(table, axis=1) != each).any() or (table[0] != each).any():
            hint = f"every row holds 0 to {number - 1} once, and row 0 in order"
            raise _broken(game, f"symmetries.{name} {table.shape} is no table of permutations", hint)
    if unmapped is not None and (unmapped.shape != (game.num_actions,) or unmapped.dtype != bool):
        raise _broken(
            game, f"symmetries.unmapped is {unmapped.dtype} {unmapped.shape}", f"make it bool ({game.num_actions},)"
        )
