"""Trains SPO: `python scripts/train_spo.py --config spo/maze --num-envs 64`. `--help` lists every flag."""

from stoix_like.commands.entry import run_main
from stoix_like.commands.table import Outcome


def main(argv: list[str]) -> Outcome:
    from stoix_like.commands.runs import train

    return train.train_spo(argv)


if __name__ == "__main__":
    run_main(main)
