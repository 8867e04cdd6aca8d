"""The speed of AlphaZero: its search beside the network's own rate, self-play and whole updates, games alone. Games and
self-play stand beside pgx's, see `alphazero_pgx`.

A search of S simulations evaluates the network S + 1 times for each position. The ceiling is the rate at which the
network alone evaluates as many positions at a time, in a scan like that of the search.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms import alphazero
from stoix_like.algorithms.alphazero import learner as composed
from stoix_like.algorithms.alphazero import self_play as playing
from stoix_like.bench.alphazero import pgx_example
from stoix_like.bench.timing.measure import Measurement, Timing, comparison_row, peak_bytes, time_interleaved
from stoix_like.config.checks.board_games import GAMES
from stoix_like.config.layers import resolve
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.envs.boards.registry import make_game
from stoix_like.games import BoardGame
from stoix_like.ops import trees
from stoix_like.runtime.runs import build
from stoix_like.runtime.runs.sources import load_config
from stoix_like.search import gumbel
from stoix_like.search.gumbel import GameModel
from stoix_like.search.mcts import choose
from stoix_like.types import Array, Key

BATCHES = {"cpu": (64, 256, 1024), "gpu": (64, 256, 1024, 4096, 16384), "tpu": (64, 256, 1024, 4096, 16384)}
SIMULATIONS = (16, 32, 64)
OPENING_PLIES = 24  # most random plies before the positions that are searched
PRESETS = ("connect_four", "tic_tac_toe", "othello")
RANDOM_GAMES, RANDOM_PLIES = 1024, {"go_9x9": 4, "othello": 10, "hex_11x11": 10}  # 100 unless given
#: Games side by side and plies of one timed call beside pgx's example, whose network takes a second a ply on two cores.
BESIDE_PGX = {"cpu": (32, 1), "gpu": (1024, 8), "tpu": (1024, 8)}


def preset(game: str, **leaves: Any) -> AlphaZeroConfig:
    """The configuration of the shipped preset of a game, with some leaves changed."""
    argv = ["--config", f"alphazero/{game}"]
    config: AlphaZeroConfig = load_config(AlphaZeroConfig, "alphazero", argv, "alphazero/connect_four").config
    return resolve(config, leaves) if leaves else config


def alphazero_suite() -> Iterator[Measurement]:
    """The search by size, presets, games under random actions, and pgx's example."""
    yield from search_rows(preset("connect_four"))
    for name in PRESETS:
        yield from update_rows(name)
    for name in GAMES_MEASURED:
        yield game_row(name)
    yield from example_rows()


GAMES_MEASURED = tuple(name for name in pgx_example.IDS if name in GAMES)


def search_rows(config: AlphaZeroConfig) -> Iterator[Measurement]:
    """Simulations per second of the preset's search, as share of what its network alone evaluates."""
    for batch in BATCHES[jax.default_backend()]:
        timings = time_interleaved(search_functions(config, batch), repetitions=5)
        yield from rows_of_batch(config.environment.task_id, batch, timings)


def search_functions(
    config: AlphaZeroConfig, batch: int, simulations: Sequence[int] = SIMULATIONS
) -> dict[str, Callable[[], Any]]:
    """{number of simulations: a search of so many from `batch` positions}, and `network`, which it alone evaluates."""
    parts = build.build("alphazero", config)
    game, network = parts.env.game, parts.network
    states = mid_game_states(game, batch)
    observation = jax.jit(jax.vmap(game.observe))(states)
    params = jax.jit(network.init)(jax.random.key(0), observation)
    ceiling = repeated_evaluation(network.actor_critic, params, observation, max(simulations))
    functions: dict[str, Callable[[], Any]] = {"network": ceiling}
    for number in simulations:
        settings = alphazero.settings_of(config).search._replace(num_simulations=number)
        model = GameModel(game, network.actor_critic)
        search = jax.jit(functools.partial(gumbel.search, model, config=settings))
        functions[str(number)] = functools.partial(search, params, jax.random.key(1), states)
    return functions


def rows_of_batch(
    name: str, batch: int, timings: Mapping[str, Timing], simulations: Sequence[int] = SIMULATIONS
) -> Iterator[Measurement]:
    """The rows of `search_functions` from their timings. `name` is the game's."""
    evaluations = batch * max(simulations) / timings["network"].seconds
    spread = timings["network"].spread
    yield Measurement(f"alphazero_network/{name}/{batch}", evaluations, "evaluations/s", spread)
    for number in simulations:
        taken = timings[str(number)]
        moves = batch / taken.seconds
        ceiling = evaluations * number / (number + 1)
        rate = moves * number
        note = f"{moves:,.0f} moves/s; ceiling: the network alone, {number + 1} evaluations a move"
        row = f"alphazero_search/{name}/{batch}x{number}"
        share = rate / ceiling
        yield Measurement(row, rate, "simulations/s", taken.spread, ceiling=ceiling, share=share, note=note)


