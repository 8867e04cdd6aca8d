"""The page about a text world of one's own does what it says."""

import re

import jax
import jax.numpy as jnp
import pytest
from support.paths import ROOT

import stoix_like as sl


def blocks():
    page = (ROOT / "docs/own-text-world.md").read_text()
    return re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def test_its_states_are_written_as_the_page_says():
    names = {}
    for block in blocks()[:3]:
        exec(block, names)
    world, tokenizer = names["world"], names["tokenizer"]
    config = sl.agent_config(rendering="coordinates", num_turns=3, actions_per_turn=1, hidden_dim=8, num_heads=2)
    agent = sl.agent.make_agent(world, tokenizer, config)
    lexicon = jax.tree.map(jnp.asarray, agent.lexicon)
    speaker = sl.agent.random_speaker(agent.dialogue, lexicon, agent.rules.slots, 1)
    play = jax.jit(lambda keys: sl.agent.rollout(agent.dialogue, lexicon, agent.rules, speaker, keys, keys))
    episodes, _ = play(jax.random.split(jax.random.key(0), 2))
    text = tokenizer.to_text(episodes.tokens[0, 0][episodes.is_valid[0, 0]])
    assert re.search(r"State:\nYou are at cell 3 ; the goal is cell [06] \.\nYou have 8 actions left", text)
    assert re.search(r"<answer>(Left|Right)</answer>", text)


@pytest.mark.full
def test_its_world_is_learned():
    names = {}
    exec("\n".join(blocks()), names)
    assert float(names["solve_rate"][0]) < 0.6
    assert float(names["solve_rate"][-5:].mean()) > 0.9
