"""How soon self-play stops losing at tic-tac-toe: the preset trained, and played out in full every few updates."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax

from stoix_like.algorithms import alphazero
from stoix_like.bench.alphazero.exhaustive import Outcomes, chooser, make_table, play_exhaustively
from stoix_like.bench.alphazero.speed import preset
from stoix_like.bench.alphazero.trainings import adapter_leaves
from stoix_like.bench.timing.measure import Measurement
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.runtime.runs import build
from stoix_like.search import players
from stoix_like.search.gumbel import GameModel

NUM_SIMULATIONS, CHECK_EVERY = 16, 5  # of the player that is checked; updates


class Check(NamedTuple):
    """All games of both seats after some updates, with the search and with the network alone."""

    update: int
    seconds: float  # of training: updates alone, without compiling and without checks
    searching: Outcomes
    network: Outcomes


def solving_rows(seeds: Sequence[int], adapter: str | None = None) -> Iterator[Measurement]:
    """Per seed: seconds until no game is lost, how many games that are, and the losses over training."""
    for seed in seeds:
        checks, compile_seconds = train_and_check(preset("tic_tac_toe", seed=seed, **adapter_leaves(adapter)))
        yield from rows_of(f"learning/alphazero/tic_tac_toe/{adapter or 'preset'}/s{seed}", checks, compile_seconds)


def rows_of(name: str, checks: Sequence[Check], compile_seconds: float) -> Iterator[Measurement]:
    """The rows of one training."""
    last, first, lasting = checks[-1], first_without(checks), lasting_from(checks)
    losses = ", ".join(f"{check.update}: {check.searching.losses}/{check.network.losses}" for check in checks)
    games = last.searching
    note = (
        f"of {games.num_games} exhaustive games of both seats, {games.wins} won, {games.draws} drawn; the network alone"
        f" loses {last.network.losses} of {last.network.num_games}; losses by update, search/network: {losses}"
    )
    yield Measurement(f"{name}/losses", float(games.losses), "games", note=note)
    for what, check in (("first", first), ("lasting", lasting)):
        if check is None:
            yield Measurement(f"{name}/{what}", float("nan"), "s", note="some game was always lost")
            continue
        note = f"{check.update} updates, checked every {CHECK_EVERY}; compiling took {compile_seconds:.1f} s more"
        yield Measurement(f"{name}/{what}", check.seconds, "s", note=note)


def first_without(checks: Sequence[Check]) -> Check | None:
    """The first check at which the search lost no game."""
    return next((check for check in checks if check.searching.losses == 0), None)


def lasting_from(checks: Sequence[Check]) -> Check | None:
    """The check from which on, to the end of the training, the search lost no game."""
    found = None
    for check in reversed(checks):
        if check.searching.losses > 0:
            break
        found = check
    return found


def train_and_check(config: AlphaZeroConfig) -> tuple[list[Check], float]:
    """(the checks, the seconds of compiling) of a whole training."""
    parts = build.build("alphazero", config)
    search = alphazero.match_search(config, NUM_SIMULATIONS)
    model = GameModel(parts.env.game, parts.network.actor_critic)
    makers = chooser(players.gumbel_player(model, search)), chooser(players.policy_player(model, deterministic=True))
    table, began = make_table(), time.perf_counter()
    state = jax.block_until_ready(jax.jit(parts.learner.init)(jax.random.key(config.architecture.seed)))
    program: Any = jax.jit(parts.learner.update, donate_argnums=0).lower(state).compile()
    compile_seconds, seconds = time.perf_counter() - began, 0.0

    def check(update: int) -> Check:
        return Check(update, seconds, *(_both_seats(table, make(state.params.average)) for make in makers))

    checks = [check(0)]
    last = config.training_core.num_updates or 0
    for update in range(1, last + 1):
        began = time.perf_counter()
        state, _ = jax.block_until_ready(program(state))
        seconds += time.perf_counter() - began
        if update % CHECK_EVERY == 0 or update == last:
            checks.append(check(update))
    return checks, compile_seconds


def _both_seats(table: Any, choose: Any) -> Outcomes:
    first, second = (play_exhaustively(table, choose, seat) for seat in (0, 1))
    return Outcomes(*(a + b for a, b in zip(first, second, strict=True)))
