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

from stoix_like.algorithms.alphazero.packing import PackedObservation
from stoix_like.algorithms.alphazero.whole_games import GameRecords
from stoix_like.errors import CheckpointError
from stoix_like.games import BoardGame
from stoix_like.selfplay.files.policies import OVER_ALL, OVER_LEGAL, policy_arrays, policy_problems
from stoix_like.types import Observation

FORMATS = (2, 3)  # that are read; the last one is written
PACKED_FORMAT = 4  # of games with many actions, whose policies are over the legal ones
#: By format: what the number of a game is made of beside its moves. Planes and legal moves follow from these.
_IDENTITY = {2: ("policy",), 3: ("policy", "root_values", "is_full"), 4: ("policy", "root_values", "is_full")}
_OUTCOME_SINCE = 3  # the format from which on the outcome is part of it, too


class ShardOrigin(NamedTuple):
    """What a shard was played by."""

    seed: int
    iteration: int
    shard: int
    player: str  # hash of the network's parameters, or name of an engine
    engine: str

    @property
    def key(self) -> OriginKey:
        """What two files have in common if and only if they claim to be the same games."""
        return self.player, self.seed, self.iteration, self.shard


OriginKey = tuple[str, int, int, int]  # player, seed, iteration, shard


#: {name: (type, axes)} of the arrays: N games, H plies, P players, M positions, B bytes of planes, A actions.
_ARRAYS = {
    "moves": ("int16", "NH"),  # the actions of the games; -1 beyond the end
    "num_random": ("int16", "N"),  # random plies at the start
    "num_plies": ("int16", "N"),
    "outcome": ("float32", "NP"),
    "game_id": ("uint64", "N"),
    "game": ("int32", "M"),  # row of the game of each position, ascending; and its plies ascend
    "packed_planes": ("uint8", "MB"),  # for the mover, eight values in a byte, see `pack_planes`
    **OVER_ALL,  # or OVER_LEGAL
    "root_values": ("float32", "MP"),  # the search's, the mover's first
    "predicted": ("float32", "M"),  # the network's for the mover, before the search
    "player": ("int8", "M"),  # the mover
    "is_full": ("bool", "M"),
}
_MOST_DIGITS = 9  # of the numbers that say where a shard comes from
_MOST_LETTERS = 200  # of the player and the engine
KIND = "selfplay"
_TEXTS = ("kind", "format", "game_name", *ShardOrigin._fields)
_NUM_CUT = "num_cut"  # a text of shards whose games may be cut: how many were, and are left out
_VALUES = ("root_values", "predicted", "outcome")  # from -1 to 1
_ROOM, _SUM_TOLERANCE = 1e-5, 1e-3  # that rounding may add, to a value and to a sum of outcomes


def formats_of(game: BoardGame) -> tuple[int, ...]:
    """The formats of a game that are read, of which the last one is written."""
    return FORMATS if game.max_legal is None else (*FORMATS, PACKED_FORMAT)


def shard_arrays(
    game: BoardGame, records: GameRecords, origin: ShardOrigin, version: int | None = None
) -> dict[str, np.ndarray]:
    """The arrays of finished games, on the host. Another `version` than the newest has the numbers of games of that
    format.

    Games that were cut are left out. Without any other there is no shard.
    """
    version = formats_of(game)[-1] if version is None else version
    num_cut, may_be_cut = int(records.is_cut.sum()), records.moves.shape[1] < game.max_plies
    if num_cut:
        records = GameRecords(*(jax.tree.map(lambda rows: rows[~records.is_cut], each) for each in records))
    plies = np.arange(records.moves.shape[1])[None]
    is_position = (plies >= records.num_random[:, None]) & (plies < records.num_plies[:, None])  # [N, H]
    arrays: dict[str, Any] = {
        "moves": _up_to(game.max_plies, np.asarray(records.moves)),
        "num_random": records.num_random,
        "num_plies": records.num_plies,
        "outcome": records.outcome,
        "game": np.nonzero(is_position)[0],
        **_seen(records.observation, is_position),
        "policy": records.policy[is_position],
        "root_values": records.root_values[is_position],
        "predicted": records.predicted[is_position],
        "player": records.player[is_position],
        "is_full": records.is_full[is_position],
    }
    types = _ARRAYS | policy_arrays(game)
    typed = {name: np.asarray(array, types[name][0]) for name, array in arrays.items()}
    typed["game_id"] = game_ids(typed, version)
    typed = {name: typed[name] for name in _ARRAYS}
    texts = {"kind": KIND, "format": str(version), "game_name": game.name}
    texts |= {name: str(value) for name, value in origin._asdict().items()}
    texts |= {_NUM_CUT: str(num_cut)} if may_be_cut else {}
    return typed | {f"text_{name}": np.array(text) for name, text in texts.items()}


def _seen(observation: Observation | PackedObservation, rows: np.ndarray) -> dict[str, Any]:
    """Planes and legal actions of the positions `rows` [N, H] of observations [N, H, ...]."""
    if isinstance(observation, PackedObservation):
        return {"packed_planes": observation.planes[rows], "legal": observation.legal[rows]}
    return {"packed_planes": pack_planes(observation.agent_view[rows]), "legal": observation.action_mask[rows]}


def _up_to(plies: int, moves: np.ndarray) -> np.ndarray:
    """Moves [N, H] as [N, plies], as wide as the longest game whether or not games are cut."""
    return np.pad(moves, ((0, 0), (0, plies - moves.shape[1])), constant_values=-1)


