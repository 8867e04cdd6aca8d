"""The command `plot.py`: plots learning curves of runs."""

from __future__ import annotations

from pathlib import Path

from stoix_like.runtime.console.arguments import ArgumentParser, add_runs_argument, output_file
from stoix_like.runtime.console.spelling import prog


def main(argv: list[str]) -> int:
    """Writes the figure and prints its table; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    from stoix_like.runtime.figures import learning_curves
    from stoix_like.runtime.runs.find import find_runs

    paths = find_runs(arguments.runs)
    out = arguments.out or (paths[0] / "curves.png" if len(paths) == 1 else Path("curves.png"))
    summary = learning_curves.plot_runs(paths, out, arguments.metric)
    print(summary.table)
    print(f"curve {summary.path}")
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("plot"), "Draws learning curves: IQM over seeds with a 95 % interval.")
    add_runs_argument(parser)
    parser.add_argument("--metric", default="mean_return", help="metric to plot (default: mean_return)")
    parser.add_argument(
        "--out", type=output_file, help="figure: .png, .pdf or .svg (default: curves.png, for one run in its folder)"
    )
    return parser
