"""Episodes of an agent that writes its moves: render the state, sample an answer, parse it, step the world, next turn.

All of it is one compiled program without a host in it. What is recorded is what is learned from: no text is tokenised
again, and no sampled token is changed.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stoix_like.algorithms.agent import playing
from stoix_like.algorithms.agent.episodes import Episodes, Turns, empty_episodes
from stoix_like.algorithms.agent.playing import WorldState
from stoix_like.algorithms.agent.rows import batch_sizes, choose, num_going_on, take_rows
from stoix_like.algorithms.agent.slots import Slots
from stoix_like.algorithms.agent.speaking import Answer, Speaker, UserTurn
from stoix_like.language import grammar as grammars
from stoix_like.language import rendering
from stoix_like.language.dialogue import Dialogue, Lexicon
from stoix_like.language.grammar import Parse
from stoix_like.language.templates import TurnFacts
from stoix_like.types import Array, Key


class AgentRules(NamedTuple):
    """What an agent may do in an episode, and in how many slots it is written."""

    slots: Slots
    actions_per_turn: int  # K; the first K of an answer count
    max_actions: int  # in all
    format_penalty: float  # added to the reward of a turn with a malformed answer
    group_size: int  # episodes on one level
    shares_noise: bool  # so do they have the same chances in the world
    num_shards: int = 1  # of groups, as many as devices: a row stays in its own


class _Loop(NamedTuple):
    """The episodes that are played, B rows of the N."""

    turn: Array  # [] int32
    rows: Array  # [B] int32, which of the N
    keys: Key  # [B] of the answers
    world: WorldState
    reward: Array  # [B] float32 of the turn before
    was_cut: Array  # [B] bool: the answer before
    memory: Any  # of the speaker
    episodes: Episodes  # [T, N, ...], turns first


def rollout(
    dialogue: Dialogue,
    lexicon: Lexicon,
    rules: AgentRules,
    speaker: Speaker,
    level_keys: Key,
    keys: Key,
    *,
    held_out: bool = False,
) -> tuple[Episodes, WorldState]:
    """(N episodes, the worlds at their ends) of M groups, N = M * group_size, members of a group side by side.

    Args:
        dialogue: about the world.
        lexicon: its tables.
        rules: of the episodes.
        speaker: who answers.
        level_keys: [M] of the levels.
        keys: [M] of all else: member j of a group samples with fold_in(key, j) at each turn and position.
        held_out: play levels of evaluation.
    """
    members, noise = _member_keys(keys, rules)
    world = playing.start_worlds(dialogue.world.env, level_keys, noise, rules.group_size, held_out=held_out)
    num_rows, num_shards = members.shape[0], math.gcd(rules.num_shards, level_keys.shape[0])
    nothing, no, episodes = jnp.zeros(num_rows), jnp.zeros(num_rows, bool), empty_episodes(rules.slots, num_rows)
    rows = jnp.arange(num_rows)
    loop = _Loop(jnp.int32(0), rows, members, world, nothing, no, speaker.begin(num_rows), episodes)
    play_turn = functools.partial(_play_turn, dialogue, lexicon, rules, speaker)
    sizes = batch_sizes(num_rows // num_shards)
    for size, room in zip(sizes, (*sizes[1:], 0), strict=True):
        if size * num_shards < num_rows:
            loop = _smaller(speaker, loop, choose(loop.world.is_over, num_shards, size))
        loop = jax.lax.while_loop(functools.partial(_goes_on, rules.slots.turns, num_shards, room), play_turn, loop)
        world = _with_played(world, loop)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), loop.episodes), world


def _goes_on(num_turns: int, num_shards: int, room: int, loop: _Loop) -> Array:
    """[] bool: there is a turn to play, of more episodes in some shard than the next loop has room for."""
    return (loop.turn < num_turns) & (num_going_on(loop.world.is_over, num_shards) > room)


def _with_played(world: WorldState, loop: _Loop) -> WorldState:
    """The worlds of all N episodes, with those that the loop has played."""
    return jax.tree.map(lambda kept, new: kept.at[loop.rows].set(new), world, loop.world)


def _smaller(speaker: Speaker, loop: _Loop, kept: Array) -> _Loop:
    """The loop of some of its rows."""
    of_rows = (loop.rows, loop.keys, loop.world, loop.reward, loop.was_cut)
    rows, keys, world, reward, was_cut = take_rows(of_rows, kept)
    return _Loop(loop.turn, rows, keys, world, reward, was_cut, speaker.take_rows(loop.memory, kept), loop.episodes)


def _play_turn(dialogue: Dialogue, lexicon: Lexicon, rules: AgentRules, speaker: Speaker, loop: _Loop) -> _Loop:
    """One turn of all rows, of which those whose episode is over do nothing."""
    is_active = ~loop.world.is_over
    facts = TurnFacts(loop.turn, loop.reward, loop.was_cut, rules.max_actions - loop.world.num_actions)
    pieces = dialogue.write_turn(loop.world.env_state, facts)
    tokens, is_valid = rendering.pack(lexicon.table, pieces, rules.slots.state, at_end=True)
    is_valid &= is_active[:, None]
    user_turn = UserTurn(loop.turn, tokens, is_valid, is_active, loop.world.env_state)
    turn_keys = jax.vmap(jax.random.fold_in, in_axes=(0, None))(loop.keys, loop.turn)
    answer, memory = speaker.answer(loop.memory, user_turn, turn_keys)
    parse = _parsed(lexicon, rules, answer)
    world, outcome = playing.play_turn(dialogue, lexicon.grammar, loop.world, parse, is_active)
    turns = Turns(
        was_played=is_active,
        reward=outcome.reward,
        penalty=jnp.where(is_active & ~outcome.is_well_formed, rules.format_penalty, 0.0),
        is_well_formed=outcome.is_well_formed,
        was_cut=answer.was_cut & is_active,
        num_segments=outcome.num_segments,
        num_named=outcome.num_named,
        num_actions=outcome.num_actions,
        num_effective=outcome.num_effective,
    )
    episodes = _with_turn(loop, user_turn, answer, turns)
    return _Loop(loop.turn + 1, loop.rows, loop.keys, world, outcome.reward, answer.was_cut, memory, episodes)


def _member_keys(keys: Key, rules: AgentRules) -> tuple[Key, Key]:
    """([N] for the answers, [N] for the world) from the keys [M] of groups."""
    members = jnp.arange(rules.group_size)
    of_world = jnp.zeros_like(members) if rules.shares_noise else members

    def both(key: Key) -> tuple[Key, Key]:
        answers, world = jax.random.split(key)
        return _folded(answers, members), _folded(world, of_world)

    return jax.tree.map(lambda x: x.reshape(-1), jax.vmap(both)(keys))


def _folded(key: Key, numbers: Array) -> Key:
    return jax.vmap(lambda number: jax.random.fold_in(key, number))(numbers)


def _parsed(lexicon: Lexicon, rules: AgentRules, answer: Answer) -> Parse:
    """What the answers say."""
    num_rows = answer.tokens.shape[0]
    parse = grammars.begin(lexicon.grammar, num_rows, rules.actions_per_turn)
    is_text = answer.is_valid & ~jnp.any(answer.tokens[..., None] == jnp.asarray(lexicon.ends)[None, None], axis=-1)

    def read(parse: Parse, column: tuple[Array, Array]) -> tuple[Parse, None]:
        return grammars.advance(lexicon.grammar, parse, *column), None

    return jax.lax.scan(read, parse, (answer.tokens.T, is_text.T))[0]


def _with_turn(loop: _Loop, user_turn: UserTurn, answer: Answer, turns: Turns) -> Episodes:
    """The episodes [T, N, ...] with one more turn of the rows that are played."""
    tokens = jnp.concatenate([user_turn.tokens, answer.tokens], axis=1)
    is_valid = jnp.concatenate([user_turn.is_valid, answer.is_valid], axis=1)
    new = Episodes(tokens, is_valid, answer.log_prob, answer.value, turns)
    return jax.tree.map(lambda kept, new: kept.at[loop.turn, loop.rows].set(new), loop.episodes, new)
