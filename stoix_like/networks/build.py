"""From an observation and a configuration to a `Network`: which torso, which heads, and how they share.

The one place where a torso meets a head and where illegal actions are masked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import linen as nn

from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.errors import ConfigError
from stoix_like.games import BoardLayout
from stoix_like.networks.action_planes import ActionPlanesHead, ActionPlanesTorso
from stoix_like.networks.board import BoardTorso, LineTorso
from stoix_like.networks.cells import NUM_DIRECTIONS, CellsTorso, DirectionHead, DirectionValueHead
from stoix_like.networks.grid import GridTorso
from stoix_like.networks.heads import CategoricalHead, OutcomeHead, PairHead, SetValueHead, ValueHead
from stoix_like.networks.packing import PackingTorso, PackingValueTorso
from stoix_like.networks.vector import VectorTorso
from stoix_like.ops.distributions import masked_logits
from stoix_like.types import ActionSpec, Array, Key, Network, NetworkParams, Observation

#: Fields of `agent_view` that each adapter reads.
REQUIRED_FIELDS = {
    "action_planes": (),
    "dense": (),
    "board": (),
    "lines": (),
    "cells": ("cells", "player", "actions_left"),
    "grid": ("walls", "agent_position", "target_position", "step_count"),
    "binpack": ("ems", "ems_mask", "items", "items_mask", "items_placed"),
}


class _OfBoard(NamedTuple):
    fits: Callable[[BoardLayout], bool]
    needs: str


#: Adapters for board games.
_OF_BOARDS = {
    "board": _OfBoard(lambda _: True, "a board game"),
    "lines": _OfBoard(lambda layout: layout.lines is not None, "a game that is won by lines"),
    "action_planes": _OfBoard(lambda layout: layout.action_places is not None, "a game that has places of actions"),
}


class _Chain(nn.Module):
    """A head on a torso. `nn.Sequential` would spread the torso's NamedTuple over the head's arguments."""

    torso: nn.Module
    head: nn.Module

    def __call__(self, observation: Observation) -> Any:
        return self.head(self.torso(observation))


def _apply(module: nn.Module, params: Any, inputs: Any) -> Any:
    return module.apply(params, inputs)


class _Parts(NamedTuple):
    actor_torso: nn.Module  # also the shared one
    critic_torso: nn.Module
    actor_head: nn.Module
    critic_head: nn.Module


def make(
    observation: Observation,
    action_spec: ActionSpec,
    config: ArchitectureConfig,
    *,
    adapter: str,
    time_limit: int | None = None,
    platform: str | None = None,
    layout: BoardLayout | None = None,
    num_players: int | None = None,
) -> Network:
    """The network for an observation.

    Args:
        observation: one unbatched, as arrays or ShapeDtypeStructs.
        action_spec: the form of the action.
        config: widths, depth, sharing, type. `num_layers` counts hidden layers ("dense", "cells" and "lines", default
            2), attention blocks ("binpack", default 1), residual blocks ("board" and "action_planes", default 4) or
            propagation steps ("grid", default twice rows + columns). `num_heads` is read by "binpack" only, default
            one per 32 of width: on CPU fewer are faster.
        adapter: "dense", "binpack", "grid", "cells", "board", "lines" or "action_planes". The actions of "cells" are
            up, down, left and right, in this order.
        time_limit: steps of an episode; "grid" divides the step count by it. Default rows * columns.
        platform: "cpu" or another; default `jax.default_backend()`, read now.
        layout: of the board; "board", "lines" and "action_planes" need it.
        num_players: P of a game whose outcomes are predicted: the critic is then [B, P], see `OutcomeHead`. None: [B].

    Raises:
        ConfigError: an adapter that does not exist or fit, or heads that do not fit the width or the network.
    """
    _check(observation, action_spec, adapter, layout)
    _check_heads(config, adapter)
    if adapter == "grid":
        parts = _grid_parts(observation, action_spec, config, time_limit, platform or jax.default_backend())
    else:
        parts = _parts(action_spec, config, adapter, layout)
    if num_players is not None:
        parts = parts._replace(critic_head=OutcomeHead(num_players))
    return _shared_network(parts) if config.shared_torso else _separate_network(parts)


def _check_heads(config: ArchitectureConfig, adapter: str) -> None:
    if config.num_heads is not None and adapter != "binpack":
        what = f"architecture.num_heads: only the binpack network has attention heads, and this one is {adapter}"
        raise ConfigError(what, "leave num_heads null")


def _parts(action_spec: ActionSpec, config: ArchitectureConfig, adapter: str, layout: BoardLayout | None) -> _Parts:
    if adapter == "binpack":
        return _binpack_parts(config)
    if adapter == "cells":
        torso = CellsTorso((config.hidden_dim,) * (config.num_layers or 2), dtype=_dtype(config))
        return _Parts(torso, torso, DirectionHead(), DirectionValueHead())
    if layout is not None and adapter in _OF_BOARDS:
        return _board_parts(layout, action_spec, config, adapter)
    return _dense_parts(action_spec, config)


def _check(observation: Observation, action_spec: ActionSpec, adapter: str, layout: BoardLayout | None) -> None:
    if adapter not in REQUIRED_FIELDS:
        raise ConfigError(
            f"architecture.observation_adapter: unknown '{adapter}'", f"use one of {', '.join(REQUIRED_FIELDS)}"
        )
    if adapter in _OF_BOARDS and (layout is None or not _OF_BOARDS[adapter].fits(layout)):
        what = "a board game" if layout is None else _OF_BOARDS[adapter].needs
        raise ConfigError(
            f"architecture.observation_adapter: {adapter} needs {what}, and this task is none",
            "leave observation_adapter null for the task's own",
        )
    view = observation.agent_view
    present = tuple(view) if isinstance(view, Mapping) else ()
    missing = [name for name in REQUIRED_FIELDS[adapter] if name not in present]
    hint = "leave observation_adapter null for the task's own, or use dense, which fits every observation"
    if missing:
        raise ConfigError(
            f"architecture.observation_adapter: {adapter} needs {', '.join(missing)} in the observation, which has"
            f" {', '.join(present) or 'no named fields'}",
            hint,
        )
    if adapter == "cells" and action_spec != ActionSpec(NUM_DIRECTIONS):
        raise ConfigError(
            f"architecture.observation_adapter: cells scores {NUM_DIRECTIONS} directions, but the action mask has shape"
            f" {action_spec.mask_shape}",
            hint,
        )
    if adapter == "binpack":
        _check_packing(view, action_spec, hint)


def _check_packing(view: Mapping[str, Any], action_spec: ActionSpec, hint: str) -> None:
    if not jnp.issubdtype(view["ems"].x1.dtype, jnp.floating):
        raise ConfigError(
            "architecture.observation_adapter: binpack needs lengths as shares of the container, and they are integers",
            "leave normalize_dimensions true in environment.kwargs",
        )
    pairs = view["ems_mask"].shape[-1] * view["items_mask"].shape[-1]
    if action_spec != ActionSpec(pairs):
        raise ConfigError(
            f"architecture.observation_adapter: binpack scores {pairs} pairs, but the action mask has shape"
            f" {action_spec.mask_shape}",
            hint,
        )


def _dtype(config: ArchitectureConfig) -> Any:
    return jnp.dtype(config.compute_dtype)


def _dense_parts(action_spec: ActionSpec, config: ArchitectureConfig) -> _Parts:
    torso = VectorTorso((config.hidden_dim,) * (config.num_layers or 2), dtype=_dtype(config))
    return _Parts(torso, torso, CategoricalHead(*action_spec), ValueHead())


def _board_parts(layout: BoardLayout, action_spec: ActionSpec, config: ArchitectureConfig, adapter: str) -> _Parts:
    width, dtype = config.hidden_dim, _dtype(config)
    torso: nn.Module
    if adapter == "lines" and layout.lines is not None:
        torso = LineTorso(layout.lines, (width,) * (config.num_layers or 2), dtype=dtype)
    elif adapter == "action_planes" and layout.action_places is not None:
        torso = ActionPlanesTorso(layout, width, config.num_layers or 4, dtype=dtype)
        return _Parts(torso, torso, ActionPlanesHead(layout.action_places), ValueHead())
    else:
        torso = BoardTorso(layout, width, config.num_layers or 4, dtype=dtype)
    return _Parts(torso, torso, CategoricalHead(*action_spec), ValueHead())


def _grid_parts(
    observation: Observation, action_spec: ActionSpec, config: ArchitectureConfig, time_limit: int | None, platform: str
) -> _Parts:
    rows, columns = observation.agent_view["walls"].shape
    torso = GridTorso(
        width=config.hidden_dim,
        num_steps=config.num_layers or 2 * (rows + columns),
        time_limit=time_limit or rows * columns,
        platform=platform,
        dtype=_dtype(config),
    )
    return _Parts(torso, torso, CategoricalHead(*action_spec), ValueHead())


def _binpack_parts(config: ArchitectureConfig) -> _Parts:
    width = config.hidden_dim
    num_heads = config.num_heads or (width // 32 if width % 32 == 0 else 1)
    if width % num_heads:
        near = next(n for n in range(num_heads, 0, -1) if width % n == 0)
        raise ConfigError(
            f"architecture.num_heads: hidden_dim = {width} is not divisible by {num_heads}",
            f"use {near} heads, or a hidden_dim that is a multiple of {num_heads}",
        )
    depth, dtype = config.num_layers or 1, _dtype(config)
    torso, value_torso = PackingTorso(width, depth, num_heads, dtype), PackingValueTorso(width, dtype)
    return _Parts(torso, value_torso, PairHead(), SetValueHead(width))


def _separate_network(parts: _Parts) -> Network:
    actor_module = _Chain(parts.actor_torso, parts.actor_head)
    critic_module = _Chain(parts.critic_torso, parts.critic_head)

    def init(key: Key, observation: Observation) -> NetworkParams:
        actor_key, critic_key = jax.random.split(key)
        return NetworkParams(
            None, actor_module.init(actor_key, observation), critic_module.init(critic_key, observation)
        )

    def actor(params: NetworkParams, observation: Observation) -> Array:
        return masked_logits(_apply(actor_module, params.actor, observation), observation.action_mask)

    def critic(params: NetworkParams, observation: Observation) -> Array:
        return _apply(critic_module, params.critic, observation)

    def actor_critic(params: NetworkParams, observation: Observation) -> tuple[Array, Array]:
        return actor(params, observation), critic(params, observation)

    return Network(init, actor, critic, actor_critic)


def _shared_network(parts: _Parts) -> Network:
    torso, actor_head, critic_head = parts.actor_torso, parts.actor_head, parts.critic_head

    def init(key: Key, observation: Observation) -> NetworkParams:
        torso_key, actor_key, critic_key = jax.random.split(key, 3)
        features, torso_params = torso.init_with_output(torso_key, observation)
        return NetworkParams(torso_params, actor_head.init(actor_key, features), critic_head.init(critic_key, features))

    def logits(params: NetworkParams, features: Any, observation: Observation) -> Array:
        return masked_logits(_apply(actor_head, params.actor, features), observation.action_mask)

    def actor(params: NetworkParams, observation: Observation) -> Array:
        return logits(params, _apply(torso, params.torso, observation), observation)

    def critic(params: NetworkParams, observation: Observation) -> Array:
        return _apply(critic_head, params.critic, _apply(torso, params.torso, observation))

    def actor_critic(params: NetworkParams, observation: Observation) -> tuple[Array, Array]:
        features = _apply(torso, params.torso, observation)
        return logits(params, features, observation), _apply(critic_head, params.critic, features)

    return Network(init, actor, critic, actor_critic)
