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
from stoix_like.algorithms.text.reading import read_rows
from stoix_like.algorithms.text.world_model import supervised_loss_sum
from stoix_like.algorithms.text.world_rows import WrittenTurns, kept_tokens, supervised_rows
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
    found = kept_tokens(ROWS, max_length, truncation)
    rows = [tokens[is_kept].tolist() for tokens, is_kept in zip(ROWS.tokens, found, strict=True)]
    assert [row for row in rows if row] == kept


def tables():
    """(the slots, the table of spans) of turns with states."""
    agent, _, _ = tiny_agent(tiny_world(), mode="worldmodel", answer_length=90)
    return agent.rules.slots, agent.lexicon.spans


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
    slots, spans, num_rows = *tables(), len(written().tokens)
    rows = supervised_rows(slots, spans, written(), kept_tokens(written(), 5, "left"))
    assert (rows.packed.length == 5).all()
    assert ((rows.span >= 0).sum(axis=(1, 2)) == 4).all()  # all are of the answer
    whole = supervised_rows(slots, spans, written())
    is_written = written().is_valid[..., slots.state :]
    np.testing.assert_array_equal((whole.span >= 0).reshape(num_rows, -1), is_written.reshape(num_rows, -1))


@pytest.mark.parametrize("truncation", ["left", "right"])
def test_wherever_a_row_is_cut_its_tokens_keep_their_spans(truncation):
    """A state whose tag was cut away is a state still. The first token of a row may have no span."""
    slots, spans = tables()
    whole = supervised_rows(slots, spans, written()).span
    in_state = np.isin(whole, [SPANS.index("observation"), SPANS.index("prediction")])
    num_states_cut = 0
    for max_length in range(1, int(written().is_valid.sum(axis=(1, 2)).max()) + 2, 7):
        is_kept = kept_tokens(written(), max_length, truncation)
        found, is_kept = supervised_rows(slots, spans, written(), is_kept).span, is_kept[..., slots.state :]
        has_span = found >= 0
        assert not (has_span & ~is_kept).any()
        assert ((is_kept & ~has_span).sum(axis=(1, 2)) <= 1).all()
        np.testing.assert_array_equal(found[has_span], whole[has_span])
        num_states_cut += (in_state[..., :-1] & ~is_kept[..., :-1] & in_state[..., 1:] & is_kept[..., 1:]).sum()
    assert truncation == "right" or num_states_cut > 0


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
        count = int((rows.span == index).sum())
        if count == 0:
            assert f"loss_{name}" not in found
            continue
        np.testing.assert_allclose(found[f"loss_{name}"].mean(), float(loss) / count, rtol=1e-4)
        np.testing.assert_allclose(
            found[f"accuracy_{name}"].mean(), float(metrics["trainer/accuracy"]) / count, rtol=1e-5
        )
    counted = is_counted(rows.span, "assistant")
    np.testing.assert_allclose(found["score"].mean(), -float(jax.jit(read)(counted)[0]) / int(counted.sum()), rtol=1e-4)


def test_an_update_learns_the_tokens_of_its_mask():
    """The loss is the mean over the tokens between the tags, which are found here from their texts."""
    model = setup_of().agent.model._replace(critic=None)

    @jax.jit
    def loss(params, prompt, rows, has_loss):
        logits, _ = read_rows(model, params, prompt, rows.packed)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), rows.written[..., None], axis=-1)[..., 0]
        return -jnp.where(has_loss, log_prob, 0.0).sum() / has_loss.sum()

    for mask in ("state_only", "non_state"):
        setup, (_, made) = setup_of(loss_mask=mask), learner(loss_mask=mask)
        state = jax.jit(made.init)(jax.random.key(2))
        batch = fine_tuning.batch_of_step(setup, state, jnp.int32(0))
        rows = jax.tree.map(lambda x, batch=batch: x[batch], state.rows)
        has_loss = np.array([[counted(turn, mask) for turn in row] for row in np.asarray(rows.written)])
        has_loss &= np.asarray(rows.span) >= 0  # there is a token
        _, metrics = jax.jit(functools.partial(fine_tuning.update, setup._replace(num_steps=1)))(state)
        wanted = loss(state.params, state.prompt, rows, has_loss)
        np.testing.assert_allclose(metrics["trainer/loss"], wanted, rtol=1e-5)
        assert float(metrics["trainer/trained_tokens_max"]) == has_loss.sum()


def counted(tokens, mask):
    """[G] bool of an answer, from its text: a token is in a state, in the answer, or neither."""
    text, kinds = "", []
    for token in tokens:
        word = TOKENIZER.to_text(np.array([token]))
        text += word
        is_tag = any(tag in word for tag in ("<observation>", "</observation>", "<prediction>", "</prediction>"))
        is_tag |= any(tag in word for tag in ("<answer>", "</answer>"))
        in_state = any(text.count(f"<{x}>") > text.count(f"</{x}>") for x in ("observation", "prediction"))
        in_answer = text.count("<answer>") > text.count("</answer>")
        kinds.append("rest" if is_tag else "state" if in_state else "answer" if in_answer else "rest")
    wanted = {
        "assistant": ("state", "answer", "rest"),
        "state_only": ("state",),
        "non_state": ("answer", "rest"),
        "answer_only": ("answer",),
    }
    return np.isin(kinds, wanted[mask])


def test_as_many_rows_of_validation_are_scored_as_are_asked_for():
    _, few = learner(num_eval_episodes=2)
    _, every = learner(num_eval_episodes=1000)
    state = jax.jit(every.init)(jax.random.key(1))
    assert len(few.items.written) == 2 < len(every.items.written)
    keys = jax.random.split(jax.random.key(0), 2)
    setup, rows = setup_of(), jax.tree.map(jnp.asarray, few.items)
    read = functools.partial(supervised_loss_sum, setup.agent.model, state.prompt, state.params, rows.packed)
    has_loss = rows.span >= 0
    wanted = -jax.jit(read)(rows.written, has_loss)[0] / has_loss.sum()
    np.testing.assert_allclose(jax.jit(few.score)(state.params, rows, keys)["score"].mean(), wanted, rtol=1e-4)


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
