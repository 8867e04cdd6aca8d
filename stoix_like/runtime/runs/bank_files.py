"""Banks of levels as files: those that come with the package, by name, and a user's own, by path."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stoix_like.config.checks.values import nearest
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.loading.presets import configs_folder
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays

if TYPE_CHECKING:
    from stoix_like.envs.text.banks import Bank

_HEADING = "heading"  # the name of the array with everything that is no level, as JSON
_MADE_BY = "make one with scripts/make_levels.py"


def bank_paths() -> dict[str, Path]:
    """The banks that come with the package, {name: path}."""
    return {path.stem: path for path in sorted((configs_folder() / "banks").glob("*.npz"))}


def write_bank(path: Path, bank: Bank) -> None:
    """Writes a bank, whole or not at all."""
    from stoix_like.ops import trees

    heading = {"task_id": bank.task_id, "rules": dict(bank.rules), "seed": bank.seed, "hash": bank.hash}
    levels = {f"levels/{name}": np.asarray(leaf) for name, leaf in trees.named_leaves(bank.levels).items()}
    write_arrays(path, {_HEADING: np.array(json.dumps(heading))} | levels)


def read_bank(name: str | Path) -> Bank:
    """The bank of a file, or one that comes with the package.

    Raises ConfigError if there is none, or if it is not what its hash says.
    """
    shipped, text = bank_paths(), str(name)
    path = Path(name) if Path(name).is_file() or text not in shipped else shipped[text]
    if not path.is_file():
        known = f"banks that come with the package: {', '.join(shipped)}"
        raise ConfigError(f"environment.kwargs.bank: no file or bank '{text}'{nearest(text, shipped)}", known)
    try:
        arrays = read_arrays(path)
        heading = json.loads(str(arrays[_HEADING]))
        bank, written = _bank_of(arrays, heading), str(heading["hash"])
    except (CheckpointError, KeyError, TypeError, ValueError) as error:
        reason = error.what if isinstance(error, CheckpointError) else f"{path} is no bank of levels"
        raise ConfigError(f"environment.kwargs.bank: {reason}", _MADE_BY) from error
    if bank.hash != written:
        what = f"environment.kwargs.bank: {path} says the hash {written[:12]}, and its levels have {bank.hash[:12]}"
        raise ConfigError(what, f"it was changed or damaged; {_MADE_BY}")
    return bank


def _bank_of(arrays: Mapping[str, np.ndarray], heading: Mapping[str, Any]) -> Bank:
    """Raises KeyError, TypeError or ValueError if something is missing or of another kind."""
    import jax

    from stoix_like.envs.text.bank_making import LEVEL_MAKERS
    from stoix_like.envs.text.banks import Bank
    from stoix_like.ops import trees

    maker = LEVEL_MAKERS[heading["task_id"]]
    leaves = [arrays[f"levels/{name}"] for name in trees.named_leaves(maker.level)]
    if len({leaf.shape[:1] for leaf in leaves}) != 1 or not leaves[0].ndim or not len(leaves[0]):
        raise ValueError("levels of different numbers")
    if set(heading["rules"]) != set(maker.rules):
        raise ValueError("other rules than the levels depend on")
    levels = jax.tree.unflatten(jax.tree.structure(maker.level), leaves)
    return Bank(heading["task_id"], dict(heading["rules"]), int(heading["seed"]), levels)


def with_bank(task_id: str, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments of an environment, with the bank of a text world in place of its name. Raises as `read_bank`."""
    from stoix_like.envs.text.bank_making import LEVEL_MAKERS

    named = kwargs.get("bank")
    is_name = isinstance(named, str) and task_id in LEVEL_MAKERS
    return {**kwargs, "bank": read_bank(str(named))} if is_name else kwargs


def differ_in_bank_alone(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether the arguments of an environment name another bank, or another place of it, and are else the same."""
    named = isinstance(before.get("bank"), str) and isinstance(after.get("bank"), str)
    return named and before != after and {**before, "bank": None} == {**after, "bank": None}
