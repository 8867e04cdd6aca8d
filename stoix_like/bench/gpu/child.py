"""`python -m stoix_like.bench.gpu.child PART` measures a part and prints a line of JSON for each row and end of a case.

All its cases compile at once, since XLA uses only a few cores for a program. Nothing is timed before all have compiled.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
from collections.abc import Sequence

import jax

from stoix_like.bench.gpu.cases import Case, Rows
from stoix_like.bench.gpu.parts import parts
from stoix_like.bench.gpu.processes import Report
from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import StoixError
from stoix_like.runtime.hardware import devices

_MOST_THREADS = 8


def main(argv: Sequence[str] | None = None) -> None:
    """Measures the part that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", help="name of a part")
    parser.add_argument("--device-type", default="auto", help="as of bench.py")
    parser.add_argument("--tiny", action="store_true", help="sizes that show on a CPU that everything runs")
    arguments = parser.parse_args(argv)
    by_name = {part.name: part for part in parts(arguments.tiny)}
    if arguments.part not in by_name:
        parser.error(f"no part {arguments.part}; there are {', '.join(by_name)}")
    part = by_name[arguments.part]
    if not part.starts_runs:  # a training has the device for itself
        devices.select(HardwareConfig(device_type=arguments.device_type))
    measure(part.cases)


def measure(cases: Sequence[Case]) -> None:
    """Prints the reports of the cases. One that fails for want of memory, or of a run, does not end the others."""
    with concurrent.futures.ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as executor:
        prepared = {case.name: executor.submit(case.prepare) for case in cases}
    for name, future in prepared.items():
        _print(Report(name, problem=_measure_one(name, future)))


def _measure_one(name: str, prepared: concurrent.futures.Future[Rows]) -> str:
    """Prints the rows of a case; returns why it has failed, or nothing."""
    try:
        for row in prepared.result()():
            _print(Report(name, row))
    except jax.errors.JaxRuntimeError as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        return f"out of memory: {line}" if "RESOURCE_EXHAUSTED" in line else line
    except StoixError as error:
        return error.what
    return ""


def _print(report: Report) -> None:
    print(report.line(), flush=True)


if __name__ == "__main__":
    main()
