"""Environments by task id: every registered Jumanji name, `BinPack-v0`, text worlds, `probe/<name>`, and your own.

What cannot be played is refused here, before anything compiles, with the reason and what to do instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from stoix_like.config.checks.board_games import GAMES
from stoix_like.config.checks.values import nearest
from stoix_like.envs import probes
from stoix_like.envs.construction import build_jumanji, signature_names, usable_values
from stoix_like.envs.importing import jumanji_registration
from stoix_like.envs.text.banks import with_rules
from stoix_like.envs.text.frozen_lake import make_frozen_lake
from stoix_like.envs.text.sokoban import make_sokoban
from stoix_like.envs.text.sudoku import make_sudoku
from stoix_like.envs.time_limit import with_time_limit
from stoix_like.errors import ConfigError, UnsupportedEnvironmentError
from stoix_like.types import Environment

WORLDS: dict[str, Callable[..., Environment]] = {
    "FrozenLake-text-v0": make_frozen_lake,
    "Sokoban-text-v0": make_sokoban,
    "Sudoku-text-v0": make_sudoku,
}
ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    **{f"probe/{name}": maker for name, maker in probes.PROBES.items()},
    **WORLDS,
}
"""Environments that are not Jumanji's, by task id. A program adds its own: `sl.ENVIRONMENTS["Corridor-v0"] = make`."""
#: rust_rl's generator of BinPack-v0 (rust_rl, src/common/config.rs and docs/configuration.md).
RUST_RL_BINPACK = {
    "max_num_items": 20,
    "max_num_ems": 40,
    "obs_num_ems": 40,
    "split_eps": 0.001,
    "prob_split_one_item": 0.3,
    "split_num_same_items": 1,
}
#: Sokoban's level sets that come with Jumanji; all others are downloaded.
SOKOBAN_GENERATORS = {"toy": "ToyGenerator", "simple": "SimpleSolveGenerator"}


def make(
    task_id: str,
    *,
    max_episode_steps: int | None = None,
    max_items: int | None = None,
    max_ems: int | None = None,
    kwargs: Mapping[str, Any] | None = None,
    exact_reference: bool = False,
) -> Environment:
    """The environment of a task id.

    Args:
        task_id: a registered Jumanji name, `BinPack-v0` (rust_rl's generator), a text world or `probe/<name>`.
        max_episode_steps: steps before a truncation (LAST with discount 1), in addition to the task's own end.
        max_items: BinPack only, most items per instance.
        max_ems: BinPack only, empty maximal spaces that are kept and shown.
        kwargs: keyword arguments of the environment's constructor or of its generator, such as `num_rows` of Maze.
        exact_reference: Jumanji's own code instead of the faster one for BinPack and Maze, which gives the same bits.

    Raises:
        UnsupportedEnvironmentError: unknown id, levels that need a download, continuous actions, per-agent rewards.
        ConfigError: an unknown or unusable keyword argument.
    """
    arguments = _with_sizes(task_id, dict(kwargs or {}), max_items, max_ems)
    with usable_values(task_id, arguments):
        env = (
            _make_own(task_id, arguments)
            if task_id in ENVIRONMENTS
            else _make_jumanji(task_id, arguments, exact_reference)
        )
        if arguments:
            _check_playable(env)
    return env if max_episode_steps is None else with_time_limit(env, max_episode_steps)


def task_note(task_id: str) -> str | None:
    """One line to print at the start of a run about what a task id stands for, or None."""
    if task_id != "BinPack-v0":
        return None
    return (
        "BinPack-v0 is Jumanji's BinPack with rust_rl's generator: 20 items, 40 EMS, split_eps 0.001,"
        " prob_split_one_item 0.3, split_num_same_items 1"
    )


def task_ids() -> list[str]:
    """Every known task id, sorted; some of them may still be refused by `make`."""
    return sorted(
        {
            *jumanji_registration().registered_environments(),
            "BinPack-v0",
            *ENVIRONMENTS,
        }
    )


def _with_sizes(task_id: str, arguments: dict[str, Any], max_items: int | None, max_ems: int | None) -> dict[str, Any]:
    named = {"max_items": (max_items, ("max_num_items",)), "max_ems": (max_ems, ("max_num_ems", "obs_num_ems"))}
    for leaf, (value, targets) in named.items():
        if value is None:
            continue
        if not task_id.startswith("BinPack"):
            raise ConfigError(f"environment.{leaf}: only BinPack has it, and the task is {task_id}", "leave it null")
        for target in targets:
            if target in arguments:
                what = f"environment.{leaf} and environment.kwargs.{target} say the same thing"
                raise ConfigError(what, "give one of them")
            arguments[target] = value
    return arguments


