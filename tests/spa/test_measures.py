"""What episodes say of a world model, on answers that were written by hand or at random."""

import re

import jax
import jax.numpy as jnp
import numpy as np
from support.agents import TINY as LEAVES_OF_AGENT
from support.agents import TOKENIZER, tiny_agent, tiny_world
from support.rows import played

import stoix_like as sl
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.setup import make_agent
from stoix_like.algorithms.agent.speaking import model_speaker
from stoix_like.language import rendering
from stoix_like.language.replacement import replace_states
from stoix_like.language.spans import IN_OBSERVATION, IN_PREDICTION, spans_of
from stoix_like.spa.measures import cells_in_place, cells_of, measure_turns, told_state
from stoix_like.spa.next_states import NextStates, _reachable, _with_answer
from stoix_like.spa.pipeline import StageAgent

IS_CELL = cells_of(TOKENIZER.token_bytes)


def ids(text):
    return TOKENIZER.encode(text)


def test_cells_are_signs_and_coordinates():
    found = {TOKENIZER.token_bytes[n].decode() for n in np.flatnonzero(IS_CELL)}
    assert {" _", " O", " G\n", " (1,", "3)", " √"} <= found
    assert not {"Player (P) is at", " .\n", " ; goal (G) is at", "<think>", "Left", ","} & found


def test_cells_are_counted_at_their_places():
    state = ids("Player (P) is at (1,2) ; goal (G) is at (0,1) .\n")
    assert cells_in_place(state, state, IS_CELL) == 1.0
    moved = ids("Player (P) is at (1,1) ; goal (G) is at (0,1) .\n")
    assert cells_in_place(moved, state, IS_CELL) == 3 / 4
    assert cells_in_place(moved[:3], state, IS_CELL) == 1 / 4


def spans_of_turns(agent, episodes):
    by_answer = (-1, episodes.chosen.shape[-1])
    found = spans_of(agent.lexicon.spans, episodes.chosen.reshape(by_answer), episodes.is_chosen.reshape(by_answer))
    return np.asarray(found).reshape(episodes.chosen.shape)


def test_told_states_are_compared_with_those_that_were():
    """Of random answers nearly none is right; with the true states put in their places, all are."""
    agent, turns, _ = played()
    spans = spans_of_turns(agent, turns.episodes)
    found = measure_turns(turns, spans, IS_CELL)
    is_played = turns.episodes.turns.was_played
    assert np.isfinite(found.observation_exact[is_played]).all()
    assert np.isnan(found.observation_exact[~is_played]).all()
    assert 0 <= np.nanmean(found.next_state_exact) < 0.3
    told = []
    for row, states in enumerate(turns.states):
        pairs = []
        for number, turn in enumerate(np.flatnonzero(is_played[row])):
            of_turn = spans[row, turn], turns.episodes.chosen[row, turn]
            pairs.append([told_state(*of_turn, span) for span in (IN_OBSERVATION, IN_PREDICTION)])
            assert found.observation_exact[row, turn] == (pairs[-1][0] == states[number])
            assert found.effective[row, turn] == (states[number] != states[number + 1])
        told.append(pairs)
    as_told = [[*(pair[0] for pair in pairs), pairs[-1][1]] for pairs in told]
    right = measure_turns(turns._replace(states=as_told), spans, IS_CELL)
    assert np.nanmin(right.observation_exact) == np.nanmin(right.observation_cells) == 1.0
    last = [np.flatnonzero(row)[-1] for row in is_played]
    assert (right.next_state_exact[np.arange(len(last)), last] == 1.0).all()


def test_the_states_that_a_turn_can_lead_to_are_those_of_all_its_answers():
    env, pieces = tiny_world().env, tiny_world().pieces["coordinates"]
    keys = jax.random.split(jax.random.key(5), 6)
    write = jax.jit(jax.vmap(pieces.write))
    texts = lambda states: np.asarray(write(states)).tolist()
    found = _reachable(env, keys, 2, texts)
    reset, step = jax.jit(env.evaluation_reset), jax.jit(env.step)
    for level, key in enumerate(keys):
        wanted = set()
        for first in range(4):
            for second in (None, *range(4)):
                state, timestep = step(reset(key)[0], first)
                if second is not None and not timestep.last():
                    state, _ = step(state, second)
                wanted.add(tuple(np.asarray(pieces.write(state)).tolist()))
        assert set(found[level]) == wanted
        assert len(found[level]) == len(wanted) > 2


