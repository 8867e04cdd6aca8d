"""Supervised learning: the loss of chosen tokens, and its means by span, against plain sums."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from support.agents import TOKENIZER, tiny_agent, tiny_world

from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.algorithms.text.reading import pack_rows, read_rows
from stoix_like.algorithms.text.world_model import sums_by_span, supervised_loss_sum
from stoix_like.language.spans import SPANS, is_counted, make_spans, spans_of


@functools.cache
def written_rows():
    """(agent, parameters, prompt, packed rows, tokens and spans [R, 1, G] of random answers with states)."""
    agent, params, lexicon = tiny_agent(tiny_world(), mode="worldmodel", answer_length=90)
    rules = agent.rules
    speaker = random_speaker(agent.dialogue, lexicon, rules.slots, rules.actions_per_turn)
    keys = jax.random.split(jax.random.key(0), 2)
    episodes, _ = jax.jit(lambda keys: rollout(agent.dialogue, lexicon, rules, speaker, keys, keys))(keys)
    packed = pack_rows(rules.slots, episodes.tokens, episodes.is_valid)
    written, is_written = (x.reshape(packed.before.shape) for x in (episodes.chosen, episodes.is_chosen))
    table = make_spans(TOKENIZER.token_bytes)
    spans = jax.jit(functools.partial(spans_of, table))(written[:, 0], is_written[:, 0])[:, None]
    return agent, params, lexicon.prompt, packed, written, spans


def test_sums_by_span_are_those_of_plain_sums():
    agent, params, prompt, packed, written, spans = written_rows()
    found = jax.jit(functools.partial(sums_by_span, agent.model))(prompt, params, packed, written, spans)
    logits, _ = jax.jit(functools.partial(read_rows, agent.model))(params, prompt, packed)
    log_probs = np.log(np.asarray(jax.nn.softmax(logits)))
    num_rows = written.shape[0]
    for index, name in enumerate(SPANS):
        losses, rights = np.zeros((2, num_rows))
        places = np.argwhere(np.asarray(spans) == index)
        for place in places:
            losses[place[0]] -= log_probs[(*place, int(written[tuple(place)]))]
            rights[place[0]] += np.argmax(log_probs[tuple(place)]) == int(written[tuple(place)])
        assert name == "thoughts" or len(places) > 10
        np.testing.assert_allclose(found[0][:, index], losses, rtol=1e-4)
        np.testing.assert_allclose(found[1][:, index], rights)


def test_a_mask_leaves_the_other_tokens_out_of_the_loss():
    """What an answer should have said does not change the loss of its states."""
    agent, params, prompt, packed, written, spans = written_rows()

    def loss(written, mask):
        return supervised_loss_sum(agent.model, prompt, params, packed, written, is_counted(spans, mask))[0]

    loss = jax.jit(loss, static_argnums=1)
    changed = jnp.where(spans == SPANS.index("answer"), (written + 1) % 60, written)
    assert float(loss(written, "state_only")) == float(loss(changed, "state_only"))
    assert float(loss(written, "answer_only")) != float(loss(changed, "answer_only"))
    whole = sum(float(loss(written, mask)) for mask in ("state_only", "non_state"))
    np.testing.assert_allclose(float(loss(written, "assistant")), whole, rtol=1e-5)
