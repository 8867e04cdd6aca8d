"""A policy without search as a program that runs wherever jax does, and needs nothing of this project: the door to
jax.export.

Whoever calls the program has no class of ours, so it takes and gives dictionaries of plain arrays:

    ({name: array [B, ...]}, key words [2] uint32, deterministic [] bool) -> {"action", "logits", "value"}

The parameters are constants in it; the batch size B is left open. Logits and value cost little beside the action, and
who deploys a policy wants them: to see how sure it is, to act by a rule of one's own, to search.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from stoix_like.ops import distributions, trees
from stoix_like.types import Array, Network, NetworkParams, Observation

PLATFORMS = ("cpu", "cuda", "tpu")
BATCH = "batch"  # the name of the open axis
#: Of keys that the program takes: jax's own default, named so that no setting of a caller changes what is sampled.
KEY_IMPLEMENTATION, KEY_WORDS = "threefry2x32", 2

Program = Callable[[dict[str, Any], Any, Any], dict[str, Array]]


def observation_leaves(observation: Observation) -> dict[str, Any]:
    """The leaves by name: those of the agent's view as they are called there (`walls`, `ems/x1`), and `action_mask`."""
    return {name.removeprefix("agent_view/"): leaf for name, leaf in trees.named_leaves(observation).items()}


def lower(network: Network, params: NetworkParams, observation: Observation, *, factored: bool) -> bytes:
    """The program of a network, as `jax.export` stores it, for all of `PLATFORMS`. Nothing is compiled.

    Its actions are those of `Learner.network_policy` from the same key: the most probable ones if `deterministic`.

    Args:
        network, params: what decides.
        observation: one unbatched observation, as arrays or ShapeDtypeStructs.
        factored: whether an action is several independent ones.
    """
    constants = jax.tree.map(np.asarray, params)
    structure, names = jax.tree.structure(observation), list(observation_leaves(observation))

    def act(leaves: dict[str, Array], key_words: Array, deterministic: Array) -> dict[str, Array]:
        seen = jax.tree.unflatten(structure, [leaves[name] for name in names])
        logits, value = network.actor_critic(constants, seen)
        key = jax.random.wrap_key_data(key_words, impl=KEY_IMPLEMENTATION)
        action = jax.lax.cond(
            deterministic,
            lambda: distributions.mode(logits),
            lambda: distributions.sample(key, logits, factored=factored),
        )
        return {"action": action, "logits": logits, "value": value}

    (batch,) = export.symbolic_shape(BATCH)
    with _without_locations():
        exported = export.export(jax.jit(act), platforms=PLATFORMS)(*_arguments(observation, batch))
    return bytes(exported.serialize())


def restore(program: bytes, observation: dict[str, jax.ShapeDtypeStruct]) -> Program:
    """The program, ready to be called and compiled for each batch size at its first call.

    It is lowered for one row here, so that what this jax cannot read fails now and not in the middle of something.

    Args:
        program: of `lower`. It must be trusted: it may run any custom call of jaxlib.
        observation: the leaves of one row, by name.
    """
    call: Any = jax.jit(export.deserialize(bytearray(program)).call)
    rows = {name: jax.ShapeDtypeStruct((1, *leaf.shape), leaf.dtype) for name, leaf in observation.items()}
    call.lower(rows, *_choices())
    return call


def _arguments(observation: Observation, batch: Any) -> tuple[Any, ...]:
    rows = {
        name: jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype)
        for name, leaf in observation_leaves(observation).items()
    }
    return (rows, *_choices())


def _choices() -> tuple[Any, Any]:
    return jax.ShapeDtypeStruct((KEY_WORDS,), jnp.uint32), jax.ShapeDtypeStruct((), jnp.bool_)


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """Inside, programs do not note which lines of which files they are from.

    An export goes to other people, whom the folders of this machine do not concern; and the same policy is the same
    bytes, whoever calls for it.
    """
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)
