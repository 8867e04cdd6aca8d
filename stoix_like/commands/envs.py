"""The command `envs.py`: every task id, and what one of them looks like."""

from __future__ import annotations

from typing import Any

from stoix_like.config.sections import HardwareConfig
from stoix_like.errors import StoixError
from stoix_like.runtime.console.arguments import ArgumentParser
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices


def main(argv: list[str]) -> int:
    """Prints; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    devices.select(HardwareConfig(device_type="cpu"))  # nothing here is worth starting a GPU
    from stoix_like.envs import registry

    if arguments.task_ids:
        print("\n\n".join("\n".join(description(registry.make(task_id))) for task_id in arguments.task_ids))
        return 0
    for task_id in registry.task_ids():
        print(f"{task_id:<32}{_status(task_id)}".rstrip())
    return 0


def make_parser() -> ArgumentParser:
    """What the command takes."""
    parser = ArgumentParser(prog("envs"), "Lists the environments, or describes those named.")
    parser.add_argument("task_ids", nargs="*", metavar="TASK", help="task ids to describe (default: list all)")
    return parser


def _status(task_id: str) -> str:
    """`4 actions`, or why it cannot be played."""
    from stoix_like.envs import registry

    try:
        env = registry.make(task_id)
    except StoixError as error:
        return f"not playable: {error.what.removeprefix(f'{task_id} ')}"
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
