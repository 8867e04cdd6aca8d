"""Trains PPO: `python scripts/train_ppo.py --config ppo/maze --num-envs 64`. `--help` lists every flag."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.runtime import train_commands

    return train_commands.train_ppo(argv)


if __name__ == "__main__":
    run_main(main)
