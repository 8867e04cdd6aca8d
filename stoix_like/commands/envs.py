"""The command `envs.py`: every task id, and what one of them looks like.

Building every Jumanji task takes most of a minute, so their lines come from a shipped table. `docs/tools/task_table.py`
writes it; a test fails when it is out of date.
"""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import stoix_like
from stoix_like.config.sections import HardwareConfig
from stoix_like.errors import StoixError
from stoix_like.runtime.console.arguments import ArgumentParser
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices

TABLE = Path(stoix_like.__file__).parent / "envs" / "task_table.json"


def main(argv: list[str]) -> int:
    """Prints; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    devices.select(HardwareConfig(device_type="cpu"))  # nothing here is worth starting a GPU
    if arguments.task_ids:
        from stoix_like.envs import registry

        print("\n\n".join("\n".join(description(registry.make(task_id))) for task_id in arguments.task_ids))
        return 0
    for task_id, line in listing().items():
        print(f"{task_id:<32}{line}".rstrip())
    return 0


def make_parser() -> ArgumentParser:
    """What the command takes."""
    parser = ArgumentParser(prog("envs"), "Lists the environments, or describes those named.")
    parser.add_argument("task_ids", nargs="*", metavar="TASK", help="task ids to describe (default: list all)")
    return parser


def listing() -> dict[str, str]:
    """{task id: its line}, of Jumanji's tasks from the table if that was made with the Jumanji that is installed."""
    from stoix_like.envs import registry

    table = json.loads(TABLE.read_text(encoding="utf-8"))
    known = table["tasks"] if table["jumanji"] == importlib.metadata.version("jumanji") else {}
    known = {task_id: line for task_id, line in known.items() if task_id not in registry.OWN}
    task_ids = sorted({*known, *registry.OWN}) if known else registry.task_ids()
    return {task_id: known.get(task_id) or status(task_id) for task_id in task_ids}


def make_table() -> dict[str, Any]:
    """What the table holds: the version of Jumanji and the line of each task that is not our own."""
    from stoix_like.envs import registry

    task_ids = [task_id for task_id in registry.task_ids() if task_id not in registry.OWN]
    return {
        "jumanji": importlib.metadata.version("jumanji"),
        "tasks": {task_id: status(task_id) for task_id in task_ids},
    }


def status(task_id: str) -> str:
    """`4 actions`, or why it cannot be played."""
    from stoix_like.envs import registry

    try:
        env = registry.make(task_id)
    except StoixError as error:
        return f"not playable: {error.what.removeprefix(task_id).lstrip(': ')}"
    return ", ".join([_actions(env), _length(env)])


def description(env: Any) -> list[str]:
    """Lines: actions, length of an episode, and every array of the observation with shape and dtype."""
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
    return f"{factors}{spec.num_values} actions"


def _length(env: Any) -> str:
    if env.time_limit is None:
        return "no time limit"
    return f"at most {env.time_limit} steps{' (truncated)' if env.can_truncate else ''}"
