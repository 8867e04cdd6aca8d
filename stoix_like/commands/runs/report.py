"""The command `report.py`: writes a report of runs into one HTML file."""

from __future__ import annotations

from pathlib import Path

from stoix_like.runtime.console.arguments import ArgumentParser, add_runs_argument, output_file
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.reports.run_page import report
from stoix_like.runtime.runs.find import find_runs
from stoix_like.runtime.storage.atomic import write_output_text


def main(argv: list[str]) -> int:
    """Writes the report and prints its path; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    paths = find_runs(arguments.runs)
    out = arguments.out or (paths[0] / "report.html" if len(paths) == 1 else Path("report.html"))
    write_output_text(out, report(paths))
    print(f"report {out}")
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("report"), "Writes a report of runs into one HTML file.")
    add_runs_argument(parser)
    parser.add_argument("--out", type=output_file, help="HTML file (default: report.html, for one run in its folder)")
    return parser
