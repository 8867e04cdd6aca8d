"""Draws learning curves: `python scripts/plot.py runs/A runs/B [--metric mean_return] [--out curves.png]`."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.runtime import plot_runs

    return plot_runs.main(argv)


if __name__ == "__main__":
    run_main(main)
