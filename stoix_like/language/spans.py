"""The parts of an answer: which tokens are the observation, the prediction, the answer, thoughts, or tags.

As the grammar, this is an automaton over bytes that is composed with a vocabulary, so tags may be divided into tokens
in any way. A token with a byte of a tag is of the kind TAG, whatever else it holds.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.language.automaton import ByteAutomaton
from stoix_like.language.grammar import compose
from stoix_like.language.templates import (
    ANSWER,
    ANSWERED,
    OBSERVATION,
    OBSERVED,
    PREDICTED,
    PREDICTION,
    THINK,
    THOUGHT,
)
from stoix_like.language.tokenizers import TURN_END
from stoix_like.types import Array

SPANS = ("thoughts", "observation", "prediction", "answer", "tags")
THOUGHTS, IN_OBSERVATION, IN_PREDICTION, IN_ANSWER, TAG = range(len(SPANS))
LossMask = Literal["assistant", "state_only", "non_state", "answer_only"]
#: The spans that count for each mask. `assistant` is equation 1 of SPA (arXiv 2510.15047), `non_state` its ablation.
COUNTED: dict[LossMask, tuple[int, ...]] = {
    "assistant": (THOUGHTS, IN_OBSERVATION, IN_PREDICTION, IN_ANSWER, TAG),
    "state_only": (IN_OBSERVATION, IN_PREDICTION),
    "non_state": (THOUGHTS, IN_ANSWER, TAG),
    "answer_only": (IN_ANSWER,),
}
#: {the span that is read: {a tag that may follow: the span after it}}
_TAGS = {
    THOUGHTS: {
        OBSERVATION: IN_OBSERVATION,
        PREDICTION: IN_PREDICTION,
        ANSWER: IN_ANSWER,
        THINK: THOUGHTS,
        THOUGHT: THOUGHTS,
        TURN_END: THOUGHTS,
    },
    IN_OBSERVATION: {OBSERVED: THOUGHTS, TURN_END: THOUGHTS},
    IN_PREDICTION: {PREDICTED: THOUGHTS, TURN_END: THOUGHTS},
    IN_ANSWER: {ANSWERED: THOUGHTS, TURN_END: THOUGHTS},
}


class SpanTable(NamedTuple):
    """Tables over states S and classes C of tokens. Arrays of the host, which compiled programs take as arguments."""

    token_class: Any  # [V] int32
    next_state: Any  # [S, C] int32
    has_tag: Any  # [S, C] bool, of a token that is read in a state
    span: Any  # [S] int32


def make_spans(token_bytes: Sequence[bytes]) -> SpanTable:
    """The table of a vocabulary [V]."""
    states = _states()
    token_class, next_state, events = compose(_automaton(), token_bytes)
    in_tag = np.array([bool(state.read) for state in states])
    has_tag = (events >= 0).any(axis=2) | in_tag[:, None] | in_tag[next_state]
    return SpanTable(token_class, next_state, has_tag, np.array([state.span for state in states], np.int32))


def spans_of(table: SpanTable, tokens: Array, is_written: Array) -> Array:
    """[N, G] int32, the spans of the tokens of answers [N, G], which follow a forced `<think>`; -1 if not written."""

    def step(state: Array, column: tuple[Array, Array]) -> tuple[Array, Array]:
        token, written = column
        token_class = table.token_class[token]
        span = jnp.where(table.has_tag[state, token_class], TAG, table.span[state])
        after = table.next_state[state, token_class]
        return jnp.where(written, after, state), jnp.where(written, span, -1)

    table = jax.tree.map(jnp.asarray, table)
    start = jnp.zeros(tokens.shape[:1], jnp.int32)
    return jax.lax.scan(step, start, (tokens.T, is_written.T))[1].T


def is_counted(spans: Array, mask: LossMask) -> Array:
    """[...] bool: the tokens of spans [...] that have loss."""
    return functools.reduce(jnp.logical_or, [spans == span for span in COUNTED[mask]])


class _State(NamedTuple):
    """What the automaton remembers."""

    span: int = THOUGHTS
    read: bytes = b""  # how a tag begins that may follow


@functools.cache
def _states() -> tuple[_State, ...]:
    """All states, the first one first."""
    states = [_State()]
    for state in states:  # the list grows by every state that is seen for the first time
        found = {_following(state, bytes([byte]))[0]: None for byte in range(256)}
        states += [after for after in found if after not in states]
    return tuple(states)


@functools.cache
def _automaton() -> ByteAutomaton:
    """The automaton of `_states`. An event is the end of a tag."""
    states = _states()
    following = [[_following(state, bytes([byte])) for byte in range(256)] for state in states]
    next_state = [[states.index(after) for after, _ in row] for row in following]
    event = [[0 if is_end else -1 for _, is_end in row] for row in following]
    return ByteAutomaton(np.array(next_state, np.int32), np.array(event, np.int32), start=0, done=-1, num_actions=1)


def _following(state: _State, byte: bytes) -> tuple[_State, bool]:
    """(the state after a byte, whether a tag ends with it)."""
    tags, text = _TAGS[state.span], state.read + byte
    if text.decode("latin-1") in tags:
        return _State(tags[text.decode("latin-1")]), True
    parts = [text[start:] for start in range(len(text) + 1)]
    read = next(part for part in parts if any(tag.encode().startswith(part) for tag in tags))
    return _State(state.span, read), False
