"""Rates checkpoints: `python scripts/ratings.py runs/NAME …`: a table with intervals, and a figure."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.games import ratings

    return ratings.main(argv)


if __name__ == "__main__":
    run_main(main)
