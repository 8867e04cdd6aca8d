"""The number of operations in a network's matrix products, to compute the ceiling of a measured rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend import core

from stoix_like.config.checks.combinations import steps_per_update
from stoix_like.config.sections.runs import PPOConfig, SPOConfig
from stoix_like.runtime.runs import build


def flops_per_step(config: PPOConfig | SPOConfig) -> float:
    """Operations in the matrix products of an update, per environment step: playing, searching and learning.

    They are counted in the update itself. A search takes the policy after every model step but the last, which is a
    branch; it is counted there too, and taken off.
    """
    learner = build.build("spo" if isinstance(config, SPOConfig) else "ppo", config).learner
    state = jax.eval_shape(learner.init, jax.random.key(0))
    counted = product_flops(learner.update, state) / steps_per_update(config)
    if not isinstance(config, SPOConfig):
        return counted
    flops = network_flops(config)
    return counted - config.spo.num_particles * (flops.forward - flops.critic)


class NetworkFlops(NamedTuple):
    """Floating-point operations in matrix products for one observation."""

    actor: float  # one forward pass
    critic: float
    forward: float  # of both; a shared torso counts once
    learning: float  # forward and backward, of both


def network_flops(config: PPOConfig | SPOConfig) -> NetworkFlops:
    """The operations of the configuration's network."""
    env = build.make_env(config.environment)
    network = build.make_network(env, config)
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    batched = jax.tree.map(lambda x: jax.ShapeDtypeStruct((1, *x.shape), x.dtype), timestep.observation)
    params = jax.eval_shape(network.init, jax.random.key(0), batched)

    def learning(params: Any, observation: Any) -> Any:
        return jax.value_and_grad(lambda params: sum(x.sum() for x in network.actor_critic(params, observation)))(
            params
        )

    functions = (network.actor, network.critic, network.actor_critic, learning)
    return NetworkFlops(*(product_flops(function, params, batched) for function in functions))


def product_flops(function: Callable[..., Any], *shapes: Any) -> float:
    """Multiplications and additions of all matrix products of a function of arrays of these shapes. No convolutions.

    A loop counts as often as it goes around, or once if that is not known before; of branches the longest counts.
    """
    return _counted(jax.make_jaxpr(function)(*shapes).jaxpr)


def _counted(jaxpr: core.Jaxpr) -> float:
    return sum(map(_of_equation, jaxpr.eqns), start=0.0)


def _of_equation(equation: core.JaxprEqn) -> float:
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        first, product = (variable.aval for variable in (equation.invars[0], equation.outvars[0]))
        summed = math.prod(_shape(first)[axis] for axis in contracted)
        return 2.0 * summed * math.prod(_shape(product))
    inner = [_counted(jaxpr) for jaxpr in _jaxprs_in(equation)]
    if equation.primitive.name == "cond":
        return max(inner)
    return equation.params.get("length", 1) * sum(inner) if equation.primitive.name == "scan" else sum(inner)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.shape)


def _jaxprs_in(equation: core.JaxprEqn) -> list[core.Jaxpr]:
    values = jax.tree.leaves(list(equation.params.values()), is_leaf=_is_jaxpr)
    return [value.jaxpr if isinstance(value, core.ClosedJaxpr) else value for value in values if _is_jaxpr(value)]


def _is_jaxpr(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)
