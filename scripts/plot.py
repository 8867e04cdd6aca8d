"""Draws learning curves: `python scripts/plot.py runs/A runs/B [--metric mean_return] [--out curves.png]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import plot

    return plot.main(argv)


if __name__ == "__main__":
    run_main(main)
