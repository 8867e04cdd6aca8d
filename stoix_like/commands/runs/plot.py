"""The command `plot.py`: plots learning curves of runs."""

from __future__ import annotations

from pathlib import Path

from stoix_like.runtime.console.arguments import ArgumentParser, add_runs_argument, output_file
from stoix_like.runtime.console.spelling import prog
from stoix_like.selfplay.files.folders import find_layout, is_pipeline

DEFAULT, OF_PIPELINES = "mean_return", "policy_loss"  # metrics


def main(argv: list[str]) -> int:
    """Writes the figure and prints its table; returns the exit code."""
    arguments = make_parser().parse_args(argv)
    from stoix_like.runtime.figures import learning_curves
    from stoix_like.runtime.runs.find import find_runs

    metric, runs = arguments.metric, arguments.runs
    if any(map(is_pipeline, runs)):  # their runs have no episodes
        runs = [str(find_layout(run).train_run) if is_pipeline(run) else run for run in runs]
        metric = OF_PIPELINES if metric is None else metric
    metric = DEFAULT if metric is None else metric
    paths = find_runs(runs)
    out = arguments.out or (paths[0] / "curves.png" if len(paths) == 1 else Path("curves.png"))
    summary = learning_curves.plot_runs(paths, out, metric)
    print(summary.table)
    print(f"curve {summary.path}")
    return 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("plot"), "Draws learning curves: IQM over seeds with a 95 % interval.")
    add_runs_argument(parser)
    help_text = f"metric to plot (default: {DEFAULT}; {OF_PIPELINES} of a self-play pipeline)"
    parser.add_argument("--metric", help=help_text)
    parser.add_argument(
        "--out", type=output_file, help="figure: .png, .pdf or .svg (default: curves.png, for one run in its folder)"
    )
    return parser
