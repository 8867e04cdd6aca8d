"""A language model with a value function: what an agent acts by, and what its gradients go through."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.networks.transformer import decoder
from stoix_like.networks.transformer.attention import KeyValues
from stoix_like.networks.transformer.decoder import NOTHING_BEFORE, Chunk, Context, Layers, Trunk
from stoix_like.networks.transformer.sizes import DecoderSizes
from stoix_like.types import Array, Key, NetworkParams


class ValueHead(NamedTuple):
    """Two layers from a hidden state to a value. The second begins at 0, so that first values are."""

    inner: Array  # [D, D]
    inner_bias: Array  # [D]
    outer: Array  # [D, 1]
    outer_bias: Array  # [1]


class Critic(NamedTuple):
    """The value function."""

    trunk: Trunk | None  # of its own, if it is separate
    head: ValueHead


CriticKind = Literal["separate", "shared", "stopped"]


class LanguageModel(NamedTuple):
    """The sizes of a decoder, and where its values come from.

    `critic` is "separate" (a decoder of its own), "shared" (the policy's hidden states), "stopped" (the same, without a
    gradient into them), or None: no values. Parameters are NetworkParams(trunk, output layer, critic).
    """

    sizes: DecoderSizes
    critic: CriticKind | None = None

    def init(self, key: Key) -> NetworkParams:
        """Fresh parameters."""
        trunk_key, head_key, own_key, value_key = jax.random.split(key, 4)
        critic = None
        if self.critic is not None:
            own = decoder.init_trunk(own_key, self.sizes) if self.critic == "separate" else None
            critic = Critic(own, _init_value_head(value_key, self.sizes.width))
        return NetworkParams(decoder.init_trunk(trunk_key, self.sizes), decoder.init_head(head_key, self.sizes), critic)

    def hidden(
        self, params: NetworkParams, chunk: Chunk, context: Context = NOTHING_BEFORE
    ) -> tuple[Array, KeyValues | None]:
        """(hidden states [B, L, D], the cache with the chunk) of the policy, see `decoder.run`."""
        return decoder.run(self.sizes, params.torso, chunk, context)

    def logits(self, params: NetworkParams, hidden: Array) -> Array:
        """[..., V] float32 of the token that follows each hidden state [..., D]."""
        return decoder.logits(self.sizes, params.torso, params.actor, hidden)

    def prompt(self, params: NetworkParams, prompt: Array) -> KeyValues:
        """What the policy keeps of a prompt [P] that all rows begin with, see `decoder.read_prompt`."""
        return decoder.read_prompt(self.sizes, params.torso, prompt)

    def critic_hidden(self, params: NetworkParams, hidden: Array, chunk: Chunk, prompt: Array) -> Array:
        """[B, L, D], from which values are read: the policy's `hidden`, or what a separate critic makes of the chunk,
        which follows a prompt [P]."""
        if self.critic == "separate":
            context = Context(prefix=decoder.read_prompt(self.sizes, params.critic.trunk, prompt))
            return decoder.run(self.sizes, params.critic.trunk, chunk, context)[0]
        return jax.lax.stop_gradient(hidden) if self.critic == "stopped" else hidden

    def value(self, params: NetworkParams, critic_hidden: Array) -> Array:
        """[...] float32, the value after each token, from [..., D] of `critic_hidden`."""
        return _value(params.critic.head, critic_hidden.astype(jnp.float32))


def with_policy(params: NetworkParams, policy: NetworkParams) -> NetworkParams:
    """The parameters with the trunk and output layer of others. A separate critic begins with the same trunk."""
    critic: Any = params.critic
    if critic is not None and critic.trunk is not None:
        critic = critic._replace(trunk=jax.tree.map(jnp.copy, policy.torso))  # not the same buffers: both are donated
    return NetworkParams(policy.torso, policy.actor, critic)


def kernels(params: NetworkParams) -> NetworkParams:
    """{each array: whether it is a kernel or an embedding}; biases and scales, which are not, have no weight decay."""

    def of(part: Any) -> Any:
        return jax.tree.map(lambda x: x.ndim > 2, part) if isinstance(part, Layers) else part.ndim > 1

    is_kernel: NetworkParams = jax.tree.map(of, params, is_leaf=lambda part: isinstance(part, Layers))  # [layers, ...]
    return is_kernel


def _init_value_head(key: Key, width: int) -> ValueHead:
    inner = jax.random.normal(key, (width, width)) * width**-0.5
    return ValueHead(inner, jnp.zeros(width), jnp.zeros((width, 1)), jnp.zeros(1))


def _value(head: ValueHead, hidden: Array) -> Array:
    flat = hidden.reshape(-1, hidden.shape[-1])
    inner = jax.nn.silu(flat @ head.inner + head.inner_bias[None])
    return (inner @ head.outer + head.outer_bias[None]).reshape(hidden.shape[:-1])
