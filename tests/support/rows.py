"""Rows of written turns of a tiny world, played by the random speaker, in a folder to fine-tune on."""

import functools

import jax
import numpy as np
from support.agents import TINY, TOKENIZER, tiny_agent, tiny_world

import stoix_like as sl
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.algorithms.text.generation import GenerationRules, make_rows, split, states_of_turns
from stoix_like.language import rendering
from stoix_like.runtime.datasets import row_files
from stoix_like.runtime.datasets.row_files import RowFile
from stoix_like.runtime.runs.agents import row_form

LEAVES = {name: value for name, value in TINY.items() if name not in ("group_size", "num_minibatches")}
LEAVES |= {"mode": "worldmodel", "answer_length": 90, "batch_size": 4, "num_minibatches": 3}


@functools.cache
def played(context="single_turn", num_levels=10, answer_length=90, rendering_name="both"):
    """(agent, turns of random answers with their states, the levels' keys)."""
    leaves = {"mode": "worldmodel", "answer_length": answer_length, "context": context, "rendering": rendering_name}
    agent, _, lexicon = tiny_agent(tiny_world(), **leaves)
    slots, dialogue = agent.rules.slots, agent.dialogue
    speaker = random_speaker(dialogue, lexicon, slots, agent.rules.actions_per_turn)
    rules = agent.rules._replace(group_size=1)
    keys = jax.random.split(jax.random.key(4), num_levels)

    @jax.jit
    def play(keys):
        episodes, world = rollout(dialogue, lexicon, rules, speaker, keys, keys)
        pieces = dialogue.write_told(world.env_state)
        return episodes, rendering.pack(lexicon.table, pieces, pieces.shape[1], at_end=False)

    episodes, (tokens, is_valid) = jax.device_get(play(keys))
    last = [row[valid].tolist() for row, valid in zip(tokens, is_valid, strict=True)]
    return agent, states_of_turns(dialogue, agent.lexicon, episodes, last), keys


@functools.cache
def row_file(context="single_turn"):
    """All rows of the episodes."""
    agent, turns, _ = played(context)
    rng = np.random.default_rng(0)
    rows, trajectory, _ = make_rows(agent.rules.slots, TOKENIZER.token_bytes, turns, GenerationRules(), rng)
    config = sl.fine_tune_config(**LEAVES, context=context)
    return RowFile(rows, trajectory, row_form(tiny_world(), TOKENIZER, config))


def write_folder(folder, context="single_turn"):
    """The folder, with rows to learn from and rows of validation."""
    rows = row_file(context)
    is_held_out = split(rows.trajectory, 0.3, np.random.default_rng(1))
    row_files.write_rows(folder / row_files.TRAINING, rows.take(~is_held_out))
    row_files.write_rows(folder / row_files.VALIDATION, rows.take(is_held_out))
    return folder
