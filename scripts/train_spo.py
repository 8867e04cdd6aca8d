"""Trains SPO: `python scripts/train_spo.py --config spo/maze --num-envs 64`. `--help` lists every flag."""

from stoix_like.commands.entry import run_main


def main(argv: list[str]) -> int:
    from stoix_like.commands import train

    return train.train_spo(argv)


if __name__ == "__main__":
    run_main(main)