def mid_game_states(game: BoardGame, num: int) -> Any:
    """[num, ...] positions after 0 to 24 random plies, none of them over."""
    openings = jax.jit(functools.partial(playing.random_openings, game, OPENING_PLIES, num))
    return openings(jax.random.key(2))[0]


def repeated_evaluation(
    evaluate: Callable[[Any, Any], tuple[Array, Array]], params: Any, observation: Any, times: int
) -> Callable[[], Any]:
    """A function that evaluates the observations [B, ...] so many times, one after the other.

    The parameters are an argument of the program, as they are of a search: as constants they are laid out otherwise.
    """

    def once(params: Any, is_odd: Array, _: None) -> tuple[Array, None]:
        """The flag depends on the last values, and the planes on it, so that nothing is computed once for all."""
        seen = observation._replace(agent_view=observation.agent_view ^ is_odd)
        logits, values = evaluate(params, seen)
        return (jnp.sum(values) + jnp.sum(logits)) > 1e30, None

    def run(params: Any) -> Array:
        return jax.lax.scan(functools.partial(once, params), jnp.bool_(False), None, times)[0]

    return functools.partial(jax.jit(run), params)


class _Updates:
    """A training, by whole updates or by self-play alone, from where the last call stopped."""

    def __init__(self, game: BoardGame, config: AlphaZeroConfig, parts: build.RunComponents) -> None:
        settings = alphazero.settings_of(config)
        model = GameModel(game, parts.network.actor_critic)
        self._state = jax.jit(parts.learner.init)(jax.random.key(0))
        self._program = jax.jit(parts.learner.update, donate_argnums=0).lower(self._state).compile()
        self.memory_note = f"peak memory {peak_bytes(self._program) / 2**20:,.0f} MiB"
        self._play = jax.jit(functools.partial(_play_once, game, model, settings))
        self.games: list[float] = []

    def update(self) -> Any:
        self._state, metrics = self._program(self._state)
        self.games.append(float(metrics["actor/episodes_count"]))
        return metrics

    def play(self) -> Any:
        return self._play(self._state.params.average, self._state.self_play, self._state.hyper.play_temperature)


def _play_once(game: BoardGame, model: GameModel, settings: Any, params: Any, before: Any, temperature: Any) -> Any:
    search = composed.self_play_search(model, settings, params)
    return playing.play(playing.PlaySetup(game, search, settings, temperature), before, jnp.int32(0), jax.random.key(1))


def update_rows(name: str) -> Iterator[Measurement]:
    """Whole updates of a preset, and how much of their time is self-play."""
    config = preset(name)
    parts = build.build("alphazero", config)
    updates = _Updates(parts.env.game, config, parts)
    for _ in range(2):  # the ring must hold a batch before anything is learned
        updates.update()
    updates.games.clear()
    timings = time_interleaved({"update": updates.update, "play": updates.play}, repetitions=5)
    positions = config.environment.num_envs * config.training_core.rollout_length
    whole, play = timings["update"], timings["play"]
    yield Measurement(
        f"alphazero_update/{name}", 1.0 / whole.seconds, "updates/s", whole.spread, note=updates.memory_note
    )
    share = play.seconds / whole.seconds
    note = f"learning included; {share:.0%} of the time is self-play"
    yield Measurement(f"alphazero_positions/{name}", positions / whole.seconds, "positions/s", whole.spread, note=note)
    games = float(np.mean(updates.games))
    plies = positions / max(games, 1.0)
    note = f"self-play alone, {positions / play.seconds:,.0f} positions/s; {plies:.0f} plies a game are searched"
    yield Measurement(f"alphazero_self_play/{name}", games / play.seconds, "games/s", play.spread, note=note)


def game_row(name: str) -> Measurement:
    """Steps per second of a game under random legal actions, ended games begun again, beside pgx's."""
    num_plies = RANDOM_PLIES.get(name, 100)
    play, states = random_play(make_game(name), RANDOM_GAMES, num_plies)
    functions = {"ours": _going_on(play, states)}
    row, amount, unit = f"alphazero_game/{name}/{RANDOM_GAMES}", RANDOM_GAMES * num_plies, "steps/s"
    if pgx_example.installed() is None:
        taken = time_interleaved(functions, repetitions=5)["ours"]
        return Measurement(row, amount / taken.seconds, unit, taken.spread, note="pgx is not installed: extra `dev`")
    functions["theirs"] = _going_on(*pgx_example.make_random_play(name, RANDOM_GAMES, num_plies, _choose))
    timings = time_interleaved(functions, repetitions=5)
    return comparison_row(row, timings, amount, unit, "reference: pgx with its auto_reset, the same random choice")


