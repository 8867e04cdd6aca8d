"""Trains a board game by self-play in stages: `python scripts/run_training_loop.py --board-type connect_four`."""

from stoix_like.commands.entry import run_main
from stoix_like.commands.table import Outcome


def main(argv: list[str]) -> Outcome:
    from stoix_like.commands.selfplay import training_loop

    return training_loop.main(argv)


if __name__ == "__main__":
    run_main(main)
