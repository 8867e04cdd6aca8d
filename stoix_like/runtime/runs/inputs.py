"""Arrays that a run needs and does not learn: data, a reference policy, frozen parameters.

The row of an algorithm gives them as host arrays by path of the State. They are placed there after `init` and after a
resume, so no program has them as constants. Checkpoints name them by hash and do not hold them: a run that is resumed
must be given the same again, from wherever they are now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.ops import trees
from stoix_like.runtime.runs.checkpoint import CheckpointMeta

OF_EVERY_STATE = ("params", "hyper", "key", "step")
TOKENIZER = "tokenizer"  # the input of language models that those who go on with their parameters share


def hashes(inputs: Mapping[str, Any]) -> dict[str, str]:
    """{path: SHA-256 over names, shapes, types and values of its arrays}."""
    return {path: _hash(tree) for path, tree in inputs.items()}


def _hash(tree: Any) -> str:
    digest = hashlib.sha256()
    for name, leaf in trees.named_leaves(tree).items():
        array = np.ascontiguousarray(trees.to_stored(leaf))
        digest.update(f"{name} {array.shape} {array.dtype.str}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def check_hashes(inputs: Mapping[str, Any], meta: CheckpointMeta, path: Path) -> None:
    """Raises CheckpointError if the inputs are not those that a checkpoint of the run at `path` was written with."""
    found, stored = hashes(inputs), meta.inputs
    changed = [path for path in {**stored, **found} if found.get(path) != stored.get(path)]
    if changed:
        now, then = (hashed.get(changed[0], "none")[:12] for hashed in (found, stored))
        raise CheckpointError(
            f"checkpoint {meta.update} of {path} was written with another {changed[0]}: its hash was {then}, not {now}",
            "give the run the files it began with, or start a new run with --load-path",
        )


def check_tokenizer(ours: str | None, meta: CheckpointMeta, path: Path) -> None:
    """Raises CheckpointError if parameters of the run at `path` speak of other tokens than a tokenizer of this hash."""
    theirs = meta.inputs.get(TOKENIZER)
    if ours == theirs:
        return
    if ours is None or theirs is None:
        what, hint = "only one of the two is a language model", "give a run of the same kind"
    else:
        what = f"it speaks the tokens of another vocabulary, {theirs[:12]}, not {ours[:12]}"
        hint = "give a model that was pretrained with this version's words"
    raise CheckpointError(f"the parameters of {path} cannot be used: {what}", hint)


def check_bank(bank_hash: str | None, meta: CheckpointMeta, path: Path) -> None:
    """Raises CheckpointError if the levels are of another bank than those of a checkpoint of the run at `path`."""
    if bank_hash != meta.bank:
        now, then = ((name or "none")[:12] for name in (bank_hash, meta.bank))
        raise CheckpointError(
            f"checkpoint {meta.update} of {path} learned on another bank of levels: its hash was {then}, not {now}",
            "give the run the bank it began with, or start a new run with --load-path",
        )


def check_shapes(inputs: Mapping[str, Any], template: Any) -> None:
    """Raises ConfigError if an input does not have the shapes and types that the state has at its path, or if it stands
    where every run learns or counts."""
    for path, tree in inputs.items():
        if path.partition(".")[0] in OF_EVERY_STATE:
            raise ConfigError(f"the input {path} is a part of what every run saves", "give it a field of its own")
        wanted = trees.at_path(template, path)
        if trees.named_leaves(tree).keys() != trees.named_leaves(wanted).keys():
            raise ConfigError(f"the input {path} has other fields than the state", "make both from the same data")
        for (name, given), leaf in zip(trees.named_leaves(tree).items(), jax.tree.leaves(wanted), strict=True):
            if (np.shape(given), np.asarray(given).dtype) != (leaf.shape, leaf.dtype):
                where = f"{path}/{name}" if name else path
                raise ConfigError(
                    f"the input {where} is {np.asarray(given).dtype}{list(np.shape(given))}, and the state has"
                    f" {leaf.dtype}{list(leaf.shape)} there",
                    "all seeds share an input: name its field in Learner.shared",
                )


def place(state: Any, inputs: Mapping[str, Any], template: Any) -> Any:
    """The state with the inputs at their paths, in the template's shardings."""
    placed = {
        path: jax.tree.map(lambda x, leaf: _put(x, leaf.sharding), tree, trees.at_path(template, path))
        for path, tree in inputs.items()
    }
    return trees.with_paths(state, placed)


def _put(x: Any, sharding: Any) -> jax.Array:
    array = np.asarray(x)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])
