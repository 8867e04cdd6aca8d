"""What a scorer reads of a model: losses, perplexities and gaps, against sums that are formed here token by token."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
from support.agents import TINY, TOKENIZER, tiny_agent, tiny_world
from support.rows import played, row_file, write_folder

import stoix_like as sl
from stoix_like.algorithms.agent.setup import make_agent
from stoix_like.algorithms.text.reading import read_rows
from stoix_like.algorithms.text.world_rows import supervised_rows
from stoix_like.envs.text import worlds
from stoix_like.language.spans import IN_OBSERVATION, IN_PREDICTION
from stoix_like.spa.next_states import NextStates
from stoix_like.spa.pipeline import StageAgent
from stoix_like.spa.scoring import Scorer


@functools.cache
def agent_and_params():
    leaves = TINY | {"mode": "worldmodel", "answer_length": 90}
    config = sl.agent_config(**leaves)
    agent = make_agent(tiny_world(), TOKENIZER, config, "stopped")
    _, params, _ = tiny_agent(tiny_world(), mode="worldmodel", answer_length=90)
    return StageAgent(config, tiny_world(), TOKENIZER, agent), params


@functools.cache
def log_probs(rows_at_once):
    """[R, T, G] of the tokens of all rows of the file, and the rows."""
    one, params = agent_and_params()
    agent = one.agent
    rows = supervised_rows(agent.rules.slots, agent.lexicon.spans, row_file().turns)

    @jax.jit
    def read(packed, written):
        logits, _ = read_rows(agent.model._replace(critic=None), params, jnp.asarray(agent.lexicon.prompt), packed)
        return jnp.take_along_axis(jax.nn.log_softmax(logits), written[..., None], axis=-1)[..., 0]

    pieces = [
        read(*jax.tree.map(lambda x, n=n: x[n : n + rows_at_once], (rows.packed, rows.written)))
        for n in range(0, len(rows.written), rows_at_once)
    ]
    return np.concatenate([np.asarray(x, np.float64) for x in pieces]), rows


def test_the_loss_of_each_answer_is_in_its_place():
    """More rows than are read at once, so that the last of them are filled up."""
    one, params = agent_and_params()
    states = NextStates(one, played()[2])
    turns = row_file().turns
    order = np.arange(70) % len(turns.tokens)
    found = states._losses(params, [(turns.tokens[n, 0], turns.is_valid[n, 0]) for n in order])
    of_tokens, rows = log_probs(1)
    wanted = -np.where(rows.span >= 0, of_tokens, 0.0).sum(axis=(1, 2))
    assert len(set(wanted.round(3))) > 5
    np.testing.assert_allclose(found, wanted[order], rtol=1e-4)


def test_perplexities_are_of_tokens_and_of_cells_by_hand(tmp_path):
    """Of the rows of validation; a cell is a sign or a coordinate of a state."""
    one, params = agent_and_params()
    folder = write_folder(tmp_path)
    found = Scorer(one, 2, 1, folder).state_perplexities(params)
    of_tokens, rows = log_probs(1)
    held_out = {x.tobytes() for x in np.load(folder / "wm_val.npz")["tokens"]}
    is_held_out = [x.tobytes() in held_out for x in row_file().turns.tokens]
    for name, span in (("observation", IN_OBSERVATION), ("prediction", IN_PREDICTION)):
        loss, num_tokens, num_cells = 0.0, 0, 0
        for row in np.flatnonzero(is_held_out):
            for place in zip(*np.nonzero(rows.span[row] == span), strict=True):
                text = TOKENIZER.to_text(rows.written[row][place][None]).strip()
                loss -= of_tokens[row][place]
                num_tokens += 1
                num_cells += text.strip("(),").isdigit() or text in ("_", "O", "G", "P", "X", "√")
        assert 0 < num_cells < num_tokens
        np.testing.assert_allclose(found[f"{name}_perplexity_per_token"], np.exp(loss / num_tokens), rtol=1e-4)
        np.testing.assert_allclose(found[f"{name}_perplexity_per_cell"], np.exp(loss / num_cells), rtol=1e-4)


def test_the_gap_is_between_the_model_that_sampled_and_the_one_that_is_trained():
    one, params = agent_and_params()
    scorer = Scorer(one, 4, 2, None)
    episodes = jax.jit(functools.partial(scorer._played, force=None))(params, *scorer._slice(0)).episodes
    gap = jax.jit(scorer._sampling_gap)
    assert 0.0 < float(jnp.nanmax(jnp.abs(gap(params, episodes)))) < 1e-4
    other = jax.tree.map(lambda x: x * 1.05, params)
    found = np.asarray(gap(other, episodes)).ravel()
    chosen = np.asarray(episodes.is_chosen).ravel()
    np.testing.assert_array_equal(np.isfinite(found), chosen)
    assert np.abs(found[chosen]).max() > 0.01


def test_with_forced_predictions_every_answer_tells_the_state_in_which_the_task_is_done():
    one, params = agent_and_params()
    scorer, seen = Scorer(one, 4, 2, None), []
    played_with = scorer._played

    def spied(params, *keys, force):
        found = played_with(params, *keys, force=force)
        jax.debug.callback(lambda *x: seen.append(x), found.episodes.tokens, found.episodes.is_valid)
        return found

    scorer._played = spied
    forced = scorer.forced(params)
    jax.effects_barrier()
    assert forced.shape == (4, 2)
    assert worlds.succeeded_of(one.world.env) is not None
    num_state = one.agent.rules.slots.state
    for tokens, is_valid in seen:
        for said, valid in zip(tokens[:, 0, num_state:], is_valid[:, 0, num_state:], strict=True):
            told = re.search("<prediction>(.*)</prediction>", TOKENIZER.to_text(said[valid]), re.DOTALL)[1]
            places = re.findall(r"(Player \(P\)|goal \(G\)) is at (\(\d,\d\))", told)
            assert len(places) == 2
            assert places[0][1] == places[1][1]
    assert len(seen) == 1
