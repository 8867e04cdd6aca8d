"""The command `envs.py`: lists all task ids, or describes some.

Building every Jumanji task takes most of a minute, so their lines are read from a shipped table.
`docs/tools/task_table.py` writes it, and a test fails if it is out of date.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

import stoix_like
from stoix_like.config.checks.board_games import GAMES, players_text
from stoix_like.config.sections.runs import EnvironmentConfig, HardwareConfig
from stoix_like.errors import ConfigError, StoixError
from stoix_like.runtime.console.arguments import ArgumentParser
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices

TABLE = Path(stoix_like.__file__).parent / "envs" / "task_table.json"


def main(argv: list[str]) -> int:
    """Prints the list or the descriptions; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    devices.select(HardwareConfig(device_type="cpu"))  # nothing here needs a GPU
    if arguments.task_ids:
        from stoix_like.algorithms import tasks
        from stoix_like.runtime.runs.bank_files import with_bank

        kwargs = kwargs_of_flag(arguments.kwargs)
        envs = [tasks.make(task_id, kwargs=with_bank(task_id, kwargs)) for task_id in arguments.task_ids]
        print("\n\n".join("\n".join(describe_task(env)) for env in envs))
        return 0
    if arguments.kwargs is not None:
        raise ConfigError("--kwargs: no task is named", f"name one: {prog('envs')} Maze-v0 --kwargs ...")
    for task_id, line in (list_tasks() | list_games()).items():
        print(f"{task_id:<32}{line}".rstrip())
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("envs"), "Lists the environments, or describes those named.")
    parser.add_argument("task_ids", nargs="*", metavar="TASK", help="task ids to describe (default: list all)")
    parser.add_argument("--kwargs", help="sizes of the tasks, such as '{num_rows: 6, num_cols: 6}'")
    return parser


def kwargs_of_flag(text: str | None) -> Any:
    """The keyword arguments in the text of the flag, read as in training. Raises ConfigError if they are no mapping."""
    from stoix_like.runtime.loading.documents import parse_leaf

    if text is None:
        return {}
    value, problem = parse_leaf(text, EnvironmentConfig, "kwargs")
    if problem is not None:
        raise ConfigError(f"--kwargs: {problem}", "give a mapping: '{num_rows: 6, num_cols: 6}'")
    return value


def list_tasks() -> dict[str, str]:
    """{task id: its line}. Jumanji's tasks are read from the table if it was made with the installed Jumanji.

    Tasks that the caller registered at Jumanji are listed too: Jumanji is imported then, and answers itself.
    """
    from stoix_like.envs import registry

    table = json.loads(TABLE.read_text(encoding="utf-8"))
    known = table["tasks"] if table["jumanji"] == importlib.metadata.version("jumanji") else {}
    known = {task_id: line for task_id, line in known.items() if task_id not in registry.ENVIRONMENTS}
    is_enough = known and "jumanji" not in sys.modules
    task_ids = sorted({*known, *registry.ENVIRONMENTS}) if is_enough else registry.task_ids()
    return {task_id: known.get(task_id) or task_line(task_id) for task_id in task_ids}


def list_games() -> dict[str, str]:
    """{board game: its line}, such as `board game of 2 players, 7 actions, at most 42 plies`. Of a game for several
    numbers of players the sizes are those for the fewest."""
    from stoix_like.envs.boards.registry import make_game

    found = {}
    for game in map(make_game, GAMES):
        more = GAMES[game.name][1:]
        spelling, of_fewest = (f" ({game.name}:{more[0]})", f" for {game.num_players}") if more else ("", "")
        sizes = f"{game.num_actions} actions, at most {game.max_plies} plies{of_fewest}"
        found[game.name] = f"board game of {players_text(game.name)}{spelling}, {sizes}"
    return found


def make_table() -> dict[str, Any]:
    """The content of the table: the version of Jumanji, and the line of each task except our own."""
    from stoix_like.envs import registry

    task_ids = [task_id for task_id in registry.task_ids() if task_id not in registry.ENVIRONMENTS]
    return {
        "jumanji": importlib.metadata.version("jumanji"),
        "tasks": {task_id: task_line(task_id) for task_id in task_ids},
    }


def task_line(task_id: str) -> str:
    """`4 actions, at most 100 steps`, or why the task is not supported."""
    from stoix_like.envs import registry

    try:
        env = registry.make(task_id)
    except StoixError as error:
        return f"not playable: {error.what.removeprefix(task_id).lstrip(': ')}"
    return ", ".join([_actions(env), _length(env)])


def describe_task(env: Any) -> list[str]:
    """Lines with the actions, the length of an episode, and the shape and dtype of every array of the observation."""
    import jax

    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    arrays = jax.tree_util.tree_leaves_with_path(timestep.observation)
    shown = [
        f"  {jax.tree_util.keystr(path, simple=True, separator='.'):<40}{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in arrays
    ]
    return [env.task_id, f"  {_actions(env)}, {_length(env)}", *shown]


def _actions(env: Any) -> str:
    spec = env.action_spec
    factors = f"{spec.num_factors} × " if spec.num_factors is not None else ""
    return f"{factors}{spec.num_values} action{'s' if spec.num_values != 1 else ''}"


def _length(env: Any) -> str:
    if env.time_limit is None:
        return "no time limit"
    return f"at most {env.time_limit} step{'s' * (env.time_limit != 1)}{' (truncated)' if env.can_truncate else ''}"