def _choose(key: Key, legal: Array) -> Array:
    return choose(jax.random.bits(key, legal.shape[:1]), legal)


def random_play(game: BoardGame, num_games: int, num_plies: int) -> tuple[Callable[[Any, Key], tuple[Any, Array]], Any]:
    """((states, key) -> states T plies later and how many games ended, the first states)."""
    first = game.init()

    def step(states: Any, key: Key) -> tuple[Any, Array]:
        states = jax.vmap(game.step)(states, _choose(key, jax.vmap(game.legal_actions)(states)))
        is_over = jax.vmap(game.is_over)(states)
        begin = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_games, *jnp.shape(x))), first)
        return trees.where(is_over, begin, states), jnp.sum(is_over)

    def play(states: Any, key: Key) -> tuple[Any, Array]:
        states, ended = jax.lax.scan(step, states, jax.random.split(key, num_plies))
        return states, jnp.sum(ended)

    return play, jax.tree.map(lambda x: jnp.tile(x, (num_games,) + (1,) * jnp.ndim(x)), first)


def _going_on(play: Callable[[Any, Key], tuple[Any, Array]], states: Any) -> Callable[[], Any]:
    """A function that plays on from where its last call stopped."""
    program, held = jax.jit(play), {"states": states, "calls": 0}

    def run() -> Any:
        held["calls"] += 1
        held["states"], ended = program(held["states"], jax.random.key(held["calls"]))
        return ended

    return run


def example_rows() -> Iterator[Measurement]:
    """Positions per second of self-play: ours with the example's network and with the preset's, beside the example."""
    if pgx_example.installed() is None:
        yield Measurement("alphazero_example", float("nan"), "positions/s", note="pgx is not installed: extra `dev`")
        return
    num_games, num_plies = BESIDE_PGX[jax.default_backend()]
    number = pgx_example.NUM_SIMULATIONS
    same = {"num_envs": num_games, "rollout_length": num_plies, "num_simulations": number, "batch_size": num_games}
    game, resnet = make_game("connect_four"), pgx_example.make_resnet()
    params = jax.jit(lambda: resnet.init(jax.random.key(0), (6, 7), 2, 7))()
    theirs = jax.jit(pgx_example.make_self_play(resnet, num_games, num_plies))
    functions = {"theirs": lambda: theirs(params, jax.random.key(1))}
    evaluate = pgx_example.for_our_search(resnet, (6, 7))
    functions["same network"] = our_self_play(game, evaluate, params, preset("connect_four", **same))
    config = preset("connect_four")
    for name, simulations in (("preset network", number), ("preset", config.alphazero.num_simulations)):
        chosen = resolve(config, {"num_simulations": simulations})
        network = build.build("alphazero", chosen).network
        observation = jax.jit(jax.vmap(game.observe))(mid_game_states(game, 2))
        own = jax.jit(network.init)(jax.random.key(0), observation)
        functions[name] = our_self_play(game, network.actor_critic, own, chosen)
    timings = time_interleaved(functions, repetitions=3)
    yield from _beside_example(timings, num_games, num_plies, config)


def _beside_example(
    timings: dict[str, Timing], num_games: int, num_plies: int, config: AlphaZeroConfig
) -> Iterator[Measurement]:
    amount = num_games * num_plies
    of_preset = config.environment.num_envs * config.training_core.rollout_length
    note = f"self-play of pgx's example, {num_games} games x {num_plies} plies, 32 simulations, ResNet v2 6 x 128"
    theirs = timings["theirs"]
    yield Measurement("alphazero_example/theirs", amount / theirs.seconds, "positions/s", theirs.spread, note=note)
    for name, positions in (("same network", amount), ("preset network", of_preset), ("preset", of_preset)):
        ours = timings[name]
        per_position = {"ours": Timing(ours.seconds / positions, ours.spread)}
        per_position["theirs"] = Timing(theirs.seconds / amount, theirs.spread)
        number = config.alphazero.num_simulations if name == "preset" else pgx_example.NUM_SIMULATIONS
        note = f"{number} simulations, {positions} positions a call; reference: pgx's example"
        row = f"alphazero_example/{name.replace(' ', '_')}"
        yield comparison_row(row, per_position, 1.0, "positions/s", note)


def our_self_play(game: BoardGame, evaluate: Any, params: Any, config: AlphaZeroConfig) -> Callable[[], Any]:
    """A function that plays `rollout_length` plies of `num_envs` games, samples made of the finished ones included."""
    settings = alphazero.settings_of(config)
    start = jax.jit(functools.partial(playing.start, game, settings, config.environment.num_envs))
    before = start(jax.random.key(0))
    play = jax.jit(functools.partial(_play_once, game, GameModel(game, evaluate), settings))
    return lambda: play(params, before, 1.0)
