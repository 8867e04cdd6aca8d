"""The command `sweep.py`: a search over leaves, in trials that are ordinary runs."""

from __future__ import annotations

from pathlib import Path

from stoix_like.runtime.console.arguments import ArgumentParser, positive_int
from stoix_like.runtime.console.spelling import prog
from stoix_like.runtime.loading.presets import find
from stoix_like.runtime.sweeps import study
from stoix_like.runtime.sweeps.plan import read_plan
from stoix_like.runtime.sweeps.run import check_task, run_sweep, study_folder


def main(argv: list[str]) -> int:
    """Runs or resumes the sweep; returns the exit code: 0 done, 130 interrupted."""
    arguments = make_parser().parse_args(argv)
    path = find(arguments.sweep, "sweep")
    plan = read_plan(path, **({"num_trials": arguments.num_trials} if arguments.num_trials else {}))
    folder = study_folder(arguments.save_dir, arguments.study or path.stem)
    study.require_optuna()
    check_task(plan, arguments.save_dir)
    return run_sweep(plan, folder, argv)


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("sweep"), "Searches leaves of a run for the best score. The same command resumes it.")
    parser.add_argument("sweep", help="sweep file, or a shipped one such as sweep/ppo_maze")
    parser.add_argument("--num-trials", type=positive_int, help="trials in all (default: num_trials of the file)")
    parser.add_argument("--save-dir", type=Path, default=Path("runs"), help="folder of studies (default: runs)")
    parser.add_argument("--study", help="folder of the study in --save-dir (default: the name of the file)")
    return parser
