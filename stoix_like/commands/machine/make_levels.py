"""The command `make_levels.py`: makes a bank of levels of a text world, and says how hard they are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stoix_like.commands.machine.envs import kwargs_of_flag
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser, output_file, seed_number
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices

if TYPE_CHECKING:
    from stoix_like.envs.text.banks import Bank

_CEILING_LEVELS = 512


def main(argv: list[str]) -> int:
    """Makes the bank, writes it and prints what it holds; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    path = Path(arguments.out)
    if path.suffix != ".npz":
        raise ConfigError(f"--out: banks are .npz files, got '{path}'", f"--out {path}.npz")
    if path.exists():
        raise ConfigError(f"--out: {path} exists", "name another file, or move it away")
    devices.select(HardwareConfig(device_type="cpu"))
    from stoix_like.envs.text.bank_making import make_bank
    from stoix_like.runtime.runs.bank_files import write_bank

    kwargs = kwargs_of_flag(arguments.kwargs)
    bank = make_bank(arguments.task_id, arguments.num_levels, arguments.seed, kwargs)
    described = describe_bank(bank)
    write_bank(path, bank)
    print("\n".join(described))
    print(f"train on them with --task-id {bank.task_id} --kwargs '{{bank: {path}}}'")
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    what = "Makes a bank of levels of a text world by searches that no jitted generator does."
    parser = ArgumentParser(prog("make-levels"), what)
    parser.add_argument("task_id", metavar="TASK", help="FrozenLake-text-v0, Sokoban-text-v0 or Sudoku-text-v0")
    parser.add_argument("--out", type=output_file, required=True, metavar="FILE", help="the .npz file to write")
    parser.add_argument("--num-levels", type=int, default=2048, help="half are of training, half of evaluation")
    parser.add_argument("--seed", type=seed_number, default=0, help="of the generator")
    parser.add_argument("--kwargs", help="what levels depend on, such as '{num_rows: 8, num_cols: 8, num_boxes: 2}'")
    return parser


def describe_bank(bank: Bank) -> list[str]:
    """Lines about a bank: its rules, its hash, and what the best player solves of the levels of evaluation."""
    import jax

    from stoix_like.envs import registry
    from stoix_like.evaluation.levels import ceilings

    env = registry.make(bank.task_id, kwargs={"bank": bank})
    rules = ", ".join(f"{name} {value}" for name, value in bank.rules.items())
    best = ceilings(env, jax.random.split(jax.random.key(bank.seed), _CEILING_LEVELS))
    return [
        f"{bank.size:,} levels of {bank.task_id} with {rules}, half of them of evaluation; seed {bank.seed}, hash"
        f" {bank.hash[:12]}",
        f"within the task's default of {env.time_limit} actions the best player solves {best.mean():.4f} of"
        f" {_CEILING_LEVELS} draws from those of evaluation",
    ]
