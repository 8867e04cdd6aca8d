"""The command `export_policy.py`: exports the policy of a saved run, without search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser, add_checkpoint_flag, add_run_argument, seed_number
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.console.text import algorithm_title
from stoix_like.runtime.export.policy import export_policy, seed_index
from stoix_like.runtime.hardware import devices


def main(argv: list[str]) -> int:
    """Exports the policy and prints the files; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    devices.select(HardwareConfig(device_type="cpu"))  # nothing is computed, and a training may use the GPU
    from stoix_like.runtime.runs import saved as saved_run
    from stoix_like.runtime.weights import policy_folder

    saved = saved_run.load_run(arguments.run, arguments.checkpoint)
    if saved.is_published and arguments.out is None:
        raise ConfigError(f"--out: {saved.path} has no run folder to export into", "name a folder: --out FOLDER")
    index = seed_index(saved, arguments.seed)
    files = export_policy(saved, index)
    folder = arguments.out or saved.path / "export"
    sizes = policy_folder.write(folder, files)
    print(_heading(files.description, saved.seeds))
    for name, size in sizes.items():
        print(f"  {folder / name}  {size:,} bytes")
    print(f'next: stoix_like.load_policy("{folder}"), or docs/how-to/export-a-policy.md where there is only jax')
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(
        prog("export"),
        "Writes the policy of a run, without search, for programs that have jax but not this project.",
    )
    add_run_argument(parser)
    add_checkpoint_flag(parser)
    parser.add_argument(
        "--seed", type=seed_number, metavar="N", help="seed to export, if the run has several (default: the first)"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="folder (default: export in the run folder)")
    return parser


def _heading(description: dict[str, Any], seeds: list[int]) -> str:
    all_seeds = f" of {', '.join(map(str, seeds))}" if len(seeds) > 1 else ""
    policy = "the network alone, without its search" if description["algorithm"] != "ppo" else "its policy"
    platforms = ", ".join(description["platforms"])
    title = algorithm_title(description["algorithm"])
    return (
        f"{title} on {description['task_id']}, checkpoint {description['checkpoint']}"
        f" (update {description['update']}), seed {description['seed']}{all_seeds}: {policy}, for {platforms}"
    )
