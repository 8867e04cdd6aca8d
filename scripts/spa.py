"""Stages of a language agent: `python scripts/spa.py pretrain`. `--help` lists the stages, and theirs every flag."""

from stoix_like.commands.entry import run_main
from stoix_like.commands.table import Outcome


def main(argv: list[str]) -> Outcome:
    from stoix_like.commands.runs import spa

    return spa.main(argv)


if __name__ == "__main__":
    run_main(main)
