"""The command `bench.py`: runs suites, prints a table, and writes JSON."""

from __future__ import annotations

import json
import platform

from stoix_like.config import HardwareConfig
from stoix_like.runtime import devices, run_folder
from stoix_like.runtime.arguments import ArgumentParser, add_device_flag, output_file
from stoix_like.runtime.bench.measure import Row


def main(argv: list[str]) -> int:
    """Measures and prints; returns the exit code."""
    parser = ArgumentParser("bench.py", "Measures what docs/benchmarks.md claims, in this process and on this machine.")
    suites = ("env", "ppo", "compile", "memory", "baselines", "parity", "all")
    parser.add_argument("--suite", choices=suites, default="all", help="what is measured (default: all)")
    parser.add_argument("--json", type=output_file, help="write the rows to this file as well")
    add_device_flag(parser)
    arguments = parser.parse_args(argv)
    found = devices.select(HardwareConfig(device_type=arguments.device_type), compile_cache=False)
    from stoix_like.runtime.bench.suites import SUITES

    print(f"{devices.describe(found)}, {platform.machine()}, jax {run_folder.versions()['jax']}", flush=True)
    rows: list[Row] = []
    for name in SUITES if arguments.suite == "all" else [arguments.suite]:
        for row in SUITES[name]():
            print(line(row), flush=True)
            rows.append(row)
    if arguments.json:
        run_folder.write_atomically(arguments.json, json.dumps([row._asdict() for row in rows], indent=2) + "\n")
    return 0


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
