"""Collective operations of the processes of one run, on numbers, text and the arrays of a state.

All processes must call them in the same order. `process_group.ProcessGroup` decides what is sent.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from stoix_like.ops import trees
from stoix_like.runtime.hardware import devices

SEE_ITS_MESSAGE = "see the error message of that process"
#: Raises RunError if a collective operation fails because a process is gone.
_collective = functools.partial(
    devices.reraise_device_errors, "the processes of this run cannot communicate", SEE_ITS_MESSAGE
)


def all_gather(own: np.ndarray) -> np.ndarray:
    """The numbers of all processes, in order: [...] becomes [count, ...]."""
    with _collective():
        return np.asarray(multihost_utils.process_allgather(own))


def broadcast_text(text: str) -> str:
    """The text of process 0. The argument of the other processes is ignored."""
    encoded = np.frombuffer(text.encode(), np.uint8)
    with _collective():
        length = int(multihost_utils.broadcast_one_to_all(np.int32(encoded.size)))
        if length == 0:
            return ""
        buffer = encoded if jax.process_index() == 0 else np.zeros(length, np.uint8)
        return bytes(np.asarray(multihost_utils.broadcast_one_to_all(buffer), np.uint8)).decode()


def host_copy(array: jax.Array) -> np.ndarray:
    """A copy on the host. On CPU, NumPy would otherwise share the memory of an array that is donated next."""
    if array.is_fully_replicated:
        return np.array(array.addressable_data(0))
    if array.is_fully_addressable:
        return np.array(array)
    return np.array(multihost_utils.process_allgather(array, tiled=True))


def broadcast_array(leaf: Any, shape: jax.ShapeDtypeStruct) -> jax.Array:
    """The array of process 0, with the sharding of `shape`. The other processes pass None."""
    stored = jax.eval_shape(trees.key_data, shape)
    own = np.zeros(stored.shape, stored.dtype) if leaf is None else np.asarray(trees.key_data(leaf))
    with _collective():
        values = np.asarray(multihost_utils.broadcast_one_to_all(own))
    if not trees.is_key(shape):
        return jax.make_array_from_callback(values.shape, shape.sharding, lambda index: values[index])
    placed: jax.Array = jax.jit(jax.random.wrap_key_data, out_shardings=shape.sharding)(values)
    return placed
