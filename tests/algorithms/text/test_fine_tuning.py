"""Fine-tuning: rows that are cut, batches of epochs, the rate, AdamW, and losses by span."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.agents import TINY, TOKENIZER, tiny_agent, tiny_world

from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.algorithms.optimizer import ADAM_EPS, apply_gradients, init_optimizer
from stoix_like.algorithms.text import fine_tuning
from stoix_like.algorithms.text.world_model import supervised_loss_sum
from stoix_like.algorithms.text.world_rows import WrittenTurns, supervised_rows, truncated
from stoix_like.config.sections.agent_runs import fine_tune_config
from stoix_like.errors import ConfigError
from stoix_like.language.spans import SPANS, is_counted
from stoix_like.types import NetworkParams

ROWS = WrittenTurns(
    tokens=np.arange(24).reshape(2, 3, 4),
    is_valid=np.array([[[0, 1, 1, 0], [1, 1, 0, 1], [0, 0, 0, 0]], [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]], bool),
)


@pytest.mark.parametrize(
    ("max_length", "truncation", "kept"),
    [
        (None, "left", [[1, 2, 4, 5, 7], [12, 18]]),
        (5, "drop", [[1, 2, 4, 5, 7], [12, 18]]),
        (3, "left", [[4, 5, 7], [12, 18]]),
        (3, "right", [[1, 2, 4], [12, 18]]),
        (3, "drop", [[12, 18]]),
        (1, "left", [[7], [18]]),
    ],
)
def test_of_long_rows_the_first_tokens_are_left_out_or_the_last_or_the_rows(max_length, truncation, kept):
    found = truncated(ROWS, max_length, truncation)
    assert [tokens[valid].tolist() for tokens, valid in zip(found.tokens, found.is_valid, strict=True)] == kept


@functools.cache
def written(num_levels=12, seed=0):
    """Turns of random answers with states, a row each."""
    agent, _, lexicon = tiny_agent(tiny_world(), mode="worldmodel", answer_length=90)
    speaker = random_speaker(agent.dialogue, lexicon, agent.rules.slots, agent.rules.actions_per_turn)
    rules = agent.rules._replace(group_size=1)
    keys = jax.random.split(jax.random.key(seed), num_levels)
    episodes, _ = jax.jit(lambda keys: rollout(agent.dialogue, lexicon, rules, speaker, keys, keys))(keys)
    rows, turns = np.nonzero(np.asarray(episodes.turns.was_played))
    return WrittenTurns(*(np.asarray(x)[rows, turns][:, None] for x in (episodes.tokens, episodes.is_valid)))


def test_an_answer_that_begins_its_row_has_no_loss_on_its_first_token():
    """Where the turn before it was cut, there is nothing that it could be read from."""
    agent, _, _ = tiny_agent(tiny_world(), mode="worldmodel", answer_length=90)
    cut = truncated(written(), 5, "left")
    rows = supervised_rows(agent.rules.slots, agent.lexicon.spans, cut)
    whole = supervised_rows(agent.rules.slots, agent.lexicon.spans, written())
    assert (rows.packed.length == 5).all()
    assert ((rows.span >= 0).sum(axis=(1, 2)) == 4).all()  # all are of the answer
    assert (
        (whole.span >= 0).sum(axis=(1, 2)) == written().is_valid[..., agent.rules.slots.state :].sum(axis=(1, 2))
    ).all()


@functools.cache
def learner(**leaves):
    leaves = {
        "mode": "worldmodel",
        "answer_length": 90,
        "batch_size": 4,
        "num_minibatches": 3,
        "actor_lr": 0.003,
    } | leaves
    sizes = {name: value for name, value in TINY.items() if name not in ("group_size", "num_minibatches")}
    config = fine_tune_config(**(sizes | leaves))
    made = fine_tuning.make(tiny_world(), TOKENIZER, config, written(), written(6, seed=9))
    return config, made


def setup_of(**leaves):
    return learner(**leaves)[1].update.args[0]


def test_an_epoch_reads_each_row_at_most_once_and_each_epoch_has_its_own_order():
    setup, (_, made) = setup_of(), learner()
    state = jax.jit(made.init)(jax.random.key(0))
    num_rows, size = state.rows.written.shape[0], 4
    per_epoch = num_rows // size
    assert num_rows % size  # so that rows are left over
    batch = jax.jit(functools.partial(fine_tuning.batch_of_step, setup, state))
    epochs = [np.concatenate([batch(epoch * per_epoch + n) for n in range(per_epoch)]) for epoch in range(3)]
    for rows in epochs:
        assert len(set(rows.tolist())) == len(rows) == per_epoch * size
        assert set(rows.tolist()) <= set(range(num_rows))
    assert (epochs[0] != epochs[1]).any()
    assert len(set(np.concatenate(epochs).tolist())) == num_rows  # those that are left over change


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_the_rate_rises_and_then_falls_as_half_a_cosine(schedule):
    config, made = learner(schedule=schedule, num_updates=10, warmup_share=0.2)
    setup, hyper = made.update.args[0], fine_tuning.make_hyper(config)
    found = [
        float(fine_tuning.learning_rate_factor(setup, hyper, jnp.int32(n))) for n in range(30)
    ]  # 3 steps an update
    np.testing.assert_allclose(found[:6], np.arange(1, 7) / 6, rtol=1e-6)
    wanted = 0.5 * (1.0 + np.cos(np.pi * (np.arange(6, 30) - 6) / 24)) if schedule == "cosine" else np.ones(24)
    np.testing.assert_allclose(found[6:], wanted, atol=1e-6)


def test_the_moments_decay_as_optaxs_adamw_with_the_same_numbers():
    params = NetworkParams({"w": jnp.ones((2, 3))}, {"b": jnp.ones(3)}, None)
    slopes = [jax.tree.map(lambda x, s=s: jnp.sin(s + jnp.arange(x.size)).reshape(x.shape), params) for s in range(3)]
    rates = setup_rates(0.1)
    theirs = optax.chain(
        optax.clip_by_global_norm(0.5),
        optax.adamw(
            0.1, 0.8, 0.7, eps=ADAM_EPS, weight_decay=0.2, mask=lambda x: jax.tree.map(lambda w: w.ndim > 1, x)
        ),
    )
    ours, state, other, moments = params, init_optimizer(params), params, theirs.init(params)
    for slope in slopes:
        ours, state = apply_gradients(ours, state, slope, rates, jnp.float32(1.0), jnp.float32(0.2), betas=(0.8, 0.7))
        changes, moments = theirs.update(slope, moments, other)
        other = optax.apply_updates(other, changes)
    for one, two in zip(jax.tree.leaves(ours), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-5)


def setup_rates(rate):
    config, _ = learner()
    return fine_tuning.make_hyper(config)._replace(actor_lr=jnp.float32(rate), max_grad_norm=jnp.float32(0.5))


def test_means_over_rows_are_those_over_tokens():
    """Rows of different lengths: every token counts the same."""
    _, made = learner()
    setup, state = setup_of(), jax.jit(made.init)(jax.random.key(1))
    rows = jax.tree.map(jnp.asarray, made.items)
    found = jax.jit(made.score)(state.params, rows, jax.random.split(jax.random.key(0), len(rows.written)))
    read = functools.partial(
        supervised_loss_sum, setup.agent.model, state.prompt, state.params, rows.packed, rows.written
    )
    for index, name in enumerate(SPANS):
        loss, metrics = jax.jit(read)(rows.span == index)
        count = max(1, int((rows.span == index).sum()))
        np.testing.assert_allclose(found[f"loss_{name}"].mean(), float(loss) / count, rtol=1e-4)
        np.testing.assert_allclose(
            found[f"accuracy_{name}"].mean(), float(metrics["trainer/accuracy"]) / count, rtol=1e-5
        )
    counted = is_counted(rows.span, "assistant")
    np.testing.assert_allclose(found["score"].mean(), -float(jax.jit(read)(counted)[0]) / int(counted.sum()), rtol=1e-4)


def test_what_is_read_again_and_again_is_learned():
    _, made = learner(num_updates=20, schedule="constant")
    state, update = jax.jit(made.init)(jax.random.key(0)), jax.jit(made.update)
    losses = []
    for _ in range(20):
        state, metrics = update(state)
        losses.append(float(metrics["trainer/loss"]))
    assert losses[-1] < 0.7 * losses[0]
    assert float(metrics["trainer/trained_tokens_max"]) == int(state.trained.metric())


def test_too_few_rows_are_refused():
    with pytest.raises(ConfigError, match=r"fine_tune\.batch_size: there are"):
        learner(batch_size=4096)
    with pytest.raises(ConfigError, match="there are 0 rows to learn from and 0 of validation"):
        learner(max_length=3, truncation="drop")
    with pytest.raises(ConfigError, match=r"fine_tune\.batch_size: 4 rows are not divisible by num_microbatches = 3"):
        learner(num_microbatches=3)
