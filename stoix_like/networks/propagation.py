"""Values that flow through a grid: the fixed point of v = max(source, max over the 4 neighbours of v - cost).

This is value propagation (Nardelli et al. 2019, "Value Propagation Networks", arXiv 1805.11199) in sums instead of
products, so that far from a source the difference between two neighbours is still one cost and not a vanishing share.

The gradient is that of the fixed point. Each cell has one origin, its own source or its best neighbour (ties share),
and a gradient walks back along these origins. It keeps six arrays instead of all the steps: a tenth of the time of
differentiating the loop on CPU.

Columns do not meet, so a CPU propagates some of them to the end before it takes the next: what it reads and writes then
stays in the cache of a core. A GPU launches every step of a loop, which takes it longer than a small step itself: there
the loop is unrolled, by up to 40 steps. Neither changes a number.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from stoix_like.types import Array

BLOCKED = -1e3  # below every source; also what lies beyond the border
#: Columns that a CPU propagates at a time. 32 to 512 were tried on mazes of 10 by 10 (docs/log.md).
BLOCK = 128
#: Cells of all columns up to which a loop is unrolled on a GPU. On an H100, with mazes of 10 by 10, whole updates were
#: 4.7 times as fast with 512 columns, and 9 % slower with 32,768 (docs/log.md). Between them nothing was measured.
MOST_UNROLLED = 8192 * 10 * 10
UNROLL = 40  # steps of one trip of such a loop: what a maze of 10 by 10 takes


def neighbours(values: Array) -> tuple[Array, Array, Array, Array]:
    """The values above, to the right of, below and to the left of each cell; each [R, C, D] from [R, C, D]."""
    padded = jnp.pad(values, ((1, 1), (1, 1), (0, 0)), constant_values=BLOCKED)
    return padded[:-2, 1:-1], padded[1:-1, 2:], padded[2:, 1:-1], padded[1:-1, :-2]


def _best_neighbour(values: Array) -> Array:
    return functools.reduce(jnp.maximum, neighbours(values))


def propagate(source: Array, cost: Array, num_steps: int, platform: str = "cpu") -> Array:
    """v after `num_steps` steps from `source`, [R, C, D]; batch and channels share the last axis, which vectorises.

    Args:
        source: [R, C, D], the value of a cell of itself.
        cost: [R, C, D], paid on entering a cell; must be positive, or values would circle.
        num_steps: the longest way, in cells. The gradient is exact when no longer way matters.
        platform: "cpu" or another, which decides how it is computed.
    """
    columns = source.shape[-1]
    if not isinstance(columns, int):  # a symbol: the program is exported for every size and every platform
        return _propagate(source, cost, num_steps, 1)
    if platform != "cpu":
        is_small = source.size <= MOST_UNROLLED
        return _propagate(source, cost, num_steps, min(num_steps, UNROLL) if is_small else 1)
    if columns <= BLOCK or jax.device_count() > 1:  # columns that are spread over devices stay where they are
        return _propagate(source, cost, num_steps, 1)
    return _in_blocks(source, cost, num_steps)


def _in_blocks(source: Array, cost: Array, num_steps: int) -> Array:
    blocks = _blocks(source), _blocks(cost)
    values: Array = jax.lax.map(lambda block: _propagate(*block, num_steps, 1), blocks)
    return jnp.moveaxis(values, 0, 2).reshape(*source.shape[:2], -1)[..., : source.shape[-1]]


def _blocks(x: Array) -> Array:
    """[K, R, C, BLOCK] from [R, C, D]; the last block is filled up with zeros."""
    missing = -x.shape[-1] % BLOCK
    filled = jnp.pad(x, ((0, 0), (0, 0), (0, missing)))
    return jnp.moveaxis(filled.reshape(*x.shape[:2], -1, BLOCK), 2, 0)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _propagate(source: Array, cost: Array, num_steps: int, unroll: int) -> Array:
    def step(_: Array, values: Array) -> Array:
        return jnp.maximum(source, _best_neighbour(values) - cost)

    return jax.lax.fori_loop(0, num_steps, step, source, unroll=unroll)


def _forward(source: Array, cost: Array, num_steps: int, unroll: int) -> tuple[Array, tuple[Array, tuple[Array, ...]]]:
    values = _propagate(source, cost, num_steps, unroll)
    best = _best_neighbour(values)
    from_neighbour = best - cost > source
    is_best = [n == best for n in neighbours(values)]
    share = from_neighbour / sum(b.astype(values.dtype) for b in is_best)
    return values, (from_neighbour, tuple(b * share for b in is_best))


def _backward(
    num_steps: int, unroll: int, kept: tuple[Array, tuple[Array, ...]], gradient: Array
) -> tuple[Array, Array]:
    from_neighbour, (above, right, below, left) = kept

    def step(_: Array, flow: Array) -> Array:
        # A cell that took its value from above hands its gradient to the cell above, and so on.
        to_above = jnp.pad(flow * above, ((0, 1), (0, 0), (0, 0)))[1:]
        to_below = jnp.pad(flow * below, ((1, 0), (0, 0), (0, 0)))[:-1]
        to_right = jnp.pad(flow * right, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        to_left = jnp.pad(flow * left, ((0, 0), (0, 1), (0, 0)))[:, 1:]
        return gradient + to_above + to_below + to_right + to_left

    flow = jax.lax.fori_loop(0, num_steps, step, gradient, unroll=unroll)
    return jnp.where(from_neighbour, 0.0, flow), jnp.where(from_neighbour, -flow, 0.0)


_propagate.defvjp(_forward, _backward)
