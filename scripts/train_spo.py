"""Trains SPO: `python scripts/train_spo.py --config spo/maze --num-envs 64`. `--help` lists every flag."""

from stoix_like.runtime.cli import run_main


def main(argv: list[str]) -> int:
    from stoix_like.config import SPOConfig
    from stoix_like.runtime.load import load, to_yaml

    loaded = load(SPOConfig, "spo", argv, default_config="spo/quick")
    if loaded.options.print_config:
        print(to_yaml(loaded.config), end="")
        return 0
    from stoix_like.runtime.train import train

    return train("spo", loaded)


if __name__ == "__main__":
    run_main(main)
