"""The grammar of answers over tokens: the automaton over bytes, composed with a vocabulary.

Every token is read through all of its bytes from every state, once, when the vocabulary is loaded. After that a token
costs one look-up. As the bytes alone count, all ways to divide a text into tokens are read alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from stoix_like.language.automaton import ByteAutomaton, Mode, Parser, make_automaton
from stoix_like.language.templates import Order
from stoix_like.types import Array


class Grammar(NamedTuple):
    """Tables over states S and classes C of tokens. Arrays of the host: pass them to a compiled program as arguments.

    Tokens that act alike from every state share a class. A vocabulary of 150,000 tokens has 50 to 150 of them.
    """

    token_class: Any  # [V] int32
    next_state: Any  # [S, C] int32
    events: Any  # [S, C, E] int32: the segments that end within a token, at most E, in order; -1 where none
    start: Any  # [] int32
    done: Any  # [] int32: the answer is closed
    num_actions: Any  # [] int32, which also codes a segment that names no action


class Parse(NamedTuple):
    """What has been read of the answers of N rows. Before an answer is closed, its segments do not count yet."""

    state: Array  # [N] int32
    segments: Array  # [N, K] int32: an action, or num_actions if it is unknown; -1 where none
    num_segments: Array  # [N] int32, at most K


class _Effect(NamedTuple):
    """What some bytes do from every state."""

    state: np.ndarray  # [S] int32, afterwards
    events: np.ndarray  # [S, e] int32, as narrow as they may be


def make_grammar(
    spellings: Sequence[str],
    token_bytes: Sequence[bytes],
    *,
    parser: Parser,
    mode: Mode,
    order: Order = "obs_pred_answer",
) -> Grammar:
    """The grammar for the spellings [A] of the actions and the bytes [V] of the tokens."""
    automaton = make_automaton(spellings, parser=parser, mode=mode, order=order)
    token_class, next_state, events = compose(automaton, token_bytes)
    return Grammar(
        token_class=token_class,
        next_state=next_state,
        events=events,
        start=np.int32(automaton.start),
        done=np.int32(automaton.done),
        num_actions=np.int32(automaton.num_actions),
    )


def compose(automaton: ByteAutomaton, token_bytes: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(classes of the tokens [V], states after a token of each class [S, C], events within it [S, C, E])."""
    effects, token_effect = _effects(automaton, token_bytes)
    used, token_class = np.unique(token_effect, return_inverse=True)  # [C], [V]
    width = max(1, *(effects[effect].events.shape[1] for effect in used))
    events = [_widened(effects[effect].events, width) for effect in used]
    next_state = np.stack([effects[effect].state for effect in used], axis=1)
    return token_class.astype(np.int32), next_state, np.stack(events, axis=1)


def _effects(automaton: ByteAutomaton, token_bytes: Sequence[bytes]) -> tuple[list[_Effect], np.ndarray]:
    """(the different effects of all beginnings of tokens, which of them each token has [V]).

    All tokens are read side by side, a byte at a time. Most beginnings act like one that was seen before, so few
    effects are ever computed.
    """
    lengths = np.array([len(token) for token in token_bytes])  # [V]
    offsets = np.cumsum(lengths) - lengths  # [V]
    text = np.frombuffer(b"".join(token_bytes), np.uint8)
    num_states = len(automaton.next_state)
    nothing = _Effect(np.arange(num_states, dtype=np.int32), np.zeros((num_states, 0), np.int32))
    effects, numbers = [nothing], {_identity(nothing): 0}
    followers: dict[int, int] = {}  # of 256 times an effect, plus the next byte: the effect of both
    token_effect = np.zeros(len(token_bytes), np.int64)  # [V]
    for place in range(lengths.max(initial=0)):
        rows = np.flatnonzero(lengths > place)
        pairs, which = np.unique(token_effect[rows] * 256 + text[offsets[rows] + place], return_inverse=True)
        for pair in pairs.tolist():
            if pair in followers:
                continue
            effect = _followed(automaton, effects[pair // 256], pair % 256)
            followers[pair] = numbers.setdefault(_identity(effect), len(effects))
            if followers[pair] == len(effects):
                effects.append(effect)
        token_effect[rows] = np.array([followers[pair] for pair in pairs.tolist()])[which]
    return effects, token_effect


def _identity(effect: _Effect) -> bytes:
    """Equal for equal effects alone."""
    return effect.state.tobytes() + effect.events.tobytes()


def _followed(automaton: ByteAutomaton, effect: _Effect, byte: int) -> _Effect:
    """The effect of some bytes and of one more."""
    ended = automaton.event[effect.state, byte]  # [S]
    events = effect.events
    if (ended >= 0).any():
        events = _widened(events, events.shape[1] + 1)
        np.put_along_axis(events, (events >= 0).sum(axis=1, keepdims=True), ended[:, None], axis=1)
        events = events[:, (events >= 0).any(axis=0)]
    return _Effect(automaton.next_state[effect.state, byte], events)


def _widened(events: np.ndarray, width: int) -> np.ndarray:
    """[S, width]: events [S, e] with room for more."""
    return np.pad(events, ((0, 0), (0, width - events.shape[1])), constant_values=-1)


def begin(grammar: Grammar, num_rows: int, max_actions: int) -> Parse:
    """The parse of N rows before their first sampled token, with room for K actions."""
    state = jnp.full((num_rows,), grammar.start, jnp.int32)
    segments = jnp.full((num_rows, max_actions), -1, jnp.int32)
    return Parse(state, segments, jnp.zeros((num_rows,), jnp.int32))


def advance(grammar: Grammar, parse: Parse, tokens: Array, is_written: Array) -> Parse:
    """The parse after one more token [N] of each row for which it is written [N]. Segments beyond K are dropped."""
    num_kept, num_events = parse.segments.shape[1], grammar.events.shape[2]
    token_class = grammar.token_class[tokens]  # [N]
    events = grammar.events[parse.state, token_class]  # [N, E]
    events = jnp.where(is_written[:, None], events, -1)
    place = jnp.arange(num_kept)[None] - parse.num_segments[:, None]  # [N, K]: which of the events would stand there
    added = jnp.take_along_axis(events, jnp.clip(place, 0, num_events - 1), axis=1)  # [N, K]
    is_added = (place >= 0) & (place < num_events) & (added >= 0)  # [N, K]
    return Parse(
        state=jnp.where(is_written, grammar.next_state[parse.state, token_class], parse.state),
        segments=jnp.where(is_added, added, parse.segments),
        num_segments=parse.num_segments + jnp.sum(is_added, axis=1, dtype=jnp.int32),
    )


def is_closed(grammar: Grammar, parse: Parse) -> Array:
    """[N] bool: whether the answer is closed and well-formed, so that its segments count."""
    return parse.state == grammar.done
