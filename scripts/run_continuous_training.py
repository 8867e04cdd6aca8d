"""Trains several board games in turn, until it is stopped: `python scripts/run_continuous_training.py`."""

from stoix_like.commands.entry import run_main
from stoix_like.commands.table import Outcome


def main(argv: list[str]) -> Outcome:
    from stoix_like.commands.selfplay import continuous_training

    return continuous_training.main(argv)


if __name__ == "__main__":
    run_main(main)
