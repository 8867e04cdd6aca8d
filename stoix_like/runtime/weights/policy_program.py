"""Serializes a policy without search as a program that needs only jax. The only user of jax.export.

A caller of the program has none of our classes, so it takes and returns dictionaries of plain arrays:

    ({name: array [B, ...]}, key words [2] uint32, deterministic [] bool) -> {"action", "logits", "value"}

The parameters are constants in the program; the batch size B is symbolic. Logits and value cost little compared with
the action. A deployed policy uses them to show how certain it is, to select actions by another rule, or to search.
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
BATCH = "batch"  # the name of the symbolic axis
#: The keys that the program takes: jax's default, fixed here so that no setting of a caller changes the samples.
KEY_IMPLEMENTATION, KEY_WORDS = "threefry2x32", 2

Program = Callable[[dict[str, Any], Any, Any], dict[str, Array]]


def observation_leaves(observation: Observation) -> dict[str, Any]:
    """{name: leaf} of the agent's view, without a prefix (`walls`, `ems/x1`), and of `action_mask`."""
    return {name.removeprefix("agent_view/"): leaf for name, leaf in trees.named_leaves(observation).items()}


def serialize(network: Network, params: NetworkParams, observation: Observation, *, factored: bool) -> bytes:
    """The program of a network for all of `PLATFORMS`, serialized by `jax.export`. Nothing is compiled.

    With the same key it returns the actions of `Learner.network_policy`: the most probable ones if `deterministic`. The
    observation is unbatched, of arrays or ShapeDtypeStructs. Actions of several independent factors are `factored`.
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
        exported = export.export(jax.jit(act), platforms=PLATFORMS)(*_arguments(observation_leaves(observation), batch))
    return bytes(exported.serialize())


def deserialize(program: bytes, observation: dict[str, jax.ShapeDtypeStruct]) -> Program:
    """The program as a function. It compiles at the first call with each batch size.

    It is lowered here for a batch of one, so that a program which this jax cannot read fails now, not at its first use.
    It must be trusted: it may run any custom call of jaxlib. The observation is unbatched, {name: leaf}.
    """
    call: Any = jax.jit(export.deserialize(bytearray(program)).call)
    call.lower(*_arguments(observation, 1))
    return call


def _arguments(observation: dict[str, Any], batch: Any) -> tuple[Any, ...]:
    """The shapes of the arguments of a program, for `batch` observations."""
    rows = {name: jax.ShapeDtypeStruct((batch, *leaf.shape), leaf.dtype) for name, leaf in observation.items()}
    return rows, jax.ShapeDtypeStruct((KEY_WORDS,), jnp.uint32), jax.ShapeDtypeStruct((), jnp.bool_)


@contextlib.contextmanager
def _without_locations() -> Iterator[None]:
    """Inside this context, programs contain no source locations.

    An export should not publish the folders of this machine, and one policy should always have the same bytes.
    """
    name = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, name)
    jax.config.update(name, 0)
    try:
        yield
    finally:
        jax.config.update(name, before)
