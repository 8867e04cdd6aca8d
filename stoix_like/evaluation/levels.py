"""Named, frozen sets of levels: claims are made on them, so that two policies are compared on the same instances.

A set is made from its name, not stored: `binpack-2048` is 2,048 keys derived from that text. Training keys are
`jax.random.key(seed)` with a 31-bit seed, whose first word is zero; a set's root key has a first word that is not, so
no training run starts from a level set's root.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.ops import trees
from stoix_like.types import Array, Environment, Key

_BATCH = 256  # levels that are made at a time to find their ceilings
LARGEST_SET = 2**30  # levels: a last round that is filled up to twice as many is still counted in int32
_NAME = re.compile(r"(?P<family>[a-z0-9]+)-(?P<count>[1-9][0-9]*)")


class LevelSet(NamedTuple):
    """A frozen set: the reset keys of its levels, [E] typed keys."""

    name: str
    family: str
    keys: Key


def level_set(name: str, task_id: str) -> LevelSet:
    """The set of that name, `<family>-<count>`, checked to be one of the task's: `binpack-2048` for BinPack-v2.

    Raises:
        ConfigError: a name of another form, of another task, or of more levels than can be counted.
    """
    family = family_of(task_id)
    match = _NAME.fullmatch(name)
    if match is None or match["family"] != family:
        raise ConfigError(
            f"evaluation.level_set: '{name}' is not a level set of {task_id}",
            f"its sets are named {family}-<number of levels>, for example {family}-2048",
        )
    if len(match["count"]) > 10 or int(match["count"]) > LARGEST_SET:  # Python refuses to read 5,000 digits
        raise ConfigError(
            f"evaluation.level_set: '{name[:40]}' has more than {LARGEST_SET:,} levels", "name a smaller set"
        )
    digest = hashlib.sha256(f"stoix_like level set {family}".encode()).digest()
    words = np.frombuffer(digest[:8], dtype=">u4").astype(np.uint32) | np.array([1, 0], np.uint32)
    root = jax.random.wrap_key_data(jnp.asarray(words), impl="threefry2x32")
    keys = jax.vmap(lambda i: jax.random.fold_in(root, i))(jnp.arange(int(match["count"])))
    return LevelSet(name, family, keys)


def family_of(task_id: str) -> str:
    """What the names of a task's level sets begin with: `binpack` for BinPack-v2."""
    return task_id.rsplit("/", 1)[-1].partition("-v")[0].lower().replace("-", "").replace("_", "")


def fingerprint(levels: Any) -> str:
    """Twelve hexadecimal digits of the SHA-256 over the integer and boolean leaves of generated levels.

    Floating leaves are left out: they may differ in the last bit between devices, the instances do not. Levels that are
    floats only (TSP's cities) are therefore told apart by their keys, and not if another Jumanji draws others.
    """
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(levels):
        if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) and not jnp.issubdtype(leaf.dtype, jnp.floating):
            digest.update(np.ascontiguousarray(_host(leaf)).tobytes())
    return digest.hexdigest()[:12]


def ceilings(env: Environment, keys: Key) -> np.ndarray:
    """[E] the solve rate of the best player on the levels of evaluation of keys [E], by `env.ceiling`.

    Levels that come several times are computed once.
    """
    if env.ceiling is None:
        raise ValueError(f"{env.task_id} has no ceiling")
    reset, known = jax.jit(jax.vmap(env.evaluation_reset)), dict[bytes, float]()
    found = []
    for start in range(0, keys.shape[0], _BATCH):
        states, _ = reset(keys[start : start + _BATCH])
        leaves, structure = jax.tree.flatten(states)
        leaves = [leaf if trees.is_key(leaf) else _host(leaf) for leaf in leaves]
        for index in range(leaves[0].shape[0]):
            own = [None if trees.is_key(leaf) else leaf[index] for leaf in leaves]  # no ceiling depends on a key
            name = b"".join(np.ascontiguousarray(x).tobytes() for x in own if x is not None)
            if name not in known:
                known[name] = env.ceiling(jax.tree.unflatten(structure, own))
            found.append(known[name])
    return np.array(found)


def _host(leaf: Array) -> np.ndarray:
    return np.asarray(jax.device_get(leaf))
