"""Trains board games by self-play for weeks, or shows what such a loop is doing: `python scripts/master_loop.py`."""

from stoix_like.commands.entry import run_main
from stoix_like.commands.table import Outcome


def main(argv: list[str]) -> Outcome:
    from stoix_like.commands.selfplay import master_loop

    return master_loop.main(argv)


if __name__ == "__main__":
    run_main(main)
