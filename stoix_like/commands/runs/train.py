"""The commands `train_ppo.py`, `train_spo.py`, `train_alphazero.py`, `train_agent.py` and `spa.py pretrain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stoix_like.config.checks.board_games import is_game, parse_game
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, PretrainConfig
from stoix_like.config.sections.runs import AlphaZeroConfig, PPOConfig, SPOConfig
from stoix_like.errors import ConfigError
from stoix_like.runtime.console.messages import print_to_stderr
from stoix_like.runtime.console.spelling import command_name
from stoix_like.runtime.loading.documents import print_yaml
from stoix_like.runtime.loading.flags import parse_flags
from stoix_like.runtime.loading.presets import DEFAULT_PRESETS, preset_of_game
from stoix_like.runtime.runs.sources import load_config

if TYPE_CHECKING:
    from stoix_like.runtime.training.train import TrainResult


def train_ppo(argv: list[str]) -> TrainResult | int:
    """Trains PPO, by default the preset ppo/quick."""
    return _train("ppo", PPOConfig, argv)


def train_spo(argv: list[str]) -> TrainResult | int:
    """Trains SPO, by default the preset spo/quick."""
    return _train("spo", SPOConfig, argv)


def train_alphazero(argv: list[str]) -> TrainResult | int:
    """Trains AlphaZero, by default the preset of the game that `--task-id` names, or of connect four."""
    return _train("alphazero", AlphaZeroConfig, argv, _preset_of_game(argv))


def train_agent(argv: list[str]) -> TrainResult | int:
    """Trains an agent of a text world by PPO over tokens, by default the preset agent/frozen_lake."""
    return _train("agent", AgentConfig, argv)


def pretrain(argv: list[str]) -> TrainResult | int:
    """Pretrains an agent's model on the format of answers, by default the preset pretrain/frozen_lake.

    At the end it says whether the model has the format, and nothing else: whether it succeeds as random actions do.
    """
    result = _train("pretrain", PretrainConfig, argv)
    if not isinstance(result, int) and result.status == "done":
        _report_format(result)
    return result


def fine_tune(argv: list[str]) -> TrainResult | int:
    """Fine-tunes an agent's model on rows of written turns, by default the preset sft/frozen_lake."""
    return _train("sft", FineTuneConfig, argv)


def _report_format(result: TrainResult) -> None:
    import jax

    from stoix_like.runtime.results.series import read_started_run
    from stoix_like.runtime.runs.agents import LEAST_FORMAT

    if jax.process_index() > 0:
        return
    found = read_started_run(result.path).evaluations.get(result.last_update, {})  # none without evaluations
    names = [f"evaluator/{name}" for name in ("well_formed", "solve_rate", "random_solve_rate")]
    for seed, values in found.items():
        if not all(name in values for name in names):
            continue
        format_, success, by_chance = (values[name] for name in names)
        whose = f" of seed {seed}" if len(found) > 1 else ""
        print(f"format: {format_:.3f} of the answers{whose} are well-formed; they solve {success:.3f}", end="")
        print(f" of the levels, and random actions {by_chance:.3f}", flush=True)
        if format_ < LEAST_FORMAT:
            longer = f"--resume {result.path} --num-updates {2 * result.last_update}"
            print_to_stderr(f"warning: agents learn from a model with {LEAST_FORMAT} on; train longer with {longer}")


def _preset_of_game(argv: list[str]) -> str:
    task_id = parse_flags(argv, AlphaZeroConfig).layer.get("task_id", ("connect_four", ""))[0]
    return preset_of_game("alphazero", *parse_game(task_id)) if is_game(task_id) else DEFAULT_PRESETS["alphazero"]


def _train(algorithm: str, config_type: type, argv: list[str], default_config: str | None = None) -> TrainResult | int:
    loaded = load_config(config_type, algorithm, argv, default_config=default_config or DEFAULT_PRESETS[algorithm])
    if loaded.options.print_config:
        print_yaml(loaded.given, loaded.notes)
        return 0
    if isinstance(loaded.config, AlphaZeroConfig) and not loaded.config.alphazero.self_play:
        what = "alphazero.self_play: without self-play a run learns only what a pipeline hands to it"
        raise ConfigError(what, f"use {command_name('run-training-loop')}")
    from stoix_like.runtime.training.train import train  # imports JAX, which --help and --print-config do not need

    return train(algorithm, loaded)
