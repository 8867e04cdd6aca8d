"""The commands `train_ppo.py` and `train_spo.py`."""

from __future__ import annotations

from stoix_like.commands.table import Outcome
from stoix_like.config.sections import PPOConfig, SPOConfig
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs.sources import load_config


def train_ppo(argv: list[str]) -> Outcome:
    """Trains PPO, by default the preset ppo/quick."""
    return _train("ppo", PPOConfig, argv)


def train_spo(argv: list[str]) -> Outcome:
    """Trains SPO, by default the preset spo/quick."""
    return _train("spo", SPOConfig, argv)


def _train(algorithm: str, config_type: type, argv: list[str]) -> Outcome:
    loaded = load_config(config_type, algorithm, argv, default_config=f"{algorithm}/quick")
    if loaded.options.print_config:
        print(to_yaml(loaded.given), end="")
        return 0
    from stoix_like.runtime.training.train import train  # imports JAX, which --help and --print-config do not need

    return train(algorithm, loaded)
