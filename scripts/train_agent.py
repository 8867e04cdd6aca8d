"""Trains an agent that writes its moves: `python scripts/train_agent.py --load-path RUN`. `--help` lists every flag."""

from stoix_like.commands.entry import run_main
from stoix_like.commands.table import Outcome


def main(argv: list[str]) -> Outcome:
    from stoix_like.commands.runs import train

    return train.train_agent(argv)


if __name__ == "__main__":
    run_main(main)
