"""Hashes of arrays: what a manifest calls its inputs and outputs by.

They cover names, types, shapes and bytes, and nothing of the file: not its time, its place or its compression.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from stoix_like.ops import trees


def array_hash(arrays: Mapping[str, np.ndarray]) -> str:
    """SHA-256 of named arrays, in hexadecimal digits; the same in whatever order they stand."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def tree_hash(tree: Any) -> str:
    """`array_hash` of the leaves of a pytree by their paths."""
    return array_hash({name: np.asarray(leaf) for name, leaf in trees.named_leaves(tree).items()})
