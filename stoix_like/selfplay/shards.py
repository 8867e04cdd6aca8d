"""Shards: whole games of self-play as arrays, made and checked.

A shard holds the moves of its games from the first one, and every position that was searched with what the search
found. So whatever it claims of positions and outcomes can be checked by the rules (`rules.rule_problem`), also where
the file comes from elsewhere.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.algorithms.alphazero.whole_games import GameRecords
from stoix_like.errors import CheckpointError
from stoix_like.games import BoardGame

FORMAT = 2


class ShardOrigin(NamedTuple):
    """What a shard was played by."""

    seed: int
    iteration: int
    shard: int
    player: str  # hash of the network's parameters, or name of an engine
    engine: str


#: {name: (type, axes)} of the arrays: N games, H plies, P players, M positions, B bytes of planes, A actions.
_ARRAYS = {
    "moves": ("int16", "NH"),  # the actions of the games; -1 beyond the end
    "num_random": ("int16", "N"),  # random plies at the start
    "num_plies": ("int16", "N"),
    "outcome": ("float32", "NP"),
    "game_id": ("uint64", "N"),
    "game": ("int32", "M"),  # row of the game of each position, ascending; and its plies ascend
    "packed_planes": ("uint8", "MB"),  # for the mover, eight values in a byte, see `pack_planes`
    "legal": ("bool", "MA"),
    "policy": ("float32", "MA"),
    "root_values": ("float32", "MP"),  # the search's, the mover's first
    "predicted": ("float32", "M"),  # the network's for the mover, before the search
    "player": ("int8", "M"),  # the mover
    "is_full": ("bool", "M"),
}
_MOST_DIGITS = 9  # of the numbers that say where a shard comes from
_TEXTS = {"kind": "selfplay", "format": str(FORMAT)}


def shard_arrays(game: BoardGame, records: GameRecords, origin: ShardOrigin) -> dict[str, np.ndarray]:
    """The arrays of finished games, on the host."""
    plies = np.arange(records.moves.shape[1])[None]
    is_position = (plies >= records.num_random[:, None]) & (plies < records.num_plies[:, None])  # [N, H]
    arrays: dict[str, Any] = {
        "moves": records.moves,
        "num_random": records.num_random,
        "num_plies": records.num_plies,
        "outcome": records.outcome,
        "game": np.nonzero(is_position)[0],
        "packed_planes": pack_planes(records.observation.agent_view[is_position]),
        "legal": records.observation.action_mask[is_position],
        "policy": records.policy[is_position],
        "root_values": records.root_values[is_position],
        "predicted": records.predicted[is_position],
        "player": records.player[is_position],
        "is_full": records.is_full[is_position],
    }
    arrays["game_id"] = game_ids(arrays["moves"], arrays["game"], arrays["policy"])
    typed = {name: np.asarray(arrays[name], dtype) for name, (dtype, _) in _ARRAYS.items()}
    texts = {**_TEXTS, "game_name": game.name, **{name: str(value) for name, value in origin._asdict().items()}}
    return typed | {f"text_{name}": np.array(text) for name, text in texts.items()}


def pack_planes(planes: np.ndarray) -> np.ndarray:
    """Planes [M, C, F] bool as [M, B] uint8: the values of a position in their order, the first in the highest bit."""
    return np.packbits(planes.reshape(len(planes), -1), axis=1)


def unpack_planes(packed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The planes [M, C, F] bool of `pack_planes`; `shape` is [C, F]."""
    values = np.unpackbits(packed, axis=1, count=math.prod(shape))
    return values.view(bool).reshape(len(packed), *shape)


