"""Compares searches at equal budgets: `python scripts/compare_search.py RUN... [--level-set binpack-2048]`."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands.runs import compare_search

    return compare_search.main(argv)


if __name__ == "__main__":
    run_main(main)