def _check_playable(env: Environment) -> None:
    """Traces one step, where unusable arguments that were stored unread come to light."""
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    jax.eval_shape(env.step, state, jax.ShapeDtypeStruct(env.action_spec.shape, jnp.int32))
    if env.time_limit is not None and env.time_limit < 1:
        raise ValueError(f"the time limit is {env.time_limit} steps")


def _make_own(task_id: str, arguments: dict[str, Any]) -> Environment:
    maker = ENVIRONMENTS[task_id]
    valid = signature_names(maker)
    unknown = [f"environment.kwargs: {task_id} has no '{n}'{nearest(n, valid)}" for n in arguments if n not in valid]
    if unknown:
        raise ConfigError(unknown, f"{task_id} takes: {', '.join(valid) or 'nothing'}")
    if task_id in WORLDS and arguments.get("bank") is not None:
        arguments = with_rules(task_id, arguments)
    return maker(**arguments)._replace(task_id=task_id)


def _make_jumanji(task_id: str, arguments: dict[str, Any], exact_reference: bool) -> Environment:
    from stoix_like.envs.jumanji import from_jumanji

    registered = "BinPack-v2" if task_id == "BinPack-v0" else task_id
    if registered not in jumanji_registration().registered_environments():
        raise _unknown(task_id)
    if task_id == "BinPack-v0":
        arguments = RUST_RL_BINPACK | arguments
    if task_id.startswith("Sokoban"):
        arguments = _sokoban_arguments(task_id, arguments)
    env = build_jumanji(task_id, registered, arguments)
    if task_id.startswith("Sokoban"):
        for image in env._viewer.images:
            image.load()  # else its seven files stay open, and Python warns about them at some later moment
    return from_jumanji(env if exact_reference else _faster(env), task_id)


def _faster(env: Any) -> Any:
    """The same environment, bit for bit, with faster code where there is some. `env` may be changed."""
    from jumanji.environments.packing.bin_pack.env import BinPack
    from jumanji.environments.packing.bin_pack.generator import RandomGenerator as BinPackGenerator
    from jumanji.environments.routing.maze.env import Maze
    from jumanji.environments.routing.maze.generator import RandomGenerator as MazeGenerator

    from stoix_like.envs.binpack import FastBinPack
    from stoix_like.envs.binpack_levels import FastBinPackGenerator
    from stoix_like.envs.maze_levels import FastMazeGenerator

    if type(env) is Maze and type(env.generator) is MazeGenerator:
        env.generator = FastMazeGenerator(env.num_rows, env.num_cols)
    if type(env) is not BinPack:
        return env
    if type(env.generator) is BinPackGenerator:
        env.generator = FastBinPackGenerator.like(env.generator)
    return FastBinPack.like(env)


def _sokoban_arguments(task_id: str, arguments: dict[str, Any]) -> dict[str, Any]:
    choice = arguments.get("generator")
    if isinstance(choice, str) and choice in SOKOBAN_GENERATORS:
        from jumanji.environments.routing.sokoban import generator

        return arguments | {"generator": getattr(generator, SOKOBAN_GENERATORS[choice])()}
    if choice is None or isinstance(choice, str):
        asked = "downloads its levels from the Hugging Face hub" if choice is None else f"has no levels '{choice}'"
        raise UnsupportedEnvironmentError(
            f"{task_id} {asked}, and nothing is downloaded here",
            "use Sokoban-text-v0, or --kwargs '{generator: toy}' or '{generator: simple}': small sets of Jumanji",
        )
    return arguments


def _unknown(task_id: str) -> UnsupportedEnvironmentError:
    known = {name.lower(): name for name in [*task_ids(), *GAMES]}
    near = [repr(known[name]) for name in difflib.get_close_matches(task_id.lower(), known, n=2)]
    suggestion = f"; did you mean {' or '.join(near)}?" if near else ""
    listed = ", ".join([*task_ids(), *GAMES])
    return UnsupportedEnvironmentError(f"unknown task '{task_id}'{suggestion}", f"known tasks: {listed}")
