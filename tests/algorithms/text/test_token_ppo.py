"""PPO over tokens: which tokens have a loss, parts of a minibatch, and rows dealt out to minibatches."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.agents import TOKENIZER, scripted_speaker
from support.marks import full
from support.token_rows import loss_of, played

from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.text import batches, token_ppo
from stoix_like.algorithms.text.inspection import play_and_judge
from stoix_like.algorithms.text.reading import PackedRows, read_rows
from stoix_like.algorithms.text.token_loss import loss_sum
from stoix_like.algorithms.text.token_rows import compute_rows


@pytest.mark.parametrize("context", ["single_turn", "full"])
def test_the_tokens_with_a_loss_are_the_sampled_ones(context):
    setup, state, episodes, rows = played(context)
    slots = setup.agent.rules.slots
    of_world = np.asarray(episodes.tokens)[..., : slots.state][np.asarray(episodes.turns.was_played)]
    assert {TOKENIZER.to_text(row[-1:]) for row in of_world} == {"<think>"}  # the forced one is the world's last
    assert int(rows.is_chosen.sum()) == int((np.asarray(episodes.log_prob) != 0).sum())
    loss, metrics = jax.jit(functools.partial(loss_of, setup))(state, rows)
    elsewhere = ~rows.is_chosen
    loud = rows._replace(
        chosen=jnp.where(elsewhere, 5, rows.chosen),
        **{
            name: jnp.where(elsewhere, 1000.0, getattr(rows, name))
            for name in ("log_prob", "value", "advantage", "target")
        },
    )
    again, others = jax.jit(functools.partial(loss_of, setup))(state, loud)
    assert float(loss) == float(again)
    assert {name: float(x) for name, x in metrics.items()} == {name: float(x) for name, x in others.items()}
    assert float(metrics["trainer/approx_kl"]) < 1e-6
    assert float(metrics["trainer/clip_fraction"]) == 0.0


def test_the_first_gradient_is_that_of_the_advantages():
    """At a ratio of 1 the policy's gradient is that of -sum(advantage * log-probability), computed by itself."""
    setup, state, _, rows = played()
    setup = setup._replace(settings=setup.settings._replace(clips_value=False))
    hyper = state.hyper._replace(ent_coef=jnp.float32(0.0), vf_coef=jnp.float32(0.0))
    agent = setup.agent

    def plain(params):
        logits, _ = read_rows(agent.model, params, state.lexicon.prompt, rows.packed)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), rows.chosen[..., None], -1)[..., 0]
        return -jnp.where(rows.is_chosen, log_prob * rows.advantage, 0.0).sum()

    ours = jax.jit(jax.grad(lambda params: loss_of(setup, state._replace(hyper=hyper), rows, params)[0]))(state.params)
    theirs = jax.jit(jax.grad(plain))(state.params)
    for one, other in zip(jax.tree.leaves(ours.torso), jax.tree.leaves(theirs.torso), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


def test_the_tokens_of_an_answer_stand_between_its_tags():
    setup, state, *_ = played()
    agent, keys = setup.agent, jax.random.split(jax.random.key(2), 1)
    said = ["</think><answer>Up || Left</answer><|im_end|>", "</think><answer></answer>", "Up</think>"]
    speaker = scripted_speaker(agent, said)
    episodes, _ = rollout(agent.dialogue, state.lexicon, agent.rules, speaker, keys, keys)
    is_answer = np.asarray(batches.answer_tokens(state.lexicon.spans, episodes))
    tokens = np.asarray(episodes.chosen)
    found = [TOKENIZER.to_text(tokens[0, turn][is_answer[0, turn]]) for turn in range(3)]
    assert found == ["Up || Left", "", ""]
    said = ["</think><answer>Up<|im_end|>", "</think><answer>Up</answer><answer>Left</answer>"]
    speaker = scripted_speaker(agent, [*said, "</think><answer>Up<answer>Left</think>"])
    episodes, _ = rollout(agent.dialogue, state.lexicon, agent.rules, speaker, keys, keys)
    is_answer = np.asarray(batches.answer_tokens(state.lexicon.spans, episodes))
    assert is_answer.sum(axis=2)[0].tolist() == [0, int(episodes.turns.is_well_formed[0, 1]), 0]
    assert bool(episodes.turns.is_well_formed[0, 1])


def test_the_bonus_is_of_all_tokens_or_of_answers_alone():
    setup, state, _, rows = played()
    rows = rows._replace(is_answer=rows.is_chosen & (jnp.arange(rows.chosen.shape[-1]) % 3 == 1)[None, None])
    logits, _ = read_rows(setup.agent.model, state.params, state.lexicon.prompt, rows.packed)
    log_probs = np.asarray(jax.nn.log_softmax(logits), np.float64)
    entropy = -(np.exp(log_probs) * log_probs).sum(axis=-1)

    def bonus(which):
        with_bonus = setup._replace(settings=setup.settings._replace(entropy_of=which))
        hyper = state.hyper._replace(ent_coef=jnp.float32(0.0))
        without = loss_of(with_bonus, state._replace(hyper=hyper), rows)[0]
        return float(without - loss_of(with_bonus, state, rows)[0]) / 0.01

    np.testing.assert_allclose(bonus("all"), entropy[np.asarray(rows.is_chosen)].sum(), rtol=2e-3)
    np.testing.assert_allclose(bonus("answer"), entropy[np.asarray(rows.is_answer)].sum(), rtol=2e-3)


@pytest.mark.parametrize("context", ["single_turn", "full"])
def test_parts_of_a_minibatch_give_the_gradient_of_the_whole(context):
    """Parts are read at the lengths of their rows, the whole at that of its longest."""
    setup, state, _, rows = played(context)
    count = rows.chosen.shape[0] // 4 * 4
    order = jnp.argsort(-rows.packed.length)[:count]
    rows = jax.tree.map(lambda x: x[order], rows)
    loss = functools.partial(loss_sum, setup, state.hyper, state.lexicon.prompt)

    @functools.partial(jax.jit, static_argnums=0)
    def gradient(num_parts):
        parts = jax.tree.map(lambda x: x.reshape(num_parts, -1, *x.shape[1:]), rows)
        return batches.mean_gradient(loss, state.params, parts)

    one, four = gradient(1), gradient(4)
    scale = max(float(jnp.abs(x).max()) for x in jax.tree.leaves(one[0]))
    for whole, parts in zip(jax.tree.leaves(one), jax.tree.leaves(four), strict=True):
        np.testing.assert_allclose(parts, whole, rtol=1e-6, atol=1e-6 * max(scale, 1.0))


def test_rows_are_read_at_the_least_length_that_holds_them():
    def lengths(longest, turns):
        before = jnp.zeros((3, turns, 2), jnp.int32)
        packed = PackedRows(jnp.zeros((3, 20), jnp.int32), jnp.array([1, longest, 0]), before)
        return int(batches.at_least_length(packed, lambda rows: jnp.int32(rows.tokens.shape[1])))

    assert [lengths(longest, 3) for longest in (1, 5, 6, 10, 11, 15, 16, 20)] == [5, 5, 10, 10, 15, 15, 20, 20]
    assert [lengths(longest, 1) for longest in (1, 12, 13, 15, 16, 20)] == [12, 12, 15, 15, 20, 20]


def test_a_part_without_a_token_is_skipped():
    """Its loss would be NaN."""
    rows = played()[3]
    parts = jax.tree.map(lambda x: x[:8].reshape(2, 4, *x.shape[1:]), rows)
    parts = parts._replace(is_chosen=parts.is_chosen.at[1].set(False), value=parts.value.at[1].set(jnp.nan))

    def loss(params, part):
        total = (params * part.value).sum()
        return total, {"loss": total}

    gradient, _ = jax.jit(functools.partial(batches.mean_gradient, loss))(jnp.float32(1.0), parts)
    assert np.isfinite(gradient)


def test_rows_are_dealt_out_once_with_the_empty_ones_last():
    lengths = jnp.array([3, 0, 9, 4, 0, 7, 5, 0] * 2)
    dealt = batches.dealt_rows(jax.random.key(0), lengths, num_shards=2, num_minibatches=2)  # [2, 2, 4]
    assert dealt.shape == (2, 2, 4)
    for shard in range(2):
        assert sorted(np.asarray(dealt[:, shard]).reshape(-1)) == list(range(8))
        found = np.asarray(lengths[8 * shard : 8 * shard + 8])[np.asarray(dealt[:, shard])]
        np.testing.assert_array_equal((found > 0).sum(axis=1), [3, 2])
        assert (np.diff(found, axis=1) <= 0).all()  # the long ones first
    keys = jax.random.split(jax.random.key(1), 6)
    others = jax.vmap(lambda key: batches.dealt_rows(key, lengths, 2, 2))(keys)
    assert len({frozenset(row) for row in np.asarray(others)[:, 0, 0]}) > 1  # other rows share a minibatch


@pytest.mark.parametrize("context", ["single_turn", full("full")])
def test_a_separate_critic_reads_the_whole_rows_before_learning(context):
    setup, state, episodes, rows = played(context, critic="separate")
    assert float(jnp.abs(episodes.value).max()) == 0.0
    chosen = np.asarray(rows.is_chosen)
    at_once = jax.jit(functools.partial(read_rows, setup.agent.model))
    _, value = at_once(state.params, state.lexicon.prompt, rows.packed)
    assert float(jnp.std(value[chosen])) > 1e-3
    np.testing.assert_allclose(rows.value[chosen], value[chosen], atol=1e-5)


@pytest.mark.full
def test_tokens_that_were_sampled_at_another_temperature_have_a_ratio_of_one():
    setup, state, _, rows = played(temperature=0.5)
    _, metrics = jax.jit(functools.partial(loss_of, setup))(state, rows)
    assert float(metrics["trainer/approx_kl"]) < 1e-6
    assert float(metrics["trainer/clip_fraction"]) == 0.0
    agent = setup.agent._replace(temperature=1.0)
    _, metrics = jax.jit(functools.partial(loss_of, setup._replace(agent=agent)))(state, rows)
    assert float(metrics["trainer/clip_fraction"]) > 10.0  # tokens: the check above can fail


def test_the_entropy_of_an_answers_token_is_a_mean_over_these_tokens():
    setup, state, _, rows = played()
    setup = setup._replace(settings=setup.settings._replace(epochs=1, num_minibatches=1))
    which = (jnp.arange(rows.chosen.shape[-1]) % 3 == 1)[None, None]
    rows = rows._replace(is_answer=rows.is_chosen & which)
    logits, _ = read_rows(setup.agent.model, state.params, state.lexicon.prompt, rows.packed)
    log_probs = np.asarray(jax.nn.log_softmax(logits), np.float64)
    entropy = -(np.exp(log_probs) * log_probs).sum(axis=-1)
    *_, metrics = jax.jit(functools.partial(token_ppo.optimize, setup))(state, rows)
    expected = entropy[np.asarray(rows.is_answer)].mean()
    np.testing.assert_allclose(metrics["trainer/answer_entropy"], expected, rtol=1e-4)
    assert "trainer/answer_tokens" not in metrics


@pytest.mark.parametrize("critic", [full("stopped"), "separate"])
def test_a_page_shows_the_advantages_that_are_learned_from(critic):
    setup, state, *_ = played(critic=critic)
    state = state._replace(hyper=state.hyper._replace(reward_scale=jnp.float32(0.1)))
    numbers = [float(getattr(state.hyper, name)) for name in ("reward_scale", "gamma", "gae_lambda")]
    keys = jax.random.split(jax.random.key(6), 8 // setup.agent.rules.group_size)
    judge = jax.jit(functools.partial(play_and_judge, setup.agent, *numbers))
    episodes, advantage, _ = judge(state.params, keys, keys)
    plain = setup._replace(settings=setup.settings._replace(standardization="none"))
    rows = jax.jit(functools.partial(compute_rows, plain))(state, episodes)
    assert float(jnp.std(advantage)) > 0.01
    np.testing.assert_allclose(rows.advantage.reshape(advantage.shape), advantage, atol=1e-5)


def test_log_probabilities_that_are_read_again_are_the_sampled_ones():
    for context in ("single_turn", "full"):
        *_, sampled = played(context)
        *_, again = played(context, old_log_probs="recomputed")
        for name in ("log_prob", "value", "advantage"):
            pair = (jnp.where(sampled.is_chosen, getattr(rows, name), 0.0) for rows in (sampled, again))
            np.testing.assert_allclose(*pair, atol=2e-5)


@pytest.mark.parametrize("context", ["single_turn", full("full")])
def test_with_all_tokens_the_world_has_a_loss_too(context):
    """Every token of a row but its first, whose log-probabilities are those of the rows as they were played."""
    setup, state, episodes, rows = played(context, loss_mask="all")
    num_rows = int((np.asarray(rows.packed.length) > 0).sum())
    assert int(rows.is_chosen.sum()) == int(episodes.is_valid.sum()) - num_rows
    by_turn = (*episodes.tokens.shape[:2], -1)
    of_answers = lambda x: np.asarray(x).reshape(by_turn)[..., setup.agent.rules.slots.state :]
    chosen = np.asarray(episodes.is_chosen)
    np.testing.assert_allclose(of_answers(rows.log_prob)[chosen], np.asarray(episodes.log_prob)[chosen], atol=2e-5)
    np.testing.assert_array_equal(of_answers(rows.chosen)[chosen], np.asarray(episodes.chosen)[chosen])
    assert (np.asarray(rows.log_prob)[np.asarray(rows.is_chosen)] < 0.0).all()
    loss, metrics = jax.jit(functools.partial(loss_of, setup))(state, rows)
    assert np.isfinite(float(loss))
    assert float(metrics["trainer/approx_kl"]) < 1e-5


def with_reference(distance, **leaves):
    """(setup, a state with a reference that is so far from its policy, rows that the reference has read)."""
    setup, state, episodes, _ = played(kl_coef=0.5, load_path="base", **leaves)
    policy = state.params._replace(critic=None)
    reference = jax.tree.map(lambda x: x + distance * jnp.sin(jnp.arange(x.size)).reshape(x.shape), policy)
    state = state._replace(reference=reference)
    return setup, state, jax.jit(functools.partial(compute_rows, setup))(state, episodes)


def test_the_divergence_from_a_reference_is_its_estimate_over_the_sampled_tokens():
    setup, state, rows = with_reference(0.05)
    found = jax.jit(functools.partial(loss_of, setup))(state, rows)
    of_none = setup._replace(settings=setup.settings._replace(has_reference=False))
    without = jax.jit(functools.partial(loss_of, of_none))(state, rows)
    chosen = np.asarray(rows.is_chosen)
    distance = np.asarray(rows.reference, np.float64)[chosen] - np.asarray(rows.log_prob, np.float64)[chosen]
    wanted = (np.exp(distance) - 1.0 - distance).sum()  # Schulman's k3 of KL(policy || reference)
    assert wanted > 0.01
    np.testing.assert_allclose(found[1]["trainer/reference_kl"], wanted, rtol=1e-3)
    np.testing.assert_allclose(found[0] - without[0], 0.5 * wanted, rtol=1e-3)
    same = jax.jit(functools.partial(loss_of, setup))(*with_reference(0.0)[1:])
    assert float(same[1]["trainer/reference_kl"]) < 1e-6


def test_ratios_of_negative_advantages_are_bounded():
    """Ye et al. 2020, equation 5, token by token in NumPy."""
    setup, state, _, rows = played(dual_clip=1.5)
    noise = jax.random.normal(jax.random.key(8), rows.log_prob.shape)
    rows = rows._replace(log_prob=jnp.where(rows.is_chosen, rows.log_prob + noise, 0.0))
    _, metrics = jax.jit(functools.partial(loss_of, setup))(state, rows)
    logits, _ = read_rows(setup.agent.model, state.params, state.lexicon.prompt, rows.packed)
    log_probs = np.asarray(jax.nn.log_softmax(logits), np.float64)
    log_prob = np.take_along_axis(log_probs, np.asarray(rows.chosen)[..., None], -1)[..., 0]
    ratio, advantage = np.exp(log_prob - np.asarray(rows.log_prob)), np.asarray(rows.advantage, np.float64)
    low, high = 1.0 - float(state.hyper.clip_eps), 1.0 + float(state.hyper.clip_eps_high)
    gains = np.minimum(ratio * advantage, np.clip(ratio, low, high) * advantage)
    bounded = np.where(advantage < 0.0, np.maximum(gains, 1.5 * advantage), gains)
    chosen = np.asarray(rows.is_chosen)
    assert (bounded != gains)[chosen].sum() > 10
    np.testing.assert_allclose(metrics["trainer/policy_loss"], -bounded[chosen].sum(), rtol=1e-4)


def counts_steps(moments):
    return any(int(x) > 0 for x in jax.tree.leaves(moments) if jnp.issubdtype(x.dtype, jnp.integer))


def test_in_the_first_updates_the_critic_alone_learns():
    setup, state, _, rows = played()
    state = state._replace(hyper=state.hyper._replace(critic_warmup_updates=jnp.float32(1.0)))
    optimize = jax.jit(functools.partial(token_ppo.optimize, setup))
    for step, learns in ((0, False), (1, True)):
        params, optimizer, _ = optimize(state._replace(step=jnp.int32(step)), rows)
        assert counts_steps(optimizer.critic)
        assert counts_steps(optimizer.actor) == learns  # else its first steps would be larger than the rate
        for part, changes in (("torso", learns), ("critic", True)):
            before, after = (jax.tree.leaves(getattr(of, part)) for of in (state.params, params))
            assert any((one != other).any() for one, other in zip(before, after, strict=True)) == changes
