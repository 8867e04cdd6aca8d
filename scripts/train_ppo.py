"""Trains PPO: `python scripts/train_ppo.py --config ppo/maze --num-envs 64`. `--help` lists every flag."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.config import PPOConfig
    from stoix_like.runtime.load import load, to_yaml

    loaded = load(PPOConfig, "ppo", argv, default_config="ppo/quick")
    if loaded.options.print_config:
        print(to_yaml(loaded.config), end="")
        return 0
    from stoix_like.runtime.train import train

    return train("ppo", loaded)


if __name__ == "__main__":
    run_main(main)
