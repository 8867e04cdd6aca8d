"""stoix_like: end-to-end jitted reinforcement learning in JAX, as pure functions.

    import jax, stoix_like as sl

    env = sl.make_env("Maze-v0")
    config = sl.ppo_config(num_envs=64, rollout_length=16)
    learner = sl.ppo.make(env, sl.make_network(env, config), config)
    state = jax.jit(learner.init)(jax.random.key(0))
    state, metrics = jax.jit(learner.update)(state)
    print(metrics["trainer/entropy"])  # in nats, of the policy

Names are looked up on first use: importing this package imports neither jumanji, which starts the JAX backend, nor any
optional library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

#: name -> (module, attribute in it, or None for the module itself)
_PUBLIC: dict[str, tuple[str, str | None]] = {
    "ActionSpec": ("stoix_like.types", "ActionSpec"),
    "Environment": ("stoix_like.types", "Environment"),
    "Learner": ("stoix_like.types", "Learner"),
    "MemoryPolicy": ("stoix_like.types", "MemoryPolicy"),
    "Network": ("stoix_like.types", "Network"),
    "Observation": ("stoix_like.types", "Observation"),
    "TimeStep": ("stoix_like.types", "TimeStep"),
    "StoixError": ("stoix_like.errors", "StoixError"),
    "PPOConfig": ("stoix_like.config.sections.runs", "PPOConfig"),
    "SPOConfig": ("stoix_like.config.sections.runs", "SPOConfig"),
    "ppo_config": ("stoix_like.config.sections.runs", "ppo_config"),
    "spo_config": ("stoix_like.config.sections.runs", "spo_config"),
    "scale_to_envs": ("stoix_like.config.sections.scaling", "scale_to_envs"),
    "make_env": ("stoix_like.algorithms.tasks", "make"),
    "with_time_limit": ("stoix_like.envs.time_limit", "with_time_limit"),
    "make_network": ("stoix_like.runtime.runs.build", "make_network"),
    "evaluate": ("stoix_like.evaluation.episodes", "evaluate"),
    "evaluate_levels": ("stoix_like.evaluation.episodes", "evaluate_levels"),
    "level_set": ("stoix_like.evaluation.levels", "level_set"),
    "load_policy": ("stoix_like.runtime.weights.exported_policy", "load_policy"),
    "load_run": ("stoix_like.runtime.runs.saved", "load_run"),
    "read_bank": ("stoix_like.runtime.runs.bank_files", "read_bank"),
    "train": ("stoix_like.runtime.training.train", "train"),
    "Callback": ("stoix_like.runtime.training.callbacks", "Callback"),
    "StopTraining": ("stoix_like.runtime.training.callbacks", "StopTraining"),
    "load_config": ("stoix_like.runtime.runs.sources", "load_config"),
    "run_main": ("stoix_like.commands.entry", "run_main"),
    "run_command": ("stoix_like.commands.entry", "run_command"),
    "COMMANDS": ("stoix_like.commands.table", "COMMANDS"),
    "Command": ("stoix_like.commands.table", "Command"),
    "ALGORITHMS": ("stoix_like.runtime.runs.build", "ALGORITHMS"),
    "ENVIRONMENTS": ("stoix_like.envs.registry", "ENVIRONMENTS"),
    "Series": ("stoix_like.runtime.results.series", "Series"),
    "Experiment": ("stoix_like.runtime.results.groups", "Experiment"),
    "ComparisonGroup": ("stoix_like.runtime.results.groups", "ComparisonGroup"),
    "compare": ("stoix_like.runtime.results.statistics", "compare"),
    "comparison_text": ("stoix_like.runtime.reports.comparison", "text"),
    "comparison_figures": ("stoix_like.runtime.figures.comparison", None),
    "Root": ("stoix_like.search.smc", "Root"),
    "SearchConfig": ("stoix_like.search.smc", "SearchConfig"),
    "SearchModel": ("stoix_like.search.smc", "SearchModel"),
    "AlphaZeroConfig": ("stoix_like.config.sections.runs", "AlphaZeroConfig"),
    "alphazero_config": ("stoix_like.config.sections.runs", "alphazero_config"),
    "BoardGame": ("stoix_like.games", "BoardGame"),
    "BoardLayout": ("stoix_like.games", "BoardLayout"),
    "Lines": ("stoix_like.games", "Lines"),
    "Symmetries": ("stoix_like.games", "Symmetries"),
    "check_game": ("stoix_like.ops.game_contract", "check_game"),
    "make_game": ("stoix_like.envs.boards.registry", "make_game"),
    "versus": ("stoix_like.envs.boards.versus", "versus"),
    "against": ("stoix_like.algorithms.tasks", "against"),
    "alphazero": ("stoix_like.algorithms.alphazero", None),
    "agent": ("stoix_like.algorithms.agent", None),
    "AgentConfig": ("stoix_like.config.sections.agent_runs", "AgentConfig"),
    "FineTuneConfig": ("stoix_like.config.sections.agent_runs", "FineTuneConfig"),
    "PretrainConfig": ("stoix_like.config.sections.agent_runs", "PretrainConfig"),
    "agent_config": ("stoix_like.config.sections.agent_runs", "agent_config"),
    "fine_tune_config": ("stoix_like.config.sections.agent_runs", "fine_tune_config"),
    "fine_tuning": ("stoix_like.algorithms.text.fine_tuning", None),
    "pretrain_config": ("stoix_like.config.sections.agent_runs", "pretrain_config"),
    "Pieces": ("stoix_like.types", "Pieces"),
    "Prompt": ("stoix_like.types", "Prompt"),
    "TextWorld": ("stoix_like.types", "TextWorld"),
    "make_text_world": ("stoix_like.runtime.runs.agents", "make_text_world"),
    "make_tokenizer": ("stoix_like.runtime.runs.agents", "make_tokenizer"),
    "token_ppo": ("stoix_like.algorithms.text.token_ppo", None),
    "word_tokenizer": ("stoix_like.language.tokenizers", "word_tokenizer"),
    "gumbel": ("stoix_like.search.gumbel", None),
    "players": ("stoix_like.search.players", None),
    "matches": ("stoix_like.evaluation.contests.matches", None),
    "openings": ("stoix_like.evaluation.contests.openings", None),
    "promotion": ("stoix_like.evaluation.contests.promotion", None),
    "ratings": ("stoix_like.evaluation.contests.ratings", None),
    "seatings": ("stoix_like.evaluation.contests.seatings", None),
    "LoopConfig": ("stoix_like.config.sections.continuous_loop", "LoopConfig"),
    "LoopStats": ("stoix_like.selfplay.watch.stats", "LoopStats"),
    "UnifiedLoopConfig": ("stoix_like.config.sections.master_loop", "UnifiedLoopConfig"),
    "run_continuous": ("stoix_like.selfplay.loops.start", "run_continuous"),
    "run_master": ("stoix_like.selfplay.loops.start", "run_master"),
    "read_events": ("stoix_like.selfplay.events.log", "read_events"),
    "register_plateau_hook": ("stoix_like.selfplay.tuning.registry", "register_plateau_hook"),
    "PlateauHookConfig": ("stoix_like.config.sections.master_loop", "PlateauHookConfig"),
    "PlateauContext": ("stoix_like.selfplay.tuning.context", "PlateauContext"),
    "wire_pipeline_events": ("stoix_like.selfplay.events.wiring", "wire_pipeline_events"),
    "is_unified_loop_running": ("stoix_like.selfplay.watch.presence", "is_unified_loop_running"),
    "ppo": ("stoix_like.algorithms.ppo", None),
    "spo": ("stoix_like.algorithms.spo", None),
    "searching": ("stoix_like.algorithms.searching", None),
    "smc": ("stoix_like.search.smc", None),
    "replay": ("stoix_like.replay", None),
    "returns": ("stoix_like.ops.returns", None),
    "losses": ("stoix_like.ops.losses", None),
    "distributions": ("stoix_like.ops.distributions", None),
}

__all__ = [
    "ALGORITHMS",
    "COMMANDS",
    "ENVIRONMENTS",
    "ActionSpec",
    "AgentConfig",
    "AlphaZeroConfig",
    "BoardGame",
    "BoardLayout",
    "Callback",
    "Command",
    "ComparisonGroup",
    "Environment",
    "Experiment",
    "FineTuneConfig",
    "Learner",
    "Lines",
    "LoopConfig",
    "LoopStats",
    "MemoryPolicy",
    "Network",
    "Observation",
    "PPOConfig",
    "Pieces",
    "PlateauContext",
    "PlateauHookConfig",
    "PretrainConfig",
    "Prompt",
    "Root",
    "SPOConfig",
    "SearchConfig",
    "SearchModel",
    "Series",
    "StoixError",
    "StopTraining",
    "Symmetries",
    "TextWorld",
    "TimeStep",
    "UnifiedLoopConfig",
    "against",
    "agent",
    "agent_config",
    "alphazero",
    "alphazero_config",
    "check_game",
    "compare",
    "comparison_figures",
    "comparison_text",
    "distributions",
    "evaluate",
    "evaluate_levels",
    "fine_tune_config",
    "fine_tuning",
    "gumbel",
    "is_unified_loop_running",
    "level_set",
    "load_config",
    "load_policy",
    "load_run",
    "losses",
    "make_env",
    "make_game",
    "make_network",
    "make_text_world",
    "make_tokenizer",
    "matches",
    "openings",
    "players",
    "ppo",
    "ppo_config",
    "pretrain_config",
    "promotion",
    "ratings",
    "read_bank",
    "read_events",
    "register_plateau_hook",
    "replay",
    "returns",
    "run_command",
    "run_continuous",
    "run_main",
    "run_master",
    "scale_to_envs",
    "searching",
    "seatings",
    "smc",
    "spo",
    "spo_config",
    "token_ppo",
    "train",
    "versus",
    "wire_pipeline_events",
    "with_time_limit",
    "word_tokenizer",
]

if TYPE_CHECKING:
    from stoix_like import replay
    from stoix_like.algorithms import agent, alphazero, ppo, searching, spo
    from stoix_like.algorithms.tasks import against
    from stoix_like.algorithms.tasks import make as make_env
    from stoix_like.algorithms.text import fine_tuning, token_ppo
    from stoix_like.commands.entry import run_command, run_main
    from stoix_like.commands.table import COMMANDS, Command
    from stoix_like.config.sections.agent_runs import (
        AgentConfig,
        FineTuneConfig,
        PretrainConfig,
        agent_config,
        fine_tune_config,
        pretrain_config,
    )
    from stoix_like.config.sections.continuous_loop import LoopConfig
    from stoix_like.config.sections.master_loop import PlateauHookConfig, UnifiedLoopConfig
    from stoix_like.config.sections.runs import (
        AlphaZeroConfig,
        PPOConfig,
        SPOConfig,
        alphazero_config,
        ppo_config,
        spo_config,
    )
    from stoix_like.config.sections.scaling import scale_to_envs
    from stoix_like.envs.boards.registry import make_game
    from stoix_like.envs.boards.versus import versus
    from stoix_like.envs.registry import ENVIRONMENTS as ENVIRONMENTS
    from stoix_like.envs.time_limit import with_time_limit
    from stoix_like.errors import StoixError
    from stoix_like.evaluation.contests import matches, openings, promotion, ratings, seatings
    from stoix_like.evaluation.episodes import evaluate, evaluate_levels
    from stoix_like.evaluation.levels import level_set
    from stoix_like.games import BoardGame, BoardLayout, Lines, Symmetries
    from stoix_like.language.tokenizers import word_tokenizer
    from stoix_like.ops import distributions, losses, returns
    from stoix_like.ops.game_contract import check_game
    from stoix_like.runtime.figures import comparison as comparison_figures
    from stoix_like.runtime.reports.comparison import text as comparison_text
    from stoix_like.runtime.results.groups import ComparisonGroup, Experiment
    from stoix_like.runtime.results.series import Series
    from stoix_like.runtime.results.statistics import compare
    from stoix_like.runtime.runs.agents import make_text_world, make_tokenizer
    from stoix_like.runtime.runs.bank_files import read_bank
    from stoix_like.runtime.runs.build import ALGORITHMS, make_network
    from stoix_like.runtime.runs.saved import load_run
    from stoix_like.runtime.runs.sources import load_config
    from stoix_like.runtime.training.callbacks import Callback, StopTraining
    from stoix_like.runtime.training.train import train
    from stoix_like.runtime.weights.exported_policy import load_policy
    from stoix_like.search import gumbel, players, smc
    from stoix_like.search.model import Root, SearchConfig, SearchModel
    from stoix_like.selfplay.events.log import read_events
    from stoix_like.selfplay.events.wiring import wire_pipeline_events
    from stoix_like.selfplay.loops.start import run_continuous, run_master
    from stoix_like.selfplay.tuning.context import PlateauContext
    from stoix_like.selfplay.tuning.registry import register_plateau_hook
    from stoix_like.selfplay.watch.presence import is_unified_loop_running
    from stoix_like.selfplay.watch.stats import LoopStats
    from stoix_like.types import (
        ActionSpec,
        Environment,
        Learner,
        MemoryPolicy,
        Network,
        Observation,
        Pieces,
        Prompt,
        TextWorld,
        TimeStep,
    )


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'stoix_like' has no attribute '{name}'")
    module_name, attribute = _PUBLIC[name]
    module = importlib.import_module(module_name)
    return module if attribute is None else getattr(module, attribute)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
