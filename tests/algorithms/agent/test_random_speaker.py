"""The speaker that knows the format alone: its answers parse, its actions are uniform, its states are unrelated."""

import functools

import jax
import numpy as np
import pytest
from support.agents import TOKENIZER, tiny_agent

from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.language.templates import ORDERS

NUM_GROUPS = 128


@functools.cache
def played(mode, order="obs_pred_answer"):
    agent, _, lexicon = tiny_agent(mode=mode, order=order, group_size=1, answer_length=None)
    speaker = random_speaker(agent.dialogue, lexicon, agent.rules.slots, agent.rules.actions_per_turn)
    keys = jax.random.split(jax.random.key(3), NUM_GROUPS)
    play = jax.jit(lambda keys: rollout(agent.dialogue, lexicon, agent.rules, speaker, keys, keys))
    return agent, jax.device_get(play(keys)[0])


@pytest.mark.parametrize(("mode", "order"), [("base", ORDERS[0]), *(("worldmodel", order) for order in ORDERS)])
def test_every_answer_is_well_formed_and_ends_by_itself(mode, order):
    _, episodes = played(mode, order)
    was_played = episodes.turns.was_played
    assert was_played.sum() > NUM_GROUPS
    assert episodes.turns.is_well_formed[was_played].all()
    assert not episodes.turns.was_cut.any()
    assert (episodes.turns.penalty == 0).all()


def answers(episodes):
    for row, turn in zip(*np.nonzero(episodes.turns.was_played), strict=True):
        yield TOKENIZER.to_text(episodes.chosen[row, turn][episodes.is_chosen[row, turn]])


def test_actions_are_uniform_and_so_is_their_number():
    said = [
        text.partition("<answer>")[2].partition("</answer>")[0].split(" || ") for text in answers(played("base")[1])
    ]
    counts = np.bincount([len(actions) for actions in said], minlength=3)[1:]
    of_action = np.unique([action for actions in said for action in actions], return_counts=True)
    assert set(of_action[0]) == {"Left", "Down", "Right", "Up"}
    for found in (counts, of_action[1]):
        expected = found.sum() / len(found)
        chi_square = ((found - expected) ** 2 / expected).sum()
        assert chi_square < 16.3  # 1 in 1,000 with three degrees of freedom


def test_observation_and_prediction_are_states_of_other_levels():
    """They are whole renderings, and hardly ever the state that is shown."""
    agent, episodes = played("worldmodel")
    num_state = agent.rules.slots.state
    shown, told = [], []
    for row, turn in zip(*np.nonzero(episodes.turns.was_played), strict=True):
        of_turn, valid = episodes.tokens[row, turn], episodes.is_valid[row, turn]
        shown.append(TOKENIZER.to_text(of_turn[:num_state][valid[:num_state]]))
        told.append(TOKENIZER.to_text(of_turn[num_state:][valid[num_state:]]))
    for text in told:
        assert text.startswith("<observation> ")
        assert text.count(" .\n</observation><prediction> ") == 1
        assert text.count(" .\n</prediction></think><answer>") == 1
    observed = [text.partition("<observation>")[2].partition("</observation>")[0] for text in told]
    assert np.mean([state in turn for state, turn in zip(observed, shown, strict=True)]) < 0.1
    assert len(set(observed)) > len(observed) / 2