def num_played(arrays: dict[str, np.ndarray]) -> int:
    """How many games were played for a checked shard, those that were cut and left out included."""
    return len(arrays["num_plies"]) + num_cut(arrays)


def num_cut(arrays: dict[str, np.ndarray]) -> int:
    """How many games of a checked shard were cut and left out."""
    return int(text_of(arrays, _NUM_CUT) or 0)


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


def game_ids(arrays: Mapping[str, np.ndarray], version: int = FORMATS[-1]) -> np.ndarray:
    """[N] uint64, of each game of a shard: the same game has the same number wherever it stands.

    It is made of all that is learned from; in format 2, of the moves and policies alone.
    """
    starts = np.searchsorted(arrays["game"], np.arange(len(arrays["moves"]) + 1))
    names = ("moves", "outcome") if version >= _OUTCOME_SINCE else ("moves",)
    of_games, of_positions = ([_little(arrays[name]) for name in each] for each in (names, _IDENTITY[version]))
    ids = np.zeros(len(arrays["moves"]), np.uint64)
    for row in range(len(ids)):
        digest = hashlib.sha256(b"".join(array[row].tobytes() for array in of_games))
        for array in of_positions:
            digest.update(array[starts[row] : starts[row + 1]].tobytes())
        ids[row] = int.from_bytes(digest.digest()[:8], "little")
    return ids


def _little(array: np.ndarray) -> np.ndarray:
    """The array with the same bytes on every machine."""
    return np.asarray(array, array.dtype.newbyteorder("<"))


def text_of(arrays: dict[str, np.ndarray], name: str) -> str:
    """A text of a shard, such as `game_name`; empty if it has none."""
    found = arrays.get(f"text_{name}")
    return str(found) if found is not None and found.dtype.kind == "U" and found.ndim == 0 else ""


def check_format(arrays: dict[str, np.ndarray], path: Path, wanted: Sequence[int]) -> None:
    """Raises CheckpointError if a file was written in another format than this version reads."""
    if (found := text_of(arrays, "format")[:10]) not in map(str, wanted):
        what = f"{path} has format {found!r}, and this version reads {_numbers(wanted)}"
        raise CheckpointError(what, "begin another pipeline in another --save-dir")


def _numbers(formats: Sequence[int]) -> str:
    return " and ".join(map(str, formats))


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
    if (kind := text_of(arrays, "kind")[:40]) != KIND:
        yield f"it is of kind {kind!r}, and games of evaluations are never learned from"
    if (name := text_of(arrays, "game_name")[:40]) != game.name:
        yield f"it is of {name!r}"
    if (version := text_of(arrays, "format")[:10]) not in map(str, formats := formats_of(game)):
        yield f"it has format {version!r}, and this version reads {_numbers(formats)}"
    if not _has_origin(arrays):
        yield "it does not say where it comes from"
    if further := arrays.keys() - _ARRAYS.keys() - {f"text_{name}" for name in (*_TEXTS, _NUM_CUT)}:
        yield f"it has {min(further)[:40]!r}, which no shard has"
    yield from form_problems(_ARRAYS, arrays)
    if len(arrays["num_plies"]) == 0:
        yield "it has no games"
    sizes = {"N": len(arrays["num_plies"]), "M": len(arrays["player"]), "H": game.max_plies, "P": game.num_players}
    planes = jax.eval_shape(lambda: game.observe(game.init())).agent_view.shape
    sizes |= {"A": game.num_actions, "B": packed_size(planes), "K": game.max_legal or 0}
    types = _ARRAYS | (OVER_LEGAL if int(version) == PACKED_FORMAT else OVER_ALL)
    yield from shape_problems(types, arrays, sizes)
    yield from _game_problems(arrays)
    yield from float_problems(game, arrays, _VALUES)
    if (game_ids(arrays, int(version)) != arrays["game_id"]).any():
        yield "a game's number is not that of what is learned from it"


def _has_origin(arrays: dict[str, np.ndarray]) -> bool:
    numbers = [text_of(arrays, name) for name in ("seed", "iteration", "shard")]
    numbers += [text_of(arrays, _NUM_CUT)] if f"text_{_NUM_CUT}" in arrays else []
    names = [text_of(arrays, name) for name in ("player", "engine")]
    return all(number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS for number in numbers) and all(
        0 < len(name) <= _MOST_LETTERS and name.isprintable() for name in names
    )


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
    if not np.array_equal(arrays["game"], np.repeat(np.arange(len(number)), number - first)):
        yield "its positions do not belong to its games"
    if (arrays["moves"] < -1).any():
        yield "a move is below -1, which stands behind the last one"


def float_problems(game: BoardGame, arrays: dict[str, np.ndarray], values: Sequence[str]) -> Iterator[str]:
    """Values out of their range, policies that are none, outcomes that do not sum to 0.

    Args:
        game: whose policies they are.
        arrays: with `policy` and `legal` [M, A] or [M, K], and `outcome` [..., P].
        values: the names of what is from -1 to 1.
    """
    for name in values:
        if not np.isfinite(arrays[name]).all():
            yield f"{name} has values that are not finite"
    for name in values:
        if (largest := np.abs(arrays[name]).max(initial=0.0)) > 1.0 + _ROOM:
            yield f"{name} has {largest:.6g}, and no value is beyond 1"
    yield from policy_problems(game.num_actions, arrays)
    if np.abs(arrays["outcome"].sum(axis=1)).max(initial=0.0) > _SUM_TOLERANCE:
        yield "an outcome does not sum to 0"
