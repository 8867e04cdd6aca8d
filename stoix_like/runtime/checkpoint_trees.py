"""What is stored of a state, as trees: keys as their words, perhaps without the replay; and in which leaves something
stored differs from what it is read for. Knows neither orbax nor a file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from stoix_like.ops import trees

if TYPE_CHECKING:
    from stoix_like.runtime.checkpoint import Meta


def words(leaf: Any) -> np.ndarray:
    """A leaf as it is stored: on the host, a typed key as its words. Orbax refuses arrays of one process among many."""
    return np.asarray(trees.key_words(leaf))


def as_stored(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    """The shape and type of `words`, where the leaf lies."""
    inner = jax.eval_shape(trees.key_words, leaf)
    return jax.ShapeDtypeStruct(inner.shape, inner.dtype, sharding=leaf.sharding)


def as_in_run(found: Any, leaf: jax.ShapeDtypeStruct) -> Any:
    """The inverse of `words` for a leaf like that."""
    return jax.random.wrap_key_data(found) if trees.is_key(leaf) and not trees.is_key(found) else found


def differences(shapes: Mapping[str, tuple[int, ...]], template: Any, whose: str = "this run") -> list[str]:
    """One line for each leaf that is stored in another shape than the template's, or stands on one side alone.

    Args:
        shapes: of what is stored, by path.
        template: a pytree of jax.ShapeDtypeStruct.
        whose: it is, in the lines.
    """
    wanted = {name: tuple(as_stored(leaf).shape) for name, leaf in trees.named_leaves(template).items()}
    lines = [
        f"{name} is stored as {shapes[name]}, {whose} has {shape}"
        for name, shape in wanted.items()
        if name in shapes and shapes[name] != shape
    ]
    lines += [f"{name} is not stored" for name in wanted if name not in shapes]
    lines += [f"{name} is stored, {whose} has none" for name in shapes if name not in wanted]
    return lines


def without_replay(state: Any) -> Any:
    """The state with nothing in place of its replay, if it has one: what `save_replay: false` stores."""
    return state._replace(replay=None) if "replay" in state._fields else state


def stored_template(template: Any, meta: Meta) -> Any:
    """What the checkpoint holds of a state like the template: the template itself, or all but the replay."""
    keeps_replay = meta.config.get("checkpointing", {}).get("save_replay", True)
    return template if keeps_replay or "replay" not in template._fields else without_replay(template)
