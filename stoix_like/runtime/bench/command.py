"""The command `bench.py`: runs suites, prints a table, and writes JSON."""

from __future__ import annotations

import datetime
import json
import os
import platform
import warnings

from stoix_like.config.sections import HardwareConfig
from stoix_like.runtime.bench.measure import Row
from stoix_like.runtime.console.arguments import ArgumentParser, add_device_flag, output_file
from stoix_like.runtime.console.installation import commit, versions
from stoix_like.runtime.console.spelling import program
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.storage.atomic import write_atomically


def main(argv: list[str]) -> int:
    """Measures and prints; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    found = devices.select(HardwareConfig(device_type=arguments.device_type), compile_cache=False)
    warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)  # of Jumanji's own step
    from stoix_like.runtime.bench.suites import NOT_IN_ALL, SUITES

    rows = [machine_row(devices.describe(found))]
    print(line(rows[0]), flush=True)
    every = [name for name in SUITES if name not in NOT_IN_ALL]
    for name in every if arguments.suite == "all" else [arguments.suite]:
        for row in SUITES[name]():
            print(line(row), flush=True)
            rows.append(row)
            if arguments.json:  # after every row: a suite takes hours, and may be cut off
                write_atomically(arguments.json, json.dumps([row._asdict() for row in rows], indent=2) + "\n")
    return 0


def make_parser() -> ArgumentParser:
    """What the command takes."""
    parser = ArgumentParser(
        program("bench"), "Measures what docs/benchmarks.md claims, in this process and on this machine."
    )
    suites = (
        "env",
        "scale",
        "overhead",
        "ppo",
        "spo",
        "compile",
        "memory",
        "baselines",
        "parity",
        "learning",
        "learning_maze",
        "ablation",
        "search",
        "search_large",
        "search_equal",
        "search_maze",
        "all",
    )
    told = (
        "what is measured; all is everything but learning*, ablation and search*, which train for hours (default: all)"
    )
    parser.add_argument("--suite", choices=suites, default="all", help=told)
    parser.add_argument("--json", type=output_file, help="write the rows to this file as well")
    add_device_flag(parser)
    return parser


def machine_row(device: str) -> Row:
    """What it was measured on, and with what: the first row of every file."""
    installed = versions()
    told = ", ".join(f"{name} {installed[name]}" for name in ("stoix_like", "python", "jax", "jaxlib", "jumanji"))
    note = f"{device}; {platform.machine()}, {told}; {datetime.date.today().isoformat()}"
    if (known := commit()) is not None:
        note += f"; commit {known}"
    return Row("machine", os.cpu_count() or 1, "cores", note=note)


def line(row: Row) -> str:
    """The row as one line of text."""
    parts = [f"{row.name:<26}{_number(row.value):>12} {row.unit}"]
    if row.spread is not None:
        parts.append(f"± {row.spread:.0%}")
    if row.reference is not None:
        ratio = f"{row.ratio:.1f} times" if row.ratio is not None else "no ratio: the spread is larger than the claim"
        parts.append(f"reference {_number(row.reference)}: {ratio}")
    if row.ceiling is not None and row.share is not None:
        parts.append(f"{row.share:.0%} of the ceiling {_number(row.ceiling)}")
    return "  ".join([*parts, row.note])


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
