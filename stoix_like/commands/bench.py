"""The command `bench.py`: runs suites, prints a table, and writes JSON."""

from __future__ import annotations

import warnings

from stoix_like.bench.measure import machine_row, row_text
from stoix_like.config.sections import HardwareConfig
from stoix_like.runtime.console.arguments import ArgumentParser, add_device_flag, add_json_flag
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.storage.atomic import write_output_json


def main(argv: list[str]) -> int:
    """Runs the suites, and prints and writes their rows; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    found = devices.select(HardwareConfig(device_type=arguments.device_type), compile_cache=False)
    warnings.filterwarnings("ignore", "scatter inputs have incompatible types", FutureWarning)  # from Jumanji's step
    from stoix_like.bench.suites import NOT_IN_ALL, SUITES

    rows = [machine_row(devices.describe_devices(found))]
    print(row_text(rows[0]), flush=True)
    every = [name for name in SUITES if name not in NOT_IN_ALL]
    for name in every if arguments.suite == "all" else [arguments.suite]:
        for row in SUITES[name]():
            print(row_text(row), flush=True)
            rows.append(row)
            if arguments.json:  # written after every row, because a suite takes hours and may be interrupted
                write_output_json(arguments.json, [row._asdict() for row in rows])
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(
        prog("bench"), "Measures what docs/benchmarks.md claims, in this process and on this machine."
    )
    in_all = ("env", "scale", "overhead", "ppo", "spo", "alphazero", "compile", "memory", "baselines", "parity")
    by_name = ("learning", "learning_maze", "ablation", "search", "search_large", "search_equal", "search_maze")
    help_text = (
        "suite to run; all is everything but learning*, ablation and search*, which train for hours (default: all)"
    )
    parser.add_argument("--suite", choices=(*in_all, *by_name, "all"), default="all", help=help_text)
    add_json_flag(parser, "the rows")
    add_device_flag(parser)
    return parser
