"""A made-up game of points, whose movers need not alternate, for any number of players."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.games import BoardGame, BoardLayout, Symmetries
from stoix_like.types import Observation


class PileState(NamedTuple):
    total: jax.Array  # [] int32
    player: jax.Array  # [] int32
    ply: jax.Array  # [] int32
    points: jax.Array  # [P] int32


def _bits(points):
    """The points in binary, [1, 5 P] bool: the planes of a board of one cell."""
    return ((points[:, None] >> jnp.arange(5)[None]) & 1).astype(bool).reshape(1, -1)


def make_piles(num_players, order, max_plies=6):
    """A made-up game: in each of `max_plies` plies the mover takes 0, 1 or 2 points; the order of movers is given. It
    ends early when ten points are taken. Of two players the one with more wins; of more the points are compared with
    the mean."""
    order = jnp.asarray(order, jnp.int32)

    def step(state, action):
        points = state.points.at[state.player].add(action)
        ply = state.ply + 1
        return PileState(state.total + action, order[jnp.minimum(ply, len(order) - 1)], ply, points)

    def outcome(state):
        ahead = num_players * state.points - jnp.sum(state.points)  # [P], and its sum is 0
        value = jnp.sign(ahead) if num_players == 2 else ahead / 32.0  # a power of two, so that floats are exact
        return jnp.where(is_over(state), value, 0.0).astype(jnp.float32)

    def is_over(state):
        return (state.ply >= max_plies) | (state.total >= 10)

    return BoardGame(
        name="piles",
        num_players=num_players,
        num_actions=3,
        max_plies=max_plies,
        init=lambda: PileState(jnp.int32(0), order[0], jnp.int32(0), jnp.zeros((num_players,), jnp.int32)),
        step=step,
        observe=lambda state: Observation(_bits(state.points), jnp.ones((3,), bool)),
        legal_actions=lambda state: jnp.ones((3,), bool),
        player=lambda state: state.player,
        outcome=outcome,
        is_over=is_over,
        cells=lambda state: jnp.full((1,), -1, jnp.int8),
        preference=lambda state: jnp.zeros((3,)),
        layout=BoardLayout((1, 1), "square", np.full((1, 8), -1, np.int32), ("0", "1", "2")),
        symmetries=Symmetries(np.zeros((1, 1), np.int32), np.arange(3, dtype=np.int32)[None]),
    )
