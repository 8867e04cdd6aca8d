"""The legal actions and policies of shards and windows: over all actions, or of games with thousands of them over the
legal ones, as `algorithms.alphazero.packing` keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from stoix_like.games import BoardGame

#: {name: (type, axes)}: M positions, A actions, K of which are legal at most.
OVER_ALL = {"legal": ("bool", "MA"), "policy": ("float32", "MA")}
OVER_LEGAL = {"legal": ("int16", "MK"), "policy": ("float16", "MK")}
_TOLERANCE = 1e-3  # of a sum of weights; those in half precision sum to 1 within 5e-4


def policy_arrays(game: BoardGame) -> dict[str, tuple[str, str]]:
    """How the game's policies are written."""
    return OVER_ALL if game.max_legal is None else OVER_LEGAL


def as_written(game: BoardGame, arrays: dict[str, Any]) -> dict[str, Any]:
    """The arrays with policies as the game's are written now. Of a game with many actions earlier files have them over
    all actions."""
    if game.max_legal is None or arrays["legal"].dtype != bool:
        return arrays
    legal = arrays["legal"]
    order = np.argsort(~legal, axis=1, kind="stable")[:, : game.max_legal]  # the legal ones first, ascending
    is_legal = np.take_along_axis(legal, order, axis=1)
    weights = np.where(is_legal, np.take_along_axis(arrays["policy"], order, axis=1), 0.0)
    packed = {"legal": np.where(is_legal, order, -1).astype(np.int16), "policy": weights.astype(np.float16)}
    return arrays | packed


def policy_problems(num_actions: int, arrays: dict[str, np.ndarray]) -> Iterator[str]:
    """Policies that are no distributions over legal actions, and lists of legal actions that are none."""
    legal, policy = arrays["legal"], arrays["policy"]
    if not np.isfinite(policy).all():
        yield "policy has values that are not finite"
    is_legal = legal if legal.dtype == bool else legal >= 0
    if legal.dtype != bool and not _ascend(num_actions, legal):
        yield "legal actions are no ascending numbers of actions"
    sums = np.abs(policy.sum(axis=1, dtype=np.float64) - 1.0).max(initial=0.0)
    if (policy < 0).any() or (policy[~is_legal] != 0).any() or not sums <= _TOLERANCE:
        yield "a policy is no distribution over legal moves"


def _ascend(num_actions: int, legal: np.ndarray) -> bool:
    """Whether rows ascend from 0 on to below A, and have -1 behind their last number."""
    before, after = legal[:, :-1].astype(int), legal[:, 1:].astype(int)
    follows = np.where(before < 0, after == -1, (after == -1) | (after > before))
    return bool(follows.all() and (legal >= -1).all() and (legal < num_actions).all())
