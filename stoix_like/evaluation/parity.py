"""Two versions of one environment, played side by side on the same levels with the same actions, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.evaluation.episodes import MOST_STEPS
from stoix_like.ops import trees
from stoix_like.types import Array, Environment, EnvState, Key, Policy, TimeStep


class Parity(NamedTuple):
    """What was compared. All counts are int32 [].

    Attributes:
        num_steps: steps of all episodes, resets not counted.
        num_watched: those after which `watch` held.
        num_different: of each leaf of (state, time step), by its path, the steps after which a bit differed.
        num_resets_different: of each leaf, the episodes whose reset already differed.
    """

    num_steps: Array
    num_watched: Array
    num_different: dict[str, Array]
    num_resets_different: dict[str, Array]

    def different_leaves(self) -> dict[str, int]:
        """The leaves that ever differed, with how often."""
        total = {name: int(n) + int(self.num_resets_different[name]) for name, n in self.num_different.items()}
        return {name: n for name, n in total.items() if n}


class _Pair(NamedTuple):
    one: tuple[EnvState, TimeStep]  # [E, ...]
    other: tuple[EnvState, TimeStep]
    alive: Array  # [E]
    parity: Parity
    step: Array


def compare(
    one: Environment,
    other: Environment,
    policy: Policy,
    level_keys: Key,
    key: Key,
    watch: Callable[[EnvState], Array],
) -> Parity:
    """Plays whole episodes [E] from `level_keys` [E] by a policy without parameters that sees `one`. Pure; jit it.

    Both environments get the same actions and go on from their own states, so an early difference stays seen.
    """
    first, first_other = jax.vmap(one.reset)(level_keys), jax.vmap(other.reset)(level_keys)
    resets = {name: jnp.sum(d, dtype=jnp.int32) for name, d in _differences(first, first_other).items()}
    nothing = jax.tree.map(jnp.zeros_like, resets)
    parity = Parity(jnp.int32(0), jnp.int32(0), nothing, resets)
    start = _Pair(first, first_other, jnp.ones(level_keys.shape, bool), parity, jnp.int32(0))

    def step(pair: _Pair) -> _Pair:
        state, timestep = pair.one
        action = policy((), state, timestep.observation, jax.random.fold_in(key, pair.step), False)
        return _advance(one, other, pair, action, watch)

    return jax.lax.while_loop(lambda pair: jnp.any(pair.alive) & (pair.step < MOST_STEPS), step, start).parity


def _advance(
    one: Environment, other: Environment, pair: _Pair, action: Array, watch: Callable[[EnvState], Array]
) -> _Pair:
    new_one = jax.vmap(one.step)(pair.one[0], action)
    new_other = jax.vmap(other.step)(pair.other[0], action)

    def count(found: Array) -> Array:
        return jnp.sum(found & pair.alive, dtype=jnp.int32)

    before = pair.parity
    different = {n: before.num_different[n] + count(d) for n, d in _differences(new_one, new_other).items()}
    parity = before._replace(
        num_steps=before.num_steps + count(pair.alive),
        num_watched=before.num_watched + count(jax.vmap(watch)(new_one[0])),
        num_different=different,
    )
    new_one, new_other = trees.where(pair.alive, (new_one, new_other), (pair.one, pair.other))
    ended = new_one[1].last() | new_other[1].last()
    return _Pair(new_one, new_other, pair.alive & ~ended, parity, pair.step + 1)


def _differences(one: Any, other: Any) -> dict[str, Array]:
    """[E] of each leaf whether any bit of the row differs."""
    leaves = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree_util.tree_leaves_with_path(other), strict=True)
    return {jax.tree_util.keystr(path): _rows_differ(a, b) for (path, a), (_, b) in leaves}


def _rows_differ(a: Array, b: Array) -> Array:
    return jnp.any((_as_bits(a) != _as_bits(b)).reshape(a.shape[0], -1), axis=1)


def _as_bits(x: Array) -> Array:
    if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(x)
    if jnp.issubdtype(x.dtype, jnp.floating):
        return jax.lax.bitcast_convert_type(x, jnp.dtype(f"uint{8 * x.dtype.itemsize}"))
    return x
