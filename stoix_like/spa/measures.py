"""What episodes say of an agent and of its world model. NumPy on the host.

An answer's observation and prediction are compared with the states that were, token by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stoix_like.algorithms.text.generation import PlayedTurns
from stoix_like.language.spans import IN_OBSERVATION, IN_PREDICTION


class TurnMeasures(NamedTuple):
    """Of N episodes of T turns, [N, T] each; NaN where a turn was not played, or has nothing to be measured."""

    well_formed: np.ndarray
    effective: np.ndarray  # the state after the turn is another one
    num_segments: np.ndarray
    num_named: np.ndarray
    num_actions: np.ndarray
    num_effective: np.ndarray
    answer_length: np.ndarray  # tokens
    observation_exact: np.ndarray  # of answers with an observation
    next_state_exact: np.ndarray  # of answers with a prediction: it is the state that came
    observation_cells: np.ndarray  # share of the true state's cells that stand at their places
    prediction_cells: np.ndarray


#: Measures of what answers tell of states.
OF_STATES = ("observation_exact", "next_state_exact", "observation_cells", "prediction_cells")


def measure_turns(played: PlayedTurns, spans: np.ndarray, is_cell: np.ndarray) -> TurnMeasures:
    """The measures of episodes.

    Args:
        played: with their states.
        spans: [N, T, G] of the answers' tokens, as `language.spans` has them.
        is_cell: [V] the tokens that differ between states, see `cells_of`.
    """
    episodes, turns = played.episodes, played.episodes.turns
    found = {name: np.full(turns.was_played.shape, np.nan) for name in TurnMeasures._fields}
    for row, states in enumerate(played.states):
        for number, turn in enumerate(np.flatnonzero(turns.was_played[row])):
            before, after = states[number], states[number + 1]
            found["well_formed"][row, turn] = turns.is_well_formed[row, turn]
            found["effective"][row, turn] = before != after
            for name in ("num_segments", "num_named", "num_actions", "num_effective"):
                found[name][row, turn] = getattr(turns, name)[row, turn]
            found["answer_length"][row, turn] = episodes.is_chosen[row, turn].sum()
            of_turn = spans[row, turn], np.asarray(episodes.chosen[row, turn])
            for name, span, state in (
                ("observation", IN_OBSERVATION, before),
                ("prediction", IN_PREDICTION, after),
            ):
                told = told_state(*of_turn, span)
                if told:
                    exact = "observation_exact" if span == IN_OBSERVATION else "next_state_exact"
                    found[exact][row, turn] = told == state
                    found[f"{name}_cells"][row, turn] = cells_in_place(told, state, is_cell)
    return TurnMeasures(**found)


def told_state(spans: np.ndarray, tokens: np.ndarray, span: int) -> list[int]:
    """The tokens of an answer [G] that are of a span; empty if there is none."""
    told: list[int] = tokens[spans == span].tolist()
    return told


def cells_in_place(told: Sequence[int], state: Sequence[int], is_cell: np.ndarray) -> float:
    """The share of the cells of a state that a text tells at their places."""
    places = [place for place, token in enumerate(state) if is_cell[token]]
    right = sum(place < len(told) and told[place] == state[place] for place in places)
    return right / max(1, len(places))


def cells_of(token_bytes: Sequence[bytes]) -> np.ndarray:
    """[V] bool: tokens that are a cell or a coordinate, which are those with a digit or of one sign.

    Words, punctuation and the spaces between are the same in every state, but for the player's symbol in a sentence.
    """
    texts = [token.decode("utf-8", "replace").strip() for token in token_bytes]
    return np.array([any(x.isdigit() for x in text) or (len(text) == 1 and text not in ",.;:|") for text in texts])
