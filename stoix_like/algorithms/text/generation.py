"""Rows for fine-tuning from played episodes: the states that an answer tells are replaced by those that were.

On the host. Source: SPA (arXiv 2510.15047), section 2.1, and generate_sft_data.py of its release. There the rows of one
trajectory fall into both splits and are read again with every later turn; here a trajectory is in one split, and with a
context of all turns its turns are one row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.slots import Slots
from stoix_like.algorithms.text.world_rows import WrittenTurns
from stoix_like.language import templates
from stoix_like.language.dialogue import Dialogue, Lexicon
from stoix_like.language.replacement import replace_states

States = Literal["replace", "self_belief", "random_state"]


class GenerationRules(NamedTuple):
    """How rows are made.

    Attributes:
        states: what stands between the tags: "replace", the states that were; "self_belief", what was sampled;
            "random_state", states of other turns.
        keeps_untagged: rows stay in which an answer lacks an observation or a prediction.
    """

    states: States = "replace"
    keeps_untagged: bool = True


class Counts(NamedTuple):
    """What became of the turns, or of the conversations, that were played."""

    played: int
    too_long: int  # with their states they no longer fit into their slots
    indivisible: int  # a token holds a part of a tag and of a state
    untagged: int  # without an observation or a prediction; left out unless they are kept
    twice: int  # of equal ones the first is kept


class PlayedTurns(NamedTuple):
    """N episodes on the host, with the tokens of their states.

    Attributes:
        episodes: as `rollout` returns them, arrays of NumPy.
        states: [N][T + 1] tokens with which answers tell the state before each turn that was played, and the last one.
    """

    episodes: Episodes
    states: Sequence[Sequence[list[int]]]


def states_of_turns(dialogue: Dialogue, lexicon: Lexicon, episodes: Episodes, last: Sequence[list[int]]) -> PlayedTurns:
    """The episodes with their states, as answers tell them: those of their turns, and after the last one `last` [N]."""
    num_world, states = episodes.tokens.shape[-1] - episodes.log_prob.shape[-1], []
    begin, end = (_piece(dialogue, lexicon, text) for text in (templates.BEFORE_STATE, templates.AFTER_STATE))
    shown = dialogue.pieces.texts[: len(dialogue.pieces.texts) - len(dialogue.told.texts)]
    untold = [_piece(dialogue, lexicon, text) for text in shown]
    for row, played in enumerate(episodes.turns.was_played):
        told = []
        for turn in np.flatnonzero(played):
            is_valid = episodes.is_valid[row, turn, :num_world]
            state = _between(episodes.tokens[row, turn, :num_world][is_valid].tolist(), begin, end)
            told.append(after_pieces(state, untold))
        states.append([*told, last[row]])
    return PlayedTurns(episodes, states)


def _piece(dialogue: Dialogue, lexicon: Lexicon, text: str) -> list[int]:
    """The tokens of a piece."""
    index = dialogue.texts.index(text)
    return [int(token) for token in lexicon.table.tokens[index, : lexicon.table.lengths[index]]]


def _between(tokens: list[int], begin: list[int], end: list[int]) -> list[int]:
    """What stands between the first `begin` and the last `end`."""
    starts = [n for n in range(len(tokens)) if tokens[n : n + len(begin)] == begin]
    ends = [n for n in range(len(tokens)) if tokens[n : n + len(end)] == end]
    return tokens[starts[0] + len(begin) : ends[-1]]


def after_pieces(tokens: list[int], pieces: Sequence[list[int]]) -> list[int]:
    """What follows the pieces that stand first, of which the longest counts where several could stand."""
    by_length, place = sorted(pieces, key=len, reverse=True), 0
    while piece := next((piece for piece in by_length if tokens[place : place + len(piece)] == piece), []):
        place += len(piece)
    return tokens[place:]


def make_rows(
    slots: Slots, token_bytes: Sequence[bytes], played: PlayedTurns, rules: GenerationRules, rng: np.random.Generator
) -> tuple[WrittenTurns, np.ndarray, Counts]:
    """(rows, the number of each one's trajectory [R], what became of all) of episodes.

    A row is a turn, or with a context of all turns an episode.
    """
    episodes = played.episodes
    every_state = [state for states in played.states for state in states]
    firsts = np.cumsum([0, *map(len, played.states)])  # the place of each episode's first state
    kept: dict[bytes, tuple[np.ndarray, np.ndarray, int]] = {}
    counts = dict.fromkeys(Counts._fields, 0)
    for row, states in enumerate(played.states):
        turns = np.flatnonzero(episodes.turns.was_played[row])
        groups = [turns] if slots.is_conversation else [turns[n : n + 1] for n in range(len(turns))]
        for group in groups:
            counts["played"] += 1
            tokens, is_valid = np.array(episodes.tokens[row]), np.array(episodes.is_valid[row])  # copies
            problems = set()
            for turn in group:
                pair = [states[turn], states[turn + 1]]
                if rules.states == "random_state":
                    others = np.delete(np.arange(len(every_state)), firsts[row] + turn + np.arange(2))
                    pair = [every_state[n] for n in rng.choice(others if len(others) else [0], size=2)]
                problems.add(_replace(slots, token_bytes, tokens[turn], is_valid[turn], pair, rules))
            problem = next((name for name in ("too_long", "indivisible", "untagged") if name in problems), None)
            if problem is not None:
                counts[problem] += 1
                if problem != "untagged" or not rules.keeps_untagged:
                    continue
            chosen = slice(None) if slots.is_conversation else group
            arrays = tokens[chosen], is_valid[chosen]
            name = arrays[0][arrays[1]].tobytes()
            counts["twice"] += name in kept
            kept.setdefault(name, (*arrays, row))
    of_rows = list(kept.values())
    empty = np.zeros((0, slots.turns if slots.is_conversation else 1, slots.per_turn), np.int32)
    stacked = [np.stack([x[n] for x in of_rows]) if of_rows else empty for n in (0, 1)]
    return WrittenTurns(*stacked), np.array([x[2] for x in of_rows], np.int32), Counts(**counts)


def _replace(
    slots: Slots,
    token_bytes: Sequence[bytes],
    tokens: np.ndarray,
    is_valid: np.ndarray,
    states: list[list[int]],
    rules: GenerationRules,
) -> str:
    """Writes the states into the answer of a turn [S + G]; returns the field of `Counts` that it belongs to, or "".

    With `self_belief` nothing is written.
    """
    answer = tokens[slots.state :][is_valid[slots.state :]].tolist()
    found = replace_states(token_bytes, answer, *states)
    if not found.is_divisible:
        return "indivisible"
    written = answer if rules.states == "self_belief" else found.tokens
    if len(written) > slots.answer:
        return "too_long"
    tokens[slots.state :], is_valid[slots.state :] = 0, False
    end = slots.state + len(written)
    tokens[slots.state : end], is_valid[slots.state : end] = written, True
    return "" if all(found.num_replaced) else "untagged"


def split(trajectory: np.ndarray, validation_share: float, rng: np.random.Generator) -> np.ndarray:
    """[R] bool, the rows of validation: all rows of a trajectory [R] are, or none."""
    numbers = rng.permutation(np.unique(trajectory))
    is_held_out: np.ndarray = np.isin(trajectory, numbers[: round(validation_share * len(numbers))])
    return is_held_out