def packed_size(shape: tuple[int, ...]) -> int:
    """Bytes of the planes [C, F] of a position."""
    return -(-math.prod(shape) // 8)


def game_ids(moves: np.ndarray, game: np.ndarray, policy: np.ndarray) -> np.ndarray:
    """[N] uint64, of the moves and policies of each game: the same game has the same number wherever it stands."""
    starts = np.searchsorted(game, np.arange(len(moves) + 1))
    moves, policy = np.asarray(moves, "<i2"), np.asarray(policy, "<f4")
    ids = np.zeros(len(moves), np.uint64)
    for row in range(len(moves)):
        digest = hashlib.sha256(moves[row].tobytes() + policy[starts[row] : starts[row + 1]].tobytes()).digest()
        ids[row] = int.from_bytes(digest[:8], "little")
    return ids


def text_of(arrays: dict[str, np.ndarray], name: str) -> str:
    """A text of a shard, such as `game_name`; empty if it has none."""
    found = arrays.get(f"text_{name}")
    return str(found) if found is not None and found.dtype.kind == "U" and found.ndim == 0 else ""


def check_format(arrays: dict[str, np.ndarray], path: Path, wanted: int) -> None:
    """Raises CheckpointError if a file was written in another format than this version reads."""
    if (found := text_of(arrays, "format")[:10]) != str(wanted):
        what = f"{path} has format {found!r}, and this version reads {wanted}"
        raise CheckpointError(what, "begin another pipeline in another --save-dir")


def origin_of(arrays: dict[str, np.ndarray]) -> ShardOrigin:
    """Where a checked shard comes from."""
    seed, iteration, shard = (int(text_of(arrays, name)) for name in ("seed", "iteration", "shard"))
    return ShardOrigin(seed, iteration, shard, text_of(arrays, "player"), text_of(arrays, "engine"))


def check_shard(game: BoardGame, arrays: dict[str, np.ndarray], where: str) -> None:
    """Refuses arrays that are no shard of this game.

    Raises:
        CheckpointError: another kind of file or another game, wrong shapes, types or values; `where` is named.
    """
    if problem := next(_problems(game, arrays), None):
        raise CheckpointError(f"{where} is no shard of {game.name}: {problem}", "leave it out")


def _problems(game: BoardGame, arrays: dict[str, np.ndarray]) -> Iterator[str]:
    """What is wrong with a shard. Each problem is found on the condition that there is none before it."""
    if (kind := text_of(arrays, "kind")[:40]) != _TEXTS["kind"]:
        yield f"it is of kind {kind!r}, and games of evaluations are never learned from"
    if (name := text_of(arrays, "game_name")[:40]) != game.name:
        yield f"it is of {name!r}"
    if (version := text_of(arrays, "format")[:10]) != _TEXTS["format"]:
        yield f"it has format {version!r}, and this version reads {FORMAT}"
    numbers = [text_of(arrays, name) for name in ("seed", "iteration", "shard")]
    if not all(number.isdecimal() and len(number) <= _MOST_DIGITS for number in numbers):
        yield "it does not say where it comes from"
    yield from form_problems(_ARRAYS, arrays)
    if len(arrays["num_plies"]) == 0:
        yield "it has no games"
    sizes = {"N": len(arrays["num_plies"]), "M": len(arrays["player"]), "H": game.max_plies, "P": game.num_players}
    planes = jax.eval_shape(lambda: game.observe(game.init())).agent_view.shape
    yield from shape_problems(_ARRAYS, arrays, sizes | {"A": game.num_actions, "B": packed_size(planes)})
    yield from _game_problems(arrays)
    yield from float_problems(arrays, ("policy", "outcome", "root_values", "predicted"))
    if (game_ids(arrays["moves"], arrays["game"], arrays["policy"]) != arrays["game_id"]).any():
        yield "a game's number is not that of its moves and policies"


def form_problems(wanted: Mapping[str, tuple[str, str]], arrays: dict[str, np.ndarray]) -> Iterator[str]:
    """Arrays that are missing, or have another number of axes than {name: (type, axes)}."""
    yield from (f"it has no {name}" for name in wanted if name not in arrays)
    yield from (f"{name} has {arrays[name].ndim} axes" for name in wanted if arrays[name].ndim != len(wanted[name][1]))


def shape_problems(
    wanted: Mapping[str, tuple[str, str]], arrays: dict[str, np.ndarray], sizes: Mapping[str, int]
) -> Iterator[str]:
    """Arrays of another type or shape than {name: (type, axes)}, whose axes have these sizes."""
    for name, (dtype, axes) in wanted.items():
        shape = tuple(sizes[axis] for axis in axes)
        if arrays[name].dtype != dtype or arrays[name].shape != shape:
            yield f"{name} is {arrays[name].dtype} {arrays[name].shape} and should be {dtype} {shape}"


def _game_problems(arrays: dict[str, np.ndarray]) -> Iterator[str]:
    number, first = arrays["num_plies"].astype(int), arrays["num_random"].astype(int)
    if not ((first >= 0) & (first < number) & (number <= arrays["moves"].shape[1])).all():
        yield "a game has no plies after its random ones"
    counts = np.bincount(np.clip(arrays["game"], 0, None), minlength=len(number))
    if (np.diff(arrays["game"]) < 0).any() or len(counts) != len(number) or (counts != number - first).any():
        yield "its positions do not belong to its games"


def float_problems(arrays: dict[str, np.ndarray], names: Sequence[str]) -> Iterator[str]:
    """Values that are not finite, policies that are none, outcomes that do not sum to 0."""
    yield from (f"{name} has values that are not finite" for name in names if not np.isfinite(arrays[name]).all())
    policy, tolerance = arrays["policy"], 1e-3
    sums = np.abs(policy.sum(axis=1) - 1.0).max(initial=0.0)
    if (policy < 0).any() or (policy[~arrays["legal"]] != 0).any() or sums > tolerance:
        yield "a policy is no distribution over legal moves"
    if np.abs(arrays["outcome"].sum(axis=1)).max(initial=0.0) > tolerance:
        yield "an outcome does not sum to 0"
