"""Frozen, hashed lists of openings: the positions that every match begins from, so that games of players without
randomness differ, and that two matches can be compared.

A book is made from its name, not stored. Its positions are undecided, and distinct up to the symmetries of the board
and the order of moves. Two positions are one if a symmetry makes cells (of games of stacks, all that is drawn), player
to move and legal moves equal; what a position remembers beyond these, such as earlier positions of go, is not compared.

The hash says which book it is: NumPy does not promise that its random generators draw alike in all releases, so a name
alone does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.evaluation.contests.moves import in_batches, play_moves
from stoix_like.games import BoardGame, GameState
from stoix_like.types import Array

MOST_EXPANDED = 20_000  # moves from the distinct positions of one ply; a ply that has more is sampled, not enumerated
_BATCH = 1024  # positions stepped at once
_MOST_REPLAYS = 8  # compiled programs that are kept
_REPLAYS: dict[tuple[Any, ...], Callable[[np.ndarray], _Facts]] = {}  # by the functions of a game, and plies


class OpeningBook(NamedTuple):
    """M openings of k plies."""

    name: str  # game-plies-M
    game: str
    plies: int
    moves: np.ndarray  # [M, k] int32, on the host
    hash: str  # twelve hexadecimal digits, of the game and the moves


class _Facts(NamedTuple):
    """Facts of positions [N]; NumPy arrays on the host, JAX arrays inside the jitted replay."""

    was_legal: Any  # [N, k] bool, each move where it stood
    is_over: Any  # [N] bool
    legal: Any  # [N, A] bool
    look: Any  # [N, C, K] int8, what lies on each cell
    player: Any  # [N] int32, to move


def openings(game: BoardGame, plies: int, count: int | None = None) -> OpeningBook:
    """The book of all distinct undecided positions after `plies` plies, or of `count` of them.

    Where a ply has more than `MOST_EXPANDED` moves to try, positions come from random games instead, and the book has
    as many as these find. The same call gives the same book, and a smaller count a prefix of it.

    Raises:
        ConfigError: no position is undecided after so many plies, or all were asked for where there are too many.
    """
    if not 0 <= plies < game.max_plies or (count is not None and count < 1):
        raise ConfigError(
            f"openings: {plies} plies of {game.name}, {count} openings",
            f"ask for 0 to {game.max_plies - 1} plies and at least one opening",
        )
    generator = np.random.default_rng(np.frombuffer(_digest(f"openings {game.name} {plies}".encode()), "<u4"))
    replay = _replay(game, plies)
    moves = _enumerated(game, plies, replay)
    if moves is not None:
        moves = moves[generator.permutation(len(moves))]  # so that a prefix is representative
    elif count is None:
        raise ConfigError(
            f"openings: {game.name} has too many positions after {plies} plies to list them all",
            "say how many to sample",
        )
    else:
        moves = _sampled(game, plies, count, replay, generator)
    if len(moves) == 0:
        raise ConfigError(f"openings: every game of {game.name} is over after {plies} plies", "ask for fewer plies")
    return as_book(game, moves[:count])


def as_book(game: BoardGame, moves: np.ndarray) -> OpeningBook:
    """The book of moves [M, k] as they are; `check_openings` those that come from elsewhere."""
    moves = np.ascontiguousarray(moves, np.int32)
    head = f"{game.name} moves {moves.dtype.str} {moves.shape}".encode()
    digest = _digest(head + moves.astype("<i4").tobytes()).hex()[:12]
    return OpeningBook(f"{game.name}-{moves.shape[1]}-{len(moves)}", game.name, moves.shape[1], moves, digest)


def check_openings(game: BoardGame, moves: np.ndarray) -> None:
    """Refuses openings [M, k] that cannot be played, or leave nothing to play.

    Raises:
        ConfigError: a move that is not legal where it stands, or a game that is over; it names the opening.
    """
    hint = f"openings are rows of legal actions of {game.name} that leave the game undecided"
    moves = np.asarray(moves)
    if moves.ndim != 2 or not np.issubdtype(moves.dtype, np.integer) or len(moves) == 0:
        raise ConfigError(f"openings: {moves.dtype} of shape {moves.shape} instead of integers [M, k]", hint)
    in_range = (moves >= 0) & (moves < game.num_actions)
    facts = _replay(game, moves.shape[1])(np.where(in_range, moves, game.num_actions).astype(np.int32))
    if not facts.was_legal.all():
        index, ply = np.argwhere(~facts.was_legal)[0]
        action = int(moves[index, ply])
        names = game.layout.action_names
        name = f" ('{names[action]}')" if 0 <= action < len(names) else ""
        raise ConfigError(f"openings: move {ply + 1} of opening {index}, {action}{name}, is not legal", hint)
    if facts.is_over.any():
        raise ConfigError(f"openings: opening {np.flatnonzero(facts.is_over)[0]} ends the game", hint)


def positions(game: BoardGame, moves: Array) -> GameState:
    """The states [M, ...] after legal moves [M, k] from the start. Pure; jit it."""

    def play(moves: Array) -> GameState:
        return jax.lax.scan(lambda state, action: (game.step(state, action), None), game.init(), moves)[0]

    return jax.vmap(play)(moves)


def _replay(game: BoardGame, plies: int) -> Callable[[np.ndarray], _Facts]:
    """The function moves [N, at most `plies`] -> facts of where they lead, on the host. It compiles once for a game."""
    key = (game.init, game.step, game.is_over, game.legal_actions, game.cells, game.picture, game.player, plies)
    if (known := _REPLAYS.get(key)) is not None:
        return known

    def facts_of(moves: Array) -> _Facts:
        state, was_legal, _ = play_moves(game, moves)
        facts = (game.is_over(state), game.legal_actions(state), _look(game, state), game.player(state))
        return _Facts(was_legal, *facts)

    if len(_REPLAYS) == _MOST_REPLAYS:
        del _REPLAYS[next(iter(_REPLAYS))]  # the oldest
    return _REPLAYS.setdefault(key, in_batches(facts_of, plies, _BATCH))


def _look(game: BoardGame, state: GameState) -> Array:
    """[C, K] int8, what lies on each cell."""
    if game.picture is None:
        return game.cells(state)[:, None]
    picture = game.picture(state)
    return jnp.concatenate([picture.rings, picture.markers[:, None], picture.territory[:, None]], axis=1)


def _enumerated(game: BoardGame, plies: int, replay: Callable[[np.ndarray], _Facts]) -> np.ndarray | None:
    """Moves [M, k] to all distinct undecided positions, in a fixed order; None if there are too many to try."""
    moves = np.zeros((1, 0), np.int32)
    facts = replay(moves)
    for _ in range(plies):
        parent, action = np.nonzero(facts.legal & ~facts.is_over[:, None])
        if len(parent) > MOST_EXPANDED:
            return None
        moves = np.concatenate([moves[parent], action[:, None].astype(np.int32)], axis=1)  # [N, ply + 1]
        if len(moves) == 0:
            return np.zeros((0, plies), np.int32)
        facts = replay(moves)
        _, first = np.unique(_keys(game, facts), return_index=True)
        kept = np.sort(first)
        kept = kept[~facts.is_over[kept]]
        moves, facts = moves[kept], jax.tree.map(lambda x, kept=kept: x[kept], facts)
    return moves


def _sampled(
    game: BoardGame,
    plies: int,
    count: int,
    replay: Callable[[np.ndarray], _Facts],
    generator: np.random.Generator,
) -> np.ndarray:
    """Moves [at most count, k] to distinct undecided positions of uniformly random games, in the order found. It ends
    when a batch of games finds nothing new."""
    found: dict[bytes, np.ndarray] = {}
    while True:
        moves, facts = _random_games(plies, replay, generator)
        before = len(found)
        for key, row in zip(_keys(game, facts).tolist(), moves, strict=True):
            found.setdefault(key, row)
        if len(found) >= count or len(found) == before:
            return np.stack([*found.values()])[:count] if found else np.zeros((0, plies), np.int32)


def _random_games(
    plies: int, replay: Callable[[np.ndarray], _Facts], generator: np.random.Generator
) -> tuple[np.ndarray, _Facts]:
    """Moves [N, k] of those of a batch of uniformly random games that go on, and the facts of their ends."""
    moves = np.zeros((_BATCH, 0), np.int32)
    facts = replay(moves)
    for _ in range(plies):
        drawn = generator.integers(0, 2**31, len(moves)) % np.maximum(facts.legal.sum(axis=1), 1)
        action = np.argmax(np.cumsum(facts.legal, axis=1) > drawn[:, None], axis=1)  # the legal action of that rank
        moves = np.concatenate([moves, action[:, None].astype(np.int32)], axis=1)  # [N, ply + 1]
        facts = replay(moves)
        goes_on = ~facts.is_over
        moves, facts = moves[goes_on], jax.tree.map(lambda x, rows=goes_on: x[rows], facts)
        if len(moves) == 0:
            break
    return moves, facts


def _keys(game: BoardGame, facts: _Facts) -> np.ndarray:
    """[N] bytes: the smallest description of each position over the symmetries, equal for positions that are one."""
    player = np.broadcast_to(facts.player[:, None] + 1, (len(facts.player), 1))
    rows = [
        np.concatenate([_flat(facts.look[:, cells]) + 2, player, facts.legal[:, actions] + 1], axis=1).astype(np.uint8)
        for cells, actions in zip(game.symmetries.cells, game.symmetries.actions, strict=True)
    ]  # [S] of [N, C K + 1 + A], without zeros, which NumPy takes for the end of bytes
    texts = np.stack([np.ascontiguousarray(row).view(f"S{row.shape[1]}")[:, 0] for row in rows])  # [S, N]
    return np.sort(texts, axis=0)[0]


def _flat(look: np.ndarray) -> np.ndarray:
    return look.reshape(len(look), -1)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
