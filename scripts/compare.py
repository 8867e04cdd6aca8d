"""Compares runs: `python scripts/compare.py RUN... [--metric mean_return] [--json FILE] [--out FOLDER]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import compare

    return compare.main(argv)


if __name__ == "__main__":
    run_main(main)
