"""How many operations a network of dense layers asks for: what a measured rate is held against."""

from __future__ import annotations

from typing import NamedTuple

import jax

from stoix_like.config.sections import PPOConfig, SPOConfig
from stoix_like.runtime.runs import build


def ppo_flops_per_step(config: PPOConfig) -> float:
    """Dense operations of one step of PPO with separate MLPs: acting or valuing once, then learning in every pass."""
    flops = network_flops(config)
    return flops.forward + flops.learning * config.training_core.epochs


class NetworkFlops(NamedTuple):
    """Floating-point operations for one observation; separate networks, dense layers only.

    Learning takes three times the forward pass, but for the first layers: nothing asks for the observation's gradient.
    """

    actor: float  # one forward pass
    critic: float
    learning: float  # forward and backward, of both

    @property
    def forward(self) -> float:
        return self.actor + self.critic


def network_flops(config: PPOConfig | SPOConfig) -> NetworkFlops:
    """The operations of the configuration's network, from the shapes of its kernels; biases are left out."""
    env = build.make_env(config.environment)
    network = build.make_network(env, config)
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    batched = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), timestep.observation)
    params = jax.eval_shape(network.init, jax.random.key(0), batched)
    actor, critic = ([x.shape for x in jax.tree.leaves(p) if len(x.shape) == 2] for p in (params.actor, params.critic))
    made = {columns for _, columns in (*actor, *critic)}
    first = sum(2.0 * rows * columns for rows, columns in (*actor, *critic) if rows not in made)
    of_actor, of_critic = (sum(2.0 * rows * columns for rows, columns in kernels) for kernels in (actor, critic))
    return NetworkFlops(of_actor, of_critic, 3 * (of_actor + of_critic) - first)
