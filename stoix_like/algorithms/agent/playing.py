"""What a turn does in the world: the actions of an answer, one after the other, while the episode goes on."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.language import grammar as grammars
from stoix_like.language.dialogue import Dialogue
from stoix_like.language.grammar import Grammar, Parse
from stoix_like.ops import trees
from stoix_like.types import Array, Environment, EnvState, Key


class WorldState(NamedTuple):
    """N worlds that are played."""

    env_state: EnvState  # [N, ...]
    timestep: Any  # [N, ...], the last one
    num_actions: Array  # [N] int32 so far

    @property
    def is_over(self) -> Array:
        """[N] bool."""
        return self.timestep.last()


class TurnOutcome(NamedTuple):
    """What a turn did, [N] each."""

    reward: Array  # float32, the sum over its actions
    num_segments: Array  # int32, of a closed answer; each should name an action
    num_named: Array  # int32, of these
    num_actions: Array  # int32, taken: those named before the episode ended
    num_effective: Array  # int32, of these, after which the state is told otherwise than before
    is_well_formed: Array  # bool


def start_worlds(
    env: Environment, level_keys: Key, noise_keys: Key, group_size: int, *, held_out: bool = False
) -> WorldState:
    """The worlds of groups, N = M * group_size: levels of keys [M], each for all members, and noise of keys [N]."""
    reset = env.evaluation_reset if held_out else env.reset
    env_state, timestep = jax.vmap(reset)(level_keys)
    num_rows = level_keys.shape[0] * group_size
    env_state, timestep = trees.take((env_state, timestep), jnp.arange(num_rows) // group_size)
    if env.rekey is not None and not env.deterministic:
        env_state = jax.vmap(env.rekey)(env_state, noise_keys)
    return WorldState(env_state, timestep, jnp.zeros(num_rows, jnp.int32))


class _Played(NamedTuple):
    """A turn that is played, [N, ...] each."""

    world: WorldState
    told: Array  # pieces of the state
    reward: Array
    num_effective: Array


def play_turn(
    dialogue: Dialogue, grammar: Grammar, world: WorldState, parse: Parse, is_active: Array
) -> tuple[WorldState, TurnOutcome]:
    """(the worlds, what the turn did), of the parsed answers of the rows that are active [N].

    An answer that is not closed names no action. Segments that name none are skipped, and make it malformed, as an
    answer without any action is. The others are taken until the episode ends.
    """
    is_read = grammars.is_closed(grammar, parse) & is_active
    is_segment = (parse.segments >= 0) & is_read[:, None]  # [N, K]
    is_action = is_segment & (parse.segments < grammar.num_actions)
    step = jax.vmap(dialogue.world.env.step)

    def act(carry: _Played, column: tuple[Array, Array]) -> tuple[_Played, None]:
        world, (action, is_named) = carry.world, column
        acts = is_named & ~world.is_over
        env_state, timestep = step(world.env_state, jnp.where(is_named, action, 0))
        env_state, timestep = trees.where(acts, (env_state, timestep), (world.env_state, world.timestep))
        told = dialogue.write_told(env_state)
        return _Played(
            world=WorldState(env_state, timestep, world.num_actions + acts),
            told=told,
            reward=carry.reward + jnp.where(acts, timestep.reward, 0.0),
            num_effective=carry.num_effective + jnp.any(told != carry.told, axis=-1),
        ), None

    columns = (parse.segments.T, is_action.T)  # [K, N]
    nothing = jnp.zeros(is_active.shape)
    begin = _Played(world, dialogue.write_told(world.env_state), nothing, nothing.astype(jnp.int32))
    played, _ = jax.lax.scan(act, begin, columns)
    num_segments, num_named = (x.sum(axis=1, dtype=jnp.int32) for x in (is_segment, is_action))
    outcome = TurnOutcome(
        reward=played.reward,
        num_segments=num_segments,
        num_named=num_named,
        num_actions=played.world.num_actions - world.num_actions,
        num_effective=played.num_effective,
        is_well_formed=(num_named > 0) & (num_named == num_segments),
    )
    return played.world, outcome
