"""The command `launch_daemons.py`: keeps a loop running, stops one, or shows what loops are doing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stoix_like.commands.selfplay import continuous_training, master_loop
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.arguments import ArgumentParser
from stoix_like.runtime.console.reporter import Reporter, lossy
from stoix_like.runtime.console.spelling import command_line, prog
from stoix_like.selfplay.watch import supervisor
from stoix_like.selfplay.watch.presence import CONTINUOUS, MASTER

COMMAND = "launch-daemons"
_LOOPS = {CONTINUOUS: "run-continuous-training", MASTER: "master-loop"}
_PROGRAM = "from stoix_like.commands.entry import main; main()"  # as `stoix-like`, which may not be on the path


def main(argv: list[str]) -> int:
    """Does what is asked for; returns the exit code."""
    arguments, words = make_parser().parse_known_args(argv)
    chosen = [name for name in ("continuous", "master", "status", "watch", "stop") if getattr(arguments, name)]
    if len(chosen) != 1 and chosen != ["status", "watch"]:
        flags = "--continuous, --master, --status, --watch or --stop NAME"
        raise ConfigError("what is to be done?" if not chosen else f"--{chosen[0]} and --{chosen[1]}", f"give {flags}")
    if words and chosen[0] not in (CONTINUOUS, MASTER):
        raise ConfigError(f"unexpected argument '{words[0]}'", f"{prog(COMMAND)} --help lists its arguments")
    save_dir, reporter = _save_dir(arguments, words), lossy(Reporter())
    if chosen[0] in ("status", "watch"):
        return master_loop.show_status(save_dir, arguments)
    if arguments.stop:
        found = supervisor.stop_loop(save_dir, arguments.stop)
        reporter.info("it ends at its next shard or chunk" if found["running"] else "it is not running")
        return 0
    if not {"-h", "--help"} & set(words):
        check = {CONTINUOUS: continuous_training.check, MASTER: master_loop.check}[chosen[0]]
        check(["--save-dir", str(save_dir), *words])
    started = [sys.executable, "-c", _PROGRAM, _LOOPS[chosen[0]], "--save-dir", str(save_dir), *words]
    code = supervisor.supervise(chosen[0], save_dir, started, reporter)
    if code not in supervisor.REFUSED:
        reporter.info(f"next: {command_line(COMMAND, *argv)}")
    return code


def _save_dir(arguments: argparse.Namespace, words: list[str]) -> Path:
    """The folder of all pipelines: as given, or that of the master loop's configuration."""
    if arguments.save_dir is None and arguments.master and not {"-h", "--help"} & set(words):
        return Path(master_loop.load(words).config.loop.save_dir)
    return Path(arguments.save_dir or "runs")


def make_parser() -> ArgumentParser:
    """The parser of the command."""
    parser = ArgumentParser(prog(COMMAND), "Keep a loop running. Further flags are those of the loop.")
    parser.add_argument(
        "--continuous", action="store_true", help="start the continuous loop, and again when it fails or is killed"
    )
    parser.add_argument(
        "--master", action="store_true", help="start the master loop, and again when it fails or is killed"
    )
    parser.add_argument("--stop", choices=[CONTINUOUS, MASTER], metavar="NAME", help="end a loop: continuous or master")
    parser.add_argument("--status", action="store_true", help="show what loops are doing, also ones started directly")
    parser.add_argument("--watch", action="store_true", help="show it again every two seconds, until Ctrl-C")
    parser.add_argument("--json", action="store_true", help="with --status: as JSON")
    text = "folder of all pipelines (default: runs, or that of the master loop's --config)"
    parser.add_argument("--save-dir", help=text)
    return parser
