"""What is kept of a position until it is learned from.

Of most games that is what was seen and the policy over all actions, as they are. A game with thousands of actions of
which few are legal (`BoardGame.max_legal`) keeps its planes as bits, its legal actions by number, and the policy over
these in half precision: on hex8 1.7 kB in place of 14.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.games import BoardGame
from stoix_like.ops import masked
from stoix_like.types import Array, Observation


class PackedObservation(NamedTuple):
    """What a mover sees, of K legal actions at most."""

    planes: Array  # [..., B] uint8, eight values of the planes in a byte, the first in the highest bit
    legal: Array  # [..., K] int16, the first K legal actions, ascending; -1 beyond them


def pack(game: BoardGame, observation: Observation, policy: Array) -> tuple[Observation | PackedObservation, Array]:
    """(what is kept of observations [G, ...], what is kept of policies [G, A]).

    A policy has no weight on legal actions beyond the first K: searches have no edges for these.
    """
    if game.max_legal is None:
        return observation, policy
    most = game.max_legal
    actions = jax.vmap(lambda mask: masked.places(mask, most))(observation.action_mask)  # [G, K]
    weights = jnp.where(actions >= 0, jnp.take_along_axis(policy, jnp.maximum(actions, 0), axis=1), 0.0)
    planes = jnp.packbits(observation.agent_view.reshape(len(policy), -1), axis=1)
    return PackedObservation(planes, actions.astype(jnp.int16)), weights.astype(jnp.float16)


def unpack(game: BoardGame, kept: Observation | PackedObservation, policy: Array) -> tuple[Observation, Array]:
    """(observations [B, ...], policies [B, A] float32 that sum to 1) of what was kept."""
    if isinstance(kept, Observation):
        return kept, policy
    shape = jax.eval_shape(lambda: game.observe(game.init())).agent_view.shape
    planes = jnp.unpackbits(kept.planes, axis=1, count=math.prod(shape)).astype(bool).reshape(-1, *shape)
    rows, place = jnp.arange(len(policy))[:, None], jnp.where(kept.legal >= 0, kept.legal, game.num_actions)  # [B, K]
    weights = policy.astype(jnp.float32)
    weights /= jnp.maximum(jnp.sum(weights, axis=1, keepdims=True), 1e-6)  # half precision has rounded them
    mask = jnp.zeros((len(policy), game.num_actions + 1), bool).at[rows, place].set(True)
    dense = jnp.zeros(mask.shape, jnp.float32).at[rows, place].set(weights)
    return Observation(planes, mask[:, :-1]), dense[:, :-1]
