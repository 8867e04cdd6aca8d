"""Loads an exported policy: a function of observations that needs neither its run nor its environment."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.ops import trees
from stoix_like.runtime.console.spelling import usage
from stoix_like.runtime.weights import policy_folder, policy_program
from stoix_like.types import Array, EnvState, Key, Observation, Params

#: What flatbuffers, MLIR and jax raise for programs they cannot read.
_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, AssertionError, struct.error)


class PolicyOutput(NamedTuple):
    """The output of an exported policy for a batch of observations."""

    action: Array  # [B] or [B, F] int32
    logits: Array  # [B, A] or [B, F, A] float32; illegal actions hold the most negative finite number
    value: Array  # [B] float32, discounted return in the reward units of training


class ExportedPolicy(NamedTuple):
    """An exported policy: call it with observations, or pass its `policy` to `evaluate`.

    Attributes:
        description: the content of policy.json.
        program: the exported function, see `policy_program`.
    """

    description: dict[str, Any]
    program: policy_program.Program

    def __repr__(self) -> str:
        facts = ", ".join(f"{name}={self.description[name]!r}" for name in ("task_id", "algorithm", "update", "seed"))
        return f"ExportedPolicy({facts})"

    def __call__(
        self, observation: Observation | Mapping[str, Any], key: Key | None = None, deterministic: bool = True
    ) -> PolicyOutput:
        """Actions, logits and values. Compiles once per batch size. It can be jitted and scanned, but not vmapped.

        Args:
            observation: batched, leaves [B, ...]: an `Observation`, or arrays by the names in `description`.
            key: needed to sample actions: a typed key, or its two words.
            deterministic: returns the most probable actions instead of sampled ones.

        Raises:
            ConfigError: the observation or the key does not fit, or the key to sample with is missing.
        """
        if key is None and not deterministic:
            raise ConfigError("sampling actions needs a key", "give key=jax.random.key(0), another for every call")
        leaves = observation if isinstance(observation, Mapping) else policy_program.observation_leaves(observation)
        words = np.zeros(policy_program.KEY_WORDS, np.uint32) if key is None else _key_words(key)
        return PolicyOutput(**self.program(_fitting(self.description, leaves), words, np.bool_(deterministic)))

    def policy(
        self, params: Params, env_state: EnvState, observation: Observation, key: Key, deterministic: bool, /
    ) -> Array:
        """The actions, with the signature of `Learner.policy`. Parameters and state are ignored."""
        del params, env_state
        return self(observation, key, deterministic).action


def load_policy(folder: str | Path) -> ExportedPolicy:
    """The policy that `scripts/export_policy.py` wrote into a folder.

    Load only policies that you trust: a program may run any custom call of jaxlib.

    Raises:
        CheckpointError: the folder has no policy, it is damaged or not ours, or a newer jax or stoix_like wrote it.
    """
    path = Path(folder)
    program, description = policy_folder.read(path)
    try:
        written = str(description["versions"]["jax"])
        is_newer = _release(written) > _release(jax.__version__)
        row = {
            leaf["name"]: jax.ShapeDtypeStruct(tuple(leaf["shape"][1:]), np.dtype(leaf["dtype"]))
            for leaf in description["observation"]
        }
    except (ValueError, LookupError, TypeError) as error:
        raise policy_folder.unusable_export(path, f"its {policy_folder.DESCRIPTION} was changed") from error
    if is_newer:
        raise _other_jax(path, written)
    try:
        return ExportedPolicy(description, policy_program.deserialize(program, row))
    except _UNREADABLE as error:  # the digests match, so the files are intact
        if written != jax.__version__:
            raise _other_jax(path, written) from error
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
        message = f"the export {path} cannot be used by this jax: {reason}"
        raise CheckpointError(message, f"export again: {usage('export')} RUN") from error


def _release(version: str) -> tuple[int, ...]:
    """(0, 10) of `0.10.2`: later releases read a stored program, and so do other patches of the same release."""
    return tuple(int(part) for part in version.split(".")[:2])


def _other_jax(path: Path, written: str) -> CheckpointError:
    newer = f'pip install "jax>={written}", or ' if _release(written) >= _release(jax.__version__) else ""
    return CheckpointError(
        f"the export {path} was written with jax {written}, and this is jax {jax.__version__}",
        f"{newer}export again with this jax: {usage('export')} RUN",
    )


def _key_words(key: Any) -> Any:
    words = trees.key_data(_array(key))
    if words.shape != (policy_program.KEY_WORDS,) or words.dtype != np.uint32:
        message = f"the policy takes one key of two uint32 words, got {words.dtype} of shape {words.shape}"
        raise ConfigError(message, f'make it with jax.random.key(0, impl="{policy_program.KEY_IMPLEMENTATION}")')
    return words


def _fitting(description: Mapping[str, Any], leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The leaves that the program takes, cast to its types. ConfigError lists all that are missing or do not fit."""
    wanted = description["observation"]
    taken = {leaf["name"]: _array(leaves[leaf["name"]]) for leaf in wanted if leaf["name"] in leaves}
    problems = [f"observation: '{leaf['name']}' is missing" for leaf in wanted if leaf["name"] not in taken]
    for leaf in (leaf for leaf in wanted if leaf["name"] in taken):
        found = taken[leaf["name"]]
        if found.ndim == 0 or found.shape[0] == 0 or found.shape[1:] != tuple(leaf["shape"][1:]):
            problems.append(f"observation: '{leaf['name']}' has shape {found.shape}, not {_shape_text(leaf['shape'])}")
        elif not np.can_cast(found.dtype, leaf["dtype"], "same_kind"):
            problems.append(f"observation: '{leaf['name']}' is {found.dtype}, not {leaf['dtype']}")
    if not problems and len({found.shape[0] for found in taken.values()}) > 1:
        problems.append(f"observation: batches differ: { ({name: x.shape[0] for name, x in taken.items()}) }")
    if problems:
        listed = ", ".join(f"{leaf['name']} {_shape_text(leaf['shape'])} {leaf['dtype']}" for leaf in wanted)
        raise ConfigError(problems, f"{description['task_id']} has {listed}")
    return {leaf["name"]: taken[leaf["name"]].astype(leaf["dtype"]) for leaf in wanted}


def _array(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)


def _shape_text(shape: list[Any]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
