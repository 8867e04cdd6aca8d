"""The spaces of BinPack in which something fits: a handful of the 40 that an observation has room for.

A space in which no item fits never takes one again, so what is computed for it is lost. Random play has 7 spaces that
are of use at a time, a trained policy 3. The network therefore has room for 16 of them, the first in the order of the
observation, which is by volume. If there are more (3 % of the states of random play; a trained policy had at most 13 in
38,000), all pairs of the others have one score, which is learned, so that every legal action keeps a probability.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from stoix_like.types import Array, Observation

NUM_SPACES = 16


def usable_spaces(observation: Observation) -> tuple[Observation, Array | None]:
    """(the observation with at most 16 spaces, bool [B, 16, E]: which of the E it had is in which place).

    Unchanged, and None, if it has no more than 16. Leaves are [B, ...]; the action mask is read EMS-major, [B, E * I].
    """
    view, ems_mask = observation.agent_view, observation.agent_view["ems_mask"]
    if ems_mask.shape[1] <= NUM_SPACES:
        return observation, None
    fits = observation.action_mask.reshape(*ems_mask.shape, -1)  # [B, E, I]
    usable = fits.any(axis=2)
    place = jnp.cumsum(usable, axis=1) - 1  # [B, E]
    places = (place[:, None] == jnp.arange(NUM_SPACES)[None, :, None]) & usable[:, None]  # [B, 16, E]
    source, exists = jnp.argmax(places, axis=2), places.any(axis=2)  # [B, 16]
    take = jax.vmap(lambda row, at: row[at])
    fits = take(fits, source) & exists[..., None]
    view = view | {"ems": jax.tree.map(lambda x: take(x, source), view["ems"]), "ems_mask": exists}
    return observation._replace(agent_view=view, action_mask=fits.reshape(fits.shape[0], -1)), places


def scores_of_all(scores: Array, places: Array | None, of_others: Array) -> Array:
    """[B, E, I] from scores [B, 16, I]; `of_others` [] for spaces that have no place."""
    if places is None:
        return scores
    # A product with one-hot rows is exact, and so is its gradient, which for a gather would be a scatter.
    exact = lax.Precision.HIGHEST
    spread = jnp.matmul(jnp.swapaxes(places, 1, 2).astype(scores.dtype), scores, precision=exact)
    return jnp.where(places.any(axis=1)[..., None], spread, of_others)