def test_a_speaker_that_is_told_how_its_answer_begins_goes_on_from_there():
    agent, params, lexicon = tiny_agent(tiny_world(), mode="worldmodel", answer_length=90)
    slots, dialogue = agent.rules.slots, agent.dialogue

    def begins(env_state):
        state = dialogue.write_state(env_state)
        return rendering.pack(lexicon.table, dialogue.write_beginning(state, state), slots.answer, at_end=False)

    def play(beginning):
        speaker = model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, slots, 1.0, beginning)
        rules, keys = agent.rules._replace(group_size=1), jax.random.split(jax.random.key(3), 5)
        return rollout(dialogue, lexicon, rules, speaker, keys, keys)[0]

    episodes = jax.device_get(jax.jit(lambda: play(begins))())
    free = jax.device_get(jax.jit(lambda: play(None))())
    for row in range(5):
        told, valid = episodes.chosen[row, 0], episodes.is_chosen[row, 0]
        text = TOKENIZER.to_text(told[valid])
        state = TOKENIZER.to_text(episodes.tokens[row, 0, : slots.state][episodes.is_valid[row, 0, : slots.state]])
        seen = state.partition("State:\n")[2].rpartition("You have ")[0]
        beginning = f"<observation>{seen}</observation><prediction>{seen}</prediction>"
        assert text.startswith(beginning)
        count = len(ids(beginning))
        assert (episodes.log_prob[row, 0, :count] == 0).all()
        assert (episodes.log_prob[row, 0, count : valid.sum()] < 0).all()
        assert not TOKENIZER.to_text(free.chosen[row, 0][free.is_chosen[row, 0]]).startswith(beginning)
    assert jnp.asarray(episodes.is_chosen[:, 0].sum(axis=1)).min() > count


def test_the_most_probable_of_the_states_that_can_be_reached_is_compared_with_where_the_answer_leads(monkeypatch):
    """Of a model that finds the intended state the most probable, or the least; predictions are set to be right."""
    config = sl.agent_config(**(LEAVES_OF_AGENT | {"mode": "worldmodel", "answer_length": 90}))
    one = StageAgent(config, tiny_world(), TOKENIZER, make_agent(tiny_world(), TOKENIZER, config))
    agent, turns, keys = played()
    tokens, is_valid = (np.array(x[:, 0]) for x in (turns.episodes.tokens, turns.episodes.is_valid))
    states = NextStates(one, keys)
    intended = states._intended(tokens, is_valid)
    num_state = agent.rules.slots.state
    for row, state in enumerate(intended):
        answer = tokens[row, num_state:][is_valid[row, num_state:]].tolist()
        written = replace_states(TOKENIZER.token_bytes, answer, state, state).tokens
        tokens[row], is_valid[row] = _with_answer(tokens[row], is_valid[row], num_state, written)
    assert states._intended(tokens, is_valid) == intended  # the actions are as they were
    for sign, share in ((1.0, 1.0), (-1.0, 0.0)):

        def losses(_params, rows, sign=sign):
            told = [tokens_of(row, num_state) for row in rows]
            return np.array([sign * (first != second) for first, second in told])

        monkeypatch.setattr(states, "_losses", losses)
        found = states.measure(None, tokens, is_valid)
        by_chance = found.pop("next_state_by_chance")
        assert found == {"answer_consistency": 1.0, "next_state_given_answer": share}
        assert by_chance == np.mean([1 / len(texts) for texts in states._candidates])


def tokens_of(row, num_state):
    """(observation, prediction) of a row, as texts."""
    tokens, is_valid = row
    text = TOKENIZER.to_text(tokens[num_state:][is_valid[num_state:]])
    return [re.search(f"<{tag}>(.*)</{tag}>", text, re.DOTALL)[1] for tag in ("observation", "prediction")]
