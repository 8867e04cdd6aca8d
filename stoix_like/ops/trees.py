"""Reshaping and reducing whole pytrees of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.types import Array, Metrics, metric_reduction


def merge_leading(tree: Any, num_axes: int = 2) -> Any:
    """The tree with the first `num_axes` axes of every leaf merged: [T, N, ...] becomes [T * N, ...]."""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[num_axes:]), tree)


def take(tree: Any, indices: Array) -> Any:
    """The rows `indices` of every leaf along axis 0."""
    return jax.tree.map(lambda x: jnp.take(x, indices, axis=0), tree)


def where(condition: Array, on_true: Any, on_false: Any) -> Any:
    """Leaf-wise choice by a condition of the leading shape, typed keys included."""

    def choose(a: Array, b: Array) -> Array:
        return jnp.where(condition.reshape(condition.shape + (1,) * (a.ndim - condition.ndim)), a, b)

    return jax.tree.map(choose, on_true, on_false)


def is_key(leaf: Any) -> bool:
    """Whether a leaf, or its shape, is of typed random keys."""
    return bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def key_data(leaf: Any) -> Any:
    """The leaf, typed keys as the integers they are made of: [...] becomes [..., W]."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def named_leaves(tree: Any) -> dict[str, Any]:
    """{path: leaf} in the tree's order; the path of a leaf is like `actor/params/Dense_0/kernel`."""
    return {_path_text(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def _path_text(path: Any) -> str:
    names = (getattr(k, "key", getattr(k, "name", getattr(k, "idx", k))) for k in path)
    return "/".join(str(n) for n in names)


def at_path(tree: Any, path: str) -> Any:
    """What stands at a path such as `rollout.env_state`: fields of NamedTuples and keys of dictionaries."""
    for name in path.split("."):
        tree = tree[name] if isinstance(tree, dict) else getattr(tree, name)
    return tree


def with_paths(tree: Any, values: Mapping[str, Any]) -> Any:
    """The tree with other values at some paths, see `at_path`."""
    for path, value in values.items():
        name, _, rest = path.partition(".")
        new = with_paths(at_path(tree, name), {rest: value}) if rest else value
        tree = {**tree, name: new} if isinstance(tree, dict) else tree._replace(**{name: new})
    return tree


def squared_norm(tree: Any) -> Array:
    """Sum of squares over all leaves, []."""
    return functools.reduce(jnp.add, (jnp.sum(jnp.square(x)) for x in jax.tree.leaves(tree)), jnp.float32(0.0))


_START = {"sum": 0.0, "mean": 0.0, "max": -jnp.inf, "min": jnp.inf}
_COMBINE = {"sum": jnp.add, "mean": jnp.add, "max": jnp.maximum, "min": jnp.minimum}


def empty_metrics(example: Metrics) -> Metrics:
    """An accumulator of the example's shapes that changes nothing when accumulated into."""
    return {name: jnp.full(x.shape, _START[metric_reduction(name)], jnp.float32) for name, x in example.items()}


def accumulate_metrics(total: Metrics, new: Metrics) -> Metrics:
    """The accumulator after one more update. Means are kept as sums; divide by the number of updates at the end."""
    return {name: _COMBINE[metric_reduction(name)](total[name], new[name]) for name in total}


def soft_update(target: Any, online: Any, tau: Array | float) -> Any:
    """The target moved by the share tau towards the online tree: (1 - tau) * target + tau * online, leaf by leaf.

    Leaves keep their types. At tau 1 it is a copy, exactly (optax's `incremental_update` is the same).
    """
    return jax.tree.map(lambda t, o: ((1.0 - tau) * t + tau * o).astype(t.dtype), target, online)


def to_stored(leaf: Any) -> np.ndarray:
    """A leaf in the form in which it is stored: on the host, a typed key as its key data."""
    return np.asarray(key_data(leaf))


def from_stored(found: Any, leaf: jax.ShapeDtypeStruct) -> Any:
    """The inverse of `to_stored` for a leaf of that type."""
    return jax.random.wrap_key_data(found) if is_key(leaf) and not is_key(found) else found


def stored_shape(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """The shape and type of `to_stored`, with the sharding of the leaf."""
    shape, dtype = _stored_type(leaf)
    return jax.ShapeDtypeStruct(shape, dtype, sharding=leaf.sharding)


def stored_shapes(tree: Any) -> dict[str, tuple[int, ...]]:
    """{path: shape of `to_stored`} of every leaf, whether an array or its jax.ShapeDtypeStruct."""
    return {name: _stored_type(leaf)[0] for name, leaf in named_leaves(tree).items()}


def _stored_type(leaf: Any) -> tuple[tuple[int, ...], Any]:
    return _shape_of_key_data(leaf.shape, leaf.dtype) if is_key(leaf) else (tuple(leaf.shape), leaf.dtype)


@functools.cache  # JAX keeps something of each call of eval_shape for ever
def _shape_of_key_data(shape: tuple[int, ...], dtype: Any) -> tuple[tuple[int, ...], Any]:
    inner = jax.eval_shape(key_data, jax.ShapeDtypeStruct(shape, dtype))
    return inner.shape, inner.dtype


def shape_mismatches(shapes: Mapping[str, tuple[int, ...]], template: Any, whose: str = "this run") -> list[str]:
    """One line for each leaf that is stored in another shape than the template's, or stands on one side alone.

    Args:
        shapes: of what is stored, by path.
        template: a pytree of jax.ShapeDtypeStruct.
        whose: it is, in the lines.
    """
    wanted = stored_shapes(template)
    lines = [
        f"{name} is stored as {shapes[name]}, {whose} has {shape}"
        for name, shape in wanted.items()
        if name in shapes and shapes[name] != shape
    ]
    lines += [f"{name} is not stored" for name in wanted if name not in shapes]
    lines += [f"{name} is stored, {whose} has none" for name in shapes if name not in wanted]
    return lines


def over_seeds(
    function: Callable[..., Any], how: Literal["vmap", "map"], in_axes: tuple[Any, ...], out_axes: Any = 0
) -> Callable[..., Any]:
    """The function for several seeds, whose axes are 0, or None where all share a value: prefixes as for `jax.vmap`.

    "vmap" computes the seeds side by side. "map" takes one after the other, as a loop: under `vmap` a `while_loop` runs
    until the last seed is done, and selects its whole carry at every step. A value that all share and the function
    returns is that of the first seed.
    """
    return jax.vmap(function, in_axes, out_axes) if how == "vmap" else _one_after_the_other(function, in_axes, out_axes)


def _one_after_the_other(function: Callable[..., Any], in_axes: tuple[Any, ...], out_axes: Any) -> Callable[..., Any]:
    def mapped(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        is_shared = [axis is None for axis in _axes_of_leaves(in_axes, arguments)]

        def of_one(own: list[Any]) -> Any:
            remaining = iter(own)
            every = [leaf if shared else next(remaining) for leaf, shared in zip(leaves, is_shared, strict=True)]
            return function(*jax.tree.unflatten(structure, every))

        found = jax.lax.map(of_one, [leaf for leaf, shared in zip(leaves, is_shared, strict=True) if not shared])
        results, of_results = jax.tree.flatten(found)
        axes = _axes_of_leaves(out_axes, found)
        return jax.tree.unflatten(of_results, [x if axis == 0 else x[0] for x, axis in zip(results, axes, strict=True)])

    return mapped


def _axes_of_leaves(prefix: Any, tree: Any) -> list[int | None]:
    """The axis of each leaf of the tree. A None is an axis in the prefix, and no leaf in the tree."""

    def axes_of(axis: int | None, part: Any) -> list[int | None]:
        return [axis] * len(jax.tree.leaves(part))

    found = jax.tree.map(axes_of, prefix, tree, is_leaf=lambda x: x is None)
    return jax.tree.leaves(found, is_leaf=lambda x: x is None)


def seed_axes(state: Any, shared: tuple[str, ...]) -> Any:
    """The axis of the seeds of each field of a state: 0, or None for fields that all seeds share."""
    return type(state)(**{field: None if field in shared else 0 for field in state._fields})
