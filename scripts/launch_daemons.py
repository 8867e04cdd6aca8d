"""Keeps a self-play loop running, stops it, or shows it: `python scripts/launch_daemons.py --continuous`."""

from stoix_like.commands.entry import run_main
from stoix_like.commands.table import Outcome


def main(argv: list[str]) -> Outcome:
    from stoix_like.commands.selfplay import launch_daemons

    return launch_daemons.main(argv)


if __name__ == "__main__":
    run_main(main)
