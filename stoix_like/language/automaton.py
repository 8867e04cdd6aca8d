"""The automaton that reads an answer byte by byte, and tells which actions it names.

It finds what these regular expressions find, after the forced beginning `<think>`:

    strict: <think>(.*?)</think>\\s*<answer>(.*?)</answer>
    strict, of mode "worldmodel": the thinking has <observation>.*?</observation>.*?<prediction>.*?</prediction>,
        or those of the two that the order of answers puts before the answer
    lenient: <answer>(.*?)</answer>

The content of the answer is split on `||`. Whitespace around a segment and its case do not count, and empty segments
are dropped. Strict is the parser of RAGEN. It is an automaton, not a regular expression, so that it can be composed
with a vocabulary and looked up in a compiled program (`grammar`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.language.templates import Order

Parser = Literal["strict", "lenient"]
Mode = Literal["base", "worldmodel"]

_WHITESPACE = b" \t\n\r\x0b\f"  # of `bytes.strip` and of \s
_UNKNOWN = b"|"  # a segment that names no action, whatever follows: no spelling has a bar
_CLOSING = b"</answer>"
#: What is searched for, one after the other. A blank stands for any amount of whitespace, none included.
_ANSWER = (b"</think> <answer>", _CLOSING)
_LENIENT = (b"<answer>", _CLOSING)
_SPANS = {"obs": (b"<observation>", b"</observation>"), "pred": (b"<prediction>", b"</prediction>")}


class ByteAutomaton(NamedTuple):
    """A deterministic automaton over bytes. A actions."""

    next_state: np.ndarray  # [num_states, 256] int32
    event: np.ndarray  # [num_states, 256] int32: the segment that ends with a byte, A if it is unknown; -1 if none ends
    start: int  # before the first byte that is sampled
    done: int  # once the answer is closed; it is never left
    num_actions: int


class _Words(NamedTuple):
    """What the automaton knows."""

    literals: tuple[bytes, ...]  # the last one closes the answer
    spellings: dict[bytes, int]  # in lower case, and the action of each
    beginnings: frozenset[bytes]  # of the spellings, from the empty one to all but the last byte


class _State(NamedTuple):
    """What the automaton remembers."""

    num_found: int = 0  # literals that lie behind
    matched: int = 0  # bytes of the next literal that have just been read
    segment: bytes = b""  # of the answer: in lower case, without leading whitespace; see `_shortened`
    has_bar: bool = False  # the last byte was a bar, the first half of a separator or a part of the segment


def _literals(parser: Parser, mode: Mode, order: Order) -> tuple[bytes, ...]:
    """What is searched for. What follows the answer is not read."""
    if parser == "lenient":
        return _LENIENT
    if mode == "base":
        return _ANSWER
    before = order.split("_")[: order.split("_").index("answer")]
    return (*(tag for name in before for tag in _SPANS[name]), *_ANSWER)


def make_automaton(
    spellings: Sequence[str], *, parser: Parser, mode: Mode, order: Order = "obs_pred_answer"
) -> ByteAutomaton:
    """The automaton for the spellings [A] of the actions. Raises ConfigError if an answer could not hold one."""
    _check_spellings(spellings)
    lowered = [spelling.lower().encode() for spelling in spellings]
    beginnings = frozenset(spelling[:end] for spelling in lowered for end in range(len(spelling)))
    words = _Words(_literals(parser, mode, order), {spelling: a for a, spelling in enumerate(lowered)}, beginnings)
    start, done = _State(), _State(num_found=len(words.literals))
    states, rows, events = [start, done], [], []
    numbers = {start: 0, done: 1}  # of the states
    for state in states:  # the list grows by every state that is seen for the first time
        following = [_following(words, state, bytes([byte])) for byte in range(256)]
        for after, _ in following:
            if after not in numbers:
                numbers[after] = len(states)
                states.append(after)
        rows.append([numbers[after] for after, _ in following])
        events.append([event for _, event in following])
    next_state, event = np.array(rows, np.int32), np.array(events, np.int32)  # [num_states, 256] each
    return ByteAutomaton(next_state, event, numbers[start], numbers[done], len(spellings))


def _check_spellings(spellings: Sequence[str]) -> None:
    """Raises ConfigError if spellings cannot be told apart, or from what surrounds them."""
    problems = [] if spellings else ["the grammar has no action"]
    for a, spelling in enumerate(spellings):
        if not spelling:
            problems.append(f"the spelling of action {a} is empty")
        elif not (spelling.isascii() and spelling.isprintable()):
            problems.append(f"the spelling {spelling!r} is not printable ASCII")
        elif spelling != spelling.strip():
            problems.append(f"the spelling {spelling!r} starts or ends with a blank")
        elif "|" in spelling or "<" in spelling:
            problems.append(f"the spelling {spelling!r} has a character of the separator or of a tag")
        elif spelling.lower() in [other.lower() for other in spellings[:a]]:
            problems.append(f"the spelling {spelling!r} is that of an earlier action too, as case does not count")
    if problems:
        raise ConfigError(problems, "spell every action by a word of its own, without < and |, such as Up")


def _following(words: _Words, state: _State, byte: bytes) -> tuple[_State, int]:
    """(the state after a byte, the segment that ends with it or -1)."""
    if state.num_found == len(words.literals):
        return state, -1
    literal = words.literals[state.num_found]
    matched = _matched(literal, state.matched, byte)
    found = matched == len(literal)
    if state.num_found < len(words.literals) - 1:  # before the answer
        return (_State(state.num_found + 1) if found else _State(state.num_found, matched)), -1
    if found:
        return _State(state.num_found + 1), _action(words, state.segment)
    return _in_answer(words, state, byte, matched)


@functools.cache
def _matched(literal: bytes, matched: int, byte: bytes) -> int:
    """How many bytes of a literal have just been read, if it was `matched` before this byte."""
    if literal[matched : matched + 1] == b" ":
        if byte in _WHITESPACE:
            return matched
        matched += 1  # the whitespace is over
    read = literal[:matched] + byte
    return max(count for count in range(len(read) + 1) if read.endswith(literal[:count]))


def _in_answer(words: _Words, state: _State, byte: bytes, matched: int) -> tuple[_State, int]:
    """As `_following`, inside the answer, if this byte does not close it."""
    if matched > 1:  # the tag goes on
        return state._replace(matched=matched), -1
    if state.has_bar and byte == b"|":
        return _State(state.num_found), _action(words, state.segment)
    broke_off = state.has_bar or state.matched > 0  # half a separator or a part of the tag belongs to the segment
    segment = _UNKNOWN if broke_off else state.segment
    if byte in b"<|":
        return _State(state.num_found, matched, _completed(words, segment), byte == b"|"), -1
    return _State(state.num_found, 0, _shortened(words, segment + byte.lower())), -1


def _completed(words: _Words, segment: bytes) -> bytes:
    """The segment as it counts if it ends here: a spelling, or nothing, or unknown."""
    stripped = segment.strip()
    return stripped if stripped in words.spellings or not stripped else _UNKNOWN


def _shortened(words: _Words, segment: bytes) -> bytes:
    """The one segment that stands for all that go on alike, so that the states are few."""
    stripped = segment.lstrip()
    if stripped in words.beginnings:
        return stripped
    completed = _completed(words, segment)
    return completed if completed == _UNKNOWN else completed + b"\n"  # only whitespace may follow a spelling here


def _action(words: _Words, segment: bytes) -> int:
    """The action that a segment names, A if it is unknown, -1 if it is empty."""
    completed = _completed(words, segment)
    return words.spellings.get(completed, len(words.spellings)) if completed else -1
