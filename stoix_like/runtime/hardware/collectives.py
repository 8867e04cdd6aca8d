"""What the processes of one run send each other: numbers, texts, arrays of a state.

All must call these together, in the same order; who tells what to whom is `process_group.ProcessGroup`.
"""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np

from stoix_like.ops import trees
from stoix_like.runtime.hardware import devices

ITS_OWN_MESSAGE = "its own message says why"  # of a process that is gone


def all_gather(own: np.ndarray) -> np.ndarray:
    """The numbers of every process, in their order: [...] becomes [count, ...]."""
    from jax.experimental import multihost_utils

    with _collective():
        return np.asarray(multihost_utils.process_allgather(own))


def broadcast_text(text: str) -> str:
    """The text that the lead gives; the others give any."""
    from jax.experimental import multihost_utils

    encoded = np.frombuffer(text.encode(), np.uint8)
    with _collective():
        length = int(multihost_utils.broadcast_one_to_all(np.int32(encoded.size)))
        if length == 0:
            return ""
        given = encoded if jax.process_index() == 0 else np.zeros(length, np.uint8)
        return bytes(np.asarray(multihost_utils.broadcast_one_to_all(given), np.uint8)).decode()


def host_copy(array: jax.Array) -> np.ndarray:
    """A copy on the host: on CPU NumPy would look into an array that is donated next."""
    if array.is_fully_replicated:
        return np.array(array.addressable_data(0))
    if array.is_fully_addressable:
        return np.array(array)
    from jax.experimental import multihost_utils

    return np.array(multihost_utils.process_allgather(array, tiled=True))


def broadcast_array(leaf: Any, shape: jax.ShapeDtypeStruct) -> jax.Array:
    """What the lead holds, placed as the shape says; the others give None."""
    from jax.experimental import multihost_utils

    stored = jax.eval_shape(trees.key_words, shape)
    given = np.zeros(stored.shape, stored.dtype) if leaf is None else np.asarray(trees.key_words(leaf))
    with _collective():
        found = np.asarray(multihost_utils.broadcast_one_to_all(given))
    if not trees.is_key(shape):
        return jax.make_array_from_callback(found.shape, shape.sharding, lambda index: found[index])
    wrapped = jax.jit(jax.random.wrap_key_data, out_shardings=shape.sharding)
    placed: jax.Array = wrapped(found)
    return placed


def _collective() -> contextlib.AbstractContextManager[None]:
    """Around what all processes do together: one that is gone is told as that."""
    return devices.reraise_device_errors("the processes of this run cannot meet", ITS_OWN_MESSAGE)
