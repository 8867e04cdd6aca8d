"""A league: the checkpoints of runs and some engines, rated from the matches between them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.config.checks.engines import parse_engine
from stoix_like.evaluation.contests import ratings
from stoix_like.evaluation.contests.match_records import MatchRecord, match_record
from stoix_like.evaluation.contests.openings import OpeningBook
from stoix_like.evaluation.contests.ratings import RatingTable
from stoix_like.games import BoardGame
from stoix_like.runtime.arena.contestants import (
    Contestant,
    ContestantSpec,
    common_game,
    load_contestant,
    naming_games,
    seed_notes,
)
from stoix_like.runtime.arena.match import MatchRunner
from stoix_like.runtime.console.messages import print_to_stderr
from stoix_like.runtime.runs.find import checkpoint_updates, find_runs
from stoix_like.runtime.runs.saved import SavedRun, load_run

FIXED_RATING = 1000.0  # Elo, of the first anchor


class Member(NamedTuple):
    """A player of the league.

    Attributes:
        contestant: who plays.
        run: name of its run; None of an anchor.
        update: of its checkpoint; 0 of an anchor.
        steps: of the environment, that its checkpoint has been trained for.
    """

    contestant: Contestant
    run: str | None = None
    update: int = 0
    steps: int = 0


class League(NamedTuple):
    """The members, and their ratings from all matches."""

    game: BoardGame
    members: list[Member]
    table: RatingTable
    records: list[MatchRecord]


def members_of(
    runs: Sequence[str], anchors: Sequence[str], num_simulations: int | None
) -> tuple[BoardGame, list[Member]]:
    """(the game, the anchors and every numbered checkpoint of the runs).

    Args:
        runs: folders or names.
        anchors: engines by name; the first one's rating is fixed.
        num_simulations: of the runs' searches; 0 for their networks alone, None for their own.

    Raises:
        ConfigError: runs of different games, or of no board game.
        CheckpointError: no such run, or a damaged checkpoint.
    """
    with naming_games():
        paths = find_runs(runs)
    game = common_game([str(path) for path in paths], "best", None)
    names = _distinct_names(paths)
    saved = [(path, _checkpoints(path)) for path in paths]
    specs = [ContestantSpec(str(path), str(path), num_simulations) for path in paths]
    engines = [ContestantSpec(name, None) for name in dict.fromkeys(str(parse_engine(name)) for name in anchors)]
    for note in seed_notes([checkpoints[-1] for _, checkpoints in saved]):
        print_to_stderr(f"note: {note}")
    members = [Member(load_contestant(spec, game, None)) for spec in engines]
    for spec, name, (_, checkpoints) in zip(specs, names, saved, strict=True):
        members += _run_members(spec, name, game, checkpoints)
    return game, members


def _distinct_names(paths: Sequence[Path]) -> list[str]:
    names = [path.name for path in paths]
    return [name if names.count(name) == 1 else str(path) for name, path in zip(names, paths, strict=True)]


def _checkpoints(path: Path) -> list[SavedRun]:
    updates = checkpoint_updates(path / "checkpoints")
    return [load_run(str(path), str(update)) for update in updates] or [load_run(str(path), "best")]


def _run_members(spec: ContestantSpec, name: str, game: BoardGame, checkpoints: Sequence[SavedRun]) -> list[Member]:
    """A member for each checkpoint. They share their player, so that their matches share compiled programs."""
    from stoix_like.runtime.runs.build import ALGORITHMS

    first = load_contestant(spec, game, checkpoints[0])
    members = []
    for run in checkpoints:
        params = run.network_params(run.seed_params(0))
        update = run.meta.update
        steps = update * ALGORITHMS[run.meta.algorithm].steps_per_update(run.config)
        contestant = first._replace(name=f"{name} @ {update:,}", params=params, update=update)
        members.append(Member(contestant, name, update, steps))
    return members


def pairings(members: Sequence[Member]) -> list[tuple[Member, Member]]:
    """Who plays whom: everybody each anchor, checkpoints the next one of their run, and last ones each other."""
    anchors = [member for member in members if member.run is None]
    runs: dict[str, list[Member]] = {}
    for member in members:
        if member.run is not None:
            runs.setdefault(member.run, []).append(member)
    pairs = list(itertools.combinations(anchors, 2))
    pairs += [(member, anchor) for member in members if member.run is not None for anchor in anchors]
    pairs += [(later, before) for own in runs.values() for before, later in itertools.pairwise(own)]
    return pairs + list(itertools.combinations([own[-1] for own in runs.values()], 2))


def play_league(
    game: BoardGame,
    members: list[Member],
    book: OpeningBook,
    seed: int,
    report: Callable[[str], None] = lambda _: None,
) -> League:
    """The league after a match of each of `pairings`. `report` receives the progress."""
    pairs, players, records = pairings(members), {}, []
    for index, (first, second) in enumerate(pairs):
        a, b = first.contestant, second.contestant
        alike: Any = (id(a.player), id(b.player))
        if alike not in players:
            players[alike] = MatchRunner(game, a.player, b.player, book)
        key = jax.random.fold_in(jax.random.key(seed), index)
        results = players[alike].play(a.params, b.params, key)
        records.append(match_record(a.name, b.name, np.asarray(results.score)))
        report(f"{index + 1} of {len(pairs)}: {a.name} against {b.name} {records[-1].score / records[-1].games:.3f}")
    anchors = [member.contestant.name for member in members if member.run is None][:1]
    table = ratings.rate(records, dict.fromkeys(anchors, FIXED_RATING), mean=FIXED_RATING)
    return League(game, members, table, records)
