"""The checks of a configuration whose leaves do not go together. Imports only the standard library."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from stoix_like.config.checks.access import section_types
from stoix_like.config.checks.agent import agent_problems
from stoix_like.config.checks.alphazero import alphazero_problems, engine_problems, opponent_names
from stoix_like.config.checks.board_games import is_game, parse_game
from stoix_like.config.checks.replay_sizes import num_logical_shards, size_problems
from stoix_like.config.checks.selfplay import selfplay_problems
from stoix_like.config.checks.values import LARGEST_WHOLE
from stoix_like.errors import ConfigError, UnsupportedEnvironmentError

RUN_NAME_RULE = "use letters, digits and . _ = + -, begin with a letter or digit, and not the word latest"
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,199}")
_ADDRESS = re.compile(r"\S+:\d{1,5}")
_WEB_ADDRESS = re.compile(r"https?://[^\s/]+")


def steps_per_update(config: Any) -> int:
    """Environment steps of one update and one seed."""
    return int(config.environment.num_envs * config.training_core.rollout_length)


def combination_problems(config: Any) -> list[str]:
    """One line for each invalid combination of valid values."""
    environment, core = config.environment, config.training_core
    problems = []
    if core.num_updates is None and core.total_timesteps is None:
        problems.append("training_core: num_updates and total_timesteps are both null; give one")
    sections = section_types(config.__class__)
    if not sections.keys() & {"spo", "alphazero", "agent"}:  # two learn from a replay, and one from tokens
        problems += _minibatch_problems(config)
    problems += _size_problems(config)
    problems += _replay_problems(config) if "spo" in sections else []
    problems += alphazero_problems(config) if "alphazero" in sections else []
    problems += agent_problems(config) if "agent" in sections else []
    problems += selfplay_problems(config) if "selfplay" in sections else []
    if (last := config.architecture.seed + core.num_seeds - 1) > 2**31 - 1:
        problems.append(f"training_core.num_seeds: the last seed would be {last}, above {2**31 - 1}; use a lower seed")
    problems += _environment_problems(environment, plays_games="alphazero" in sections) + _hardware_problems(config)
    name = config.checkpointing.run_name
    if name is not None and not is_run_name(name):
        problems.append(f"checkpointing.run_name: {name!r} cannot name a run; {RUN_NAME_RULE}")
    return problems + _logging_problems(config.logging)


def _minibatch_problems(config: Any) -> list[str]:
    core, batch = config.training_core, steps_per_update(config)
    product = f"num_envs * rollout_length = {config.environment.num_envs} * {core.rollout_length} = {batch}"
    if batch % core.num_minibatches:
        near = _nearest_divisors(batch, core.num_minibatches)
        return [f"training_core.num_minibatches: {product} is not divisible by {core.num_minibatches}; use {near}"]
    over = config.optimization.standardize_advantages
    if {"batch": batch, "minibatch": batch // core.num_minibatches, "none": 0}[over] == 1:
        use = "standardize over the batch, or use fewer minibatches" if batch > 1 else "use none, or play more steps"
        return [
            f"optimization.standardize_advantages: a {over} is one step, of {product}, and standardized to 0, so that"
            f" no policy would be learned; {use}"
        ]
    return []


def _replay_problems(config: Any) -> list[str]:
    section, core, num_envs = config.spo, config.training_core, config.environment.num_envs
    name, size = "spo.replay_buffer_size", section.replay_buffer_size
    problems = size_problems(
        num_envs=num_envs,
        capacity_steps=size,
        rollout_length=core.rollout_length,
        sequence_length=section.sample_sequence_length,
        batch_size=section.batch_size,
        sample_period=section.sample_period,
        num_shards=num_logical_shards(num_envs, section.batch_size),
        bootstrap_steps=1,  # the observation after the last step; stored with it if episodes are truncated
    )
    if size % num_envs and not any(problem.startswith(name) for problem in problems):
        near = f"{size // num_envs * num_envs:,} or {(size // num_envs + 1) * num_envs:,}"
        problems.append(f"{name}: {size:,} is not a multiple of num_envs = {num_envs}; use {near}")
    return problems + ([] if core.num_updates is None else _learning_problems(config))


def _learning_problems(config: Any) -> list[str]:
    core, length = config.training_core, config.spo.sample_sequence_length
    played = core.num_updates * core.rollout_length
    if played > length:
        return []
    use = f"use at most {played - 1}, or more updates" if played > 1 else "use more updates"
    return [
        f"spo.sample_sequence_length: {length} and 1 more are sampled at once, and each environment plays num_updates *"
        f" rollout_length = {played} steps, so nothing would be learned; {use}"
    ]


def _size_problems(config: Any) -> list[str]:
    """Products that overflow int32. Smaller ones that do not fit into memory fail when memory is allocated."""
    core, evaluation = config.training_core, config.evaluation
    environment, hidden_dim = config.environment, config.architecture.hidden_dim
    products = {
        "environment.max_items: max_items * max_ems": (environment.max_items or 1) * (environment.max_ems or 1),
        "training_core.rollout_length: num_seeds * num_envs * rollout_length": core.num_seeds
        * steps_per_update(config),
        "evaluation.num_eval_episodes: num_seeds * num_eval_episodes": core.num_seeds * evaluation.num_eval_episodes,
        "architecture.hidden_dim: num_seeds * hidden_dim * hidden_dim": core.num_seeds * hidden_dim * hidden_dim,
    }
    return [
        f"{name} = {product:,} is above {LARGEST_WHOLE:,}; lower one of them"
        for name, product in products.items()
        if product > LARGEST_WHOLE
    ]


def _logging_problems(logging: Any) -> list[str]:
    problems = []
    endpoint, uri = logging.otlp_endpoint, logging.mlflow_tracking_uri
    if endpoint is not None and not _WEB_ADDRESS.match(endpoint):
        problems.append(f"logging.otlp_endpoint: '{endpoint}' is no address; give one such as http://localhost:4318")
    if uri is not None and (uri.startswith("file:") or ":" not in uri):
        problems.append(
            f"logging.mlflow_tracking_uri: '{uri}' is a folder, which MLflow no longer takes as a store; give"
            " sqlite:///<path>.db or http://<server>"
        )
    for name, text, instead in (
        ("otlp_endpoint", endpoint, "OTEL_EXPORTER_OTLP_HEADERS"),
        ("mlflow_tracking_uri", uri, "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_URI"),
    ):
        if text is not None and _has_secret(text):
            problems.append(
                f"logging.{name}: it has a password, which would be written into files of the run; give it in the"
                f" environment, by {instead}"
            )
    return problems


def _has_secret(address: str) -> bool:
    """Whether the address has a password, or a user name in a web address, which may be a token."""
    scheme, user = address.partition(":")[0], urlsplit(address).netloc.rpartition("@")[0]
    return ":" in user or bool(user and scheme in ("http", "https"))


def _environment_problems(environment: Any, *, plays_games: bool) -> list[str]:
    task_id = environment.task_id
    owners = {"max_items": "BinPack has", "max_ems": "BinPack has"}
    if not plays_games:  # what plays nothing else has said so of the task
        owners |= {"opponent": "board games have", "opening_plies": "board games have"}
    problems = [
        f"environment.{name}: only {owner} it, and the task is {task_id}; leave it null"
        for name, owner in owners.items()
        if getattr(environment, name) is not None
        and not (is_game(task_id) if "games" in owner else task_id.startswith("BinPack"))
    ]
    if is_game(task_id):
        problems += _game_problems(environment)
    return problems + engine_problems("environment.opponent", opponent_names(environment.opponent or "heuristic"))


def _game_problems(environment: Any) -> list[str]:
    problems = []
    try:
        _, num_players = parse_game(environment.task_id)
        names = opponent_names(environment.opponent or "heuristic")
        if len(names) not in (1, num_players - 1):
            which = "one" if num_players == 2 else f"one for all other seats, or {num_players - 1}"
            problems.append(f"environment.opponent: {len(names)} opponents on {environment.task_id}; name {which}")
    except UnsupportedEnvironmentError:
        pass  # known, and not available yet: said with its own exit code when the game is made
    except ConfigError as error:
        problems.append(f"environment.task_id: {error.problems[0]}; {error.hint}")
    if environment.max_episode_steps is not None:
        problems.append(
            f"environment.max_episode_steps: {environment.task_id} ends by its own rules, and a game that is cut off"
            " has no outcome; leave it null"
        )
    return problems


def _hardware_problems(config: Any) -> list[str]:
    hardware, num_envs, problems = config.hardware, config.environment.num_envs, []
    if num_envs % hardware.num_devices:
        near = _nearest_divisors(num_envs, hardware.num_devices)
        problems.append(
            f"hardware.num_devices: num_envs = {num_envs} is not divisible by {hardware.num_devices}; use {near}"
        )
    hosts = (hardware.coordinator_address, hardware.num_processes, hardware.process_id)
    if any(h is not None for h in hosts) and any(h is None for h in hosts):
        problems.append("hardware: coordinator_address, num_processes and process_id go together; give all or none")
    elif hosts[1] is not None and hosts[2] >= hosts[1]:
        problems.append(f"hardware.process_id: {hosts[2]} is not below num_processes = {hosts[1]}")
    if hosts[0] is not None and not _ADDRESS.fullmatch(hosts[0]):
        problems.append(f"hardware.coordinator_address: expected HOST:PORT, got {hosts[0]!r}")
    return problems


def is_run_name(name: str) -> bool:
    """Whether the name is valid for a run folder: see `RUN_NAME_RULE`."""
    return _RUN_NAME.fullmatch(name) is not None and name != "latest"


def _nearest_divisors(number: int, wanted: int, reach: int = 100_000) -> str:
    """The nearest divisors below and above `wanted`. `reach` bounds the search, so that huge sizes fail fast too."""
    start = min(wanted, number)
    below = next((n for n in range(start, max(start - reach, 0), -1) if number % n == 0), 1)
    above = next((n for n in range(wanted, min(number, wanted + reach) + 1) if number % n == 0), None)
    return f"{below}" if above is None or above == below else f"{below} or {above}"
