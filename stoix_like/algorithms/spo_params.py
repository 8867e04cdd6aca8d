"""SPO's parameters around those of a network: where they begin, with another network in them, as they are published.

What the policies read is the network and the duals' temperature. The target network is for learning alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.spo_state import Duals, SPOParams
from stoix_like.config.sections.runs import SPOConfig
from stoix_like.types import NetworkParams, Params


class PublishedParams(NamedTuple):
    """The fields of `NetworkParams`, so that a leaf has the same path whatever learned it, and what a search needs."""

    torso: Params
    actor: Params
    critic: Params
    duals: Duals


def first_duals(config: SPOConfig) -> Duals:
    """The logarithms of the first temperature and alpha, float32 on the host."""
    section = config.spo
    first = section.fixed_temperature if section.temperature_mode == "fixed" else section.init_temperature
    values: list[Any] = [np.float32(np.log(first)), np.float32(np.log(section.init_alpha))]
    return Duals(*values)


def with_network(params: SPOParams, network_params: NetworkParams) -> SPOParams:
    """The parameters with another network, its target beginning as its equal; the duals stay."""
    return params._replace(online=network_params, target=jax.tree.map(jnp.copy, network_params))


def params_template(network_params: NetworkParams, num_seeds: int) -> SPOParams:
    """The shapes of the parameters around a network's, placed as they are; of several seeds everything is stacked."""
    placed = jax.tree.leaves(network_params)[0].sharding
    scalar: Any = jax.ShapeDtypeStruct(() if num_seeds == 1 else (num_seeds,), jnp.float32, sharding=placed)
    return SPOParams(network_params, network_params, Duals(scalar, scalar))


def published(params: SPOParams) -> PublishedParams:
    """What is published of the parameters, or of their shapes."""
    return PublishedParams(**params.online._asdict(), duals=params.duals)


def from_published(params: PublishedParams) -> SPOParams:
    """Parameters that act as those that were published; the target begins as the network's equal."""
    network = NetworkParams(params.torso, params.actor, params.critic)
    return SPOParams(network, jax.tree.map(jnp.copy, network), params.duals)
