"""The level pool: fresh levels, each once, and what stands on the border between two episodes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.asserts import assert_fits_a_scan

from stoix_like.algorithms import rollout
from stoix_like.envs import probes
from stoix_like.envs.auto_reset import auto_pool_size, auto_reset_for, make_auto_reset, refill_batch_size
from stoix_like.envs.time_limit import with_time_limit
from stoix_like.errors import ConfigError
from stoix_like.types import FIRST, LAST


@functools.cache
def tagged(num_envs, pool_size, batch_size, max_length):
    """(auto-reset of the tagged levels, rollout): compiled once for all tests of the same sizes."""
    auto_reset = make_auto_reset(probes.make_tagged_levels(max_length), num_envs, pool_size, batch_size)

    @functools.partial(jax.jit, static_argnames=("length", "refills"))
    def play(states, pool, key, length, refills=True):
        refill_key, step_key = jax.random.split(key)
        pool = auto_reset.refill(pool, refill_key) if refills else pool

        def step(carry, draws):
            states, pool = carry
            actions = jnp.zeros((num_envs,), jnp.int32)
            states, timesteps, pool, reused = auto_reset.step(states, actions, pool, draws)
            return (states, pool), (states, timesteps, reused, pool.stock)

        _, draws = auto_reset.draw(step_key, length)
        (states, pool), history = jax.lax.scan(step, (states, pool), draws)
        return states, pool, history

    return auto_reset, play


def one_step_of(auto_reset, key):
    """The draws of a rollout of one step."""
    return jax.tree.map(lambda x: x[0], auto_reset.draw(key, 1)[1])


def tags(array):
    """Each [2] uint32 tag as one Python integer."""
    words = np.asarray(array).reshape(-1, 2).astype(object)
    return [int(high) << 32 | int(low) for high, low in words]


def key_words(keys):
    return tags(jax.random.key_data(keys))


def test_init_gives_distinct_levels_and_a_full_pool_that_fit_a_scan_carry():
    auto_reset, _ = tagged(8, 50, 16, 8)
    states, timesteps, pool = jax.jit(auto_reset.init)(jax.random.key(0))
    assert int(pool.stock) == 64  # 50 rounded up to whole batches of 16
    assert len(set(tags(states.tag) + tags(pool.states.tag))) == 8 + 64
    assert len(set(key_words(states.key) + key_words(pool.states.key))) == 8 + 64
    assert (timesteps.step_type == FIRST).all()
    for env in (probes.make_tagged_levels(), probes.make_truncated_constant()):
        auto_reset = make_auto_reset(env, 4, 8, 4)
        start = jax.eval_shape(auto_reset.init, jax.random.key(0))
        actions = jax.ShapeDtypeStruct((4,), jnp.int32)
        draws = jax.eval_shape(functools.partial(one_step_of, auto_reset), jax.random.key(0))
        *after, reused = jax.eval_shape(auto_reset.step, start[0], actions, start[2], draws)
        assert_fits_a_scan(start, tuple(after))
        assert (reused.shape, reused.dtype) == ((), jnp.int32)


def test_all_episodes_ending_in_one_step_get_different_levels():
    auto_reset, play = tagged(16, 32, 16, 1)  # every level lasts one step
    states, _, pool = jax.jit(auto_reset.init)(jax.random.key(1))
    after, pool_after, (_, timesteps, reused, _) = play(states, pool, jax.random.key(2), 1)
    assert (timesteps.step_type == LAST).all()
    assert int(reused.sum()) == 0
    assert int(pool_after.stock) == 32 - 16
    assert not set(tags(after.tag)) & set(tags(states.tag))
    assert len(set(tags(after.tag))) == 16
    assert set(tags(after.tag)) == set(tags(pool.states.tag)[16:])  # from the top down


def test_no_level_is_played_twice_and_lengths_are_those_of_resets():
    """Lengths over episode starts, not over steps: with any auto-reset the steps favour long levels."""
    auto_reset, play = tagged(8, 48, 16, 8)
    states, _, pool = jax.jit(auto_reset.init)(jax.random.key(3))
    played, keys, lengths = tags(states.tag), key_words(states.key), []
    for played_rollouts in range(100):
        states, pool, (history, timesteps, reused, _) = play(states, pool, jax.random.key(100 + played_rollouts), 10)
        assert int(reused.sum()) == 0
        ended = np.asarray(timesteps.step_type) == LAST
        played += tags(np.asarray(history.tag)[ended])
        keys += tags(np.asarray(jax.random.key_data(history.key))[ended])
        lengths += np.asarray(history.length)[ended].tolist()
    assert len(played) > 1600  # 100 x 8 x 10 steps of 4.5 steps an episode
    assert len(set(played)) == len(played)
    assert len(set(keys)) == len(keys)
    counts = np.bincount(lengths, minlength=9)[1:]
    assert stats.chisquare(counts).pvalue > 1e-3  # uniform on 1 ... 8 by construction


def test_refill_replaces_what_was_consumed_and_keeps_the_rest():
    auto_reset, _ = tagged(8, 48, 16, 8)
    _, _, pool = jax.jit(auto_reset.init)(jax.random.key(4))
    refill = jax.jit(auto_reset.refill)
    full = refill(pool, jax.random.key(5))
    assert tags(full.states.tag) == tags(pool.states.tag)  # nothing consumed, nothing made
    for stock, expected in ((47, 47), (33, 33), (32, 48), (17, 33), (16, 48), (0, 48)):
        refilled = refill(pool._replace(stock=jnp.int32(stock)), jax.random.key(6))
        assert int(refilled.stock) == expected
        before, after = tags(pool.states.tag), tags(refilled.states.tag)
        assert after[:stock] == before[:stock]  # leftovers carry over
        assert not set(after[stock:expected]) & set(before)
        assert after[expected:] == before[expected:]
        assert len(set(after[:expected])) == expected


def test_reuse_is_counted_exactly_when_stock_is_empty_and_slots_are_then_uniform():
    auto_reset, play = tagged(8, 16, 16, 1)  # eight levels are consumed at every step
    states, _, pool = jax.jit(auto_reset.init)(jax.random.key(7))
    pool = pool._replace(stock=jnp.int32(12))
    _, pool_after, (history, _, reused, stock) = play(states, pool, jax.random.key(8), 4, refills=False)
    assert reused.tolist() == [0, 4, 8, 8]
    assert stock.tolist() == [4, 0, 0, 0]
    assert int(pool_after.stock) == 0
    assert set(tags(history.tag)) <= set(tags(pool.states.tag))
    assert len(set(key_words(history.key))) == 4 * 8  # a level played again still gets its own randomness
    # slots that are used again are uniform
    auto_reset, play = tagged(8, 16, 16, 1)
    states, _, pool = jax.jit(auto_reset.init)(jax.random.key(9))
    pool = pool._replace(stock=jnp.int32(0))
    _, _, (history, _, _, _) = play(states, pool, jax.random.key(10), 500, refills=False)
    slot_of = {tag: slot for slot, tag in enumerate(tags(pool.states.tag))}
    counts = np.bincount([slot_of[tag] for tag in tags(history.tag)], minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_the_border_between_two_episodes():
    auto_reset, play = tagged(8, 48, 16, 8)
    states, first, pool = jax.jit(auto_reset.init)(jax.random.key(14))
    _, _, (history, timesteps, _, _) = play(states, pool, jax.random.key(15), 10)
    tag_before = np.concatenate([states.tag[None], history.tag[:-1]])
    seen, later = (x.observation.agent_view["features"] for x in (first, timesteps))
    view = np.concatenate([seen[None], later])
    ended = np.asarray(timesteps.step_type) == LAST
    assert 0 < ended.sum() < ended.size
    length, steps, fraction = np.moveaxis(view[:-1], -1, 0)  # of the observation acted on
    np.testing.assert_array_equal(ended, steps + 1 == length)
    np.testing.assert_array_equal(timesteps.reward, np.where(ended, fraction, 0.0))  # the finished level's
    np.testing.assert_array_equal(timesteps.discount, np.where(ended, 0.0, 1.0))
    np.testing.assert_array_equal(timesteps.extras["tag"], tag_before)  # the finished level's
    np.testing.assert_array_equal(timesteps.extras["episode_metrics"]["level_length"], length)
    following = view[1:]
    np.testing.assert_array_equal(following[..., 1], np.where(ended, 0, steps + 1))  # the next level's start
    np.testing.assert_array_equal(following[..., 0], history.length)
    assert (history.steps[ended] == 0).all()
    assert "next_obs" not in timesteps.extras


def test_a_rollout_draws_for_restarts_before_its_scan():
    """The policy here draws nothing, and neither does the environment, so the scan's body must not either."""
    auto_reset = make_auto_reset(probes.make_tagged_levels(8), 8, 16, 8)

    def play(key):
        def act(_state, _observation, _key):
            return jnp.zeros((8,), jnp.int32), ()

        return rollout.collect(auto_reset, act, rollout.start(auto_reset, key), key, key, 5)

    program = jax.make_jaxpr(play)(jax.random.key(0))
    (scan,) = [equation for equation in program.eqns if equation.primitive.name == "scan"]
    assert "random_bits" in str(program)
    assert "random_" not in str(scan.params["jaxpr"])


def test_next_obs_is_the_true_final_observation():
    env = with_time_limit(probes.make_tagged_levels(8), 3)
    auto_reset = make_auto_reset(env, 8, 16, 8)
    states, first, pool = jax.jit(auto_reset.init)(jax.random.key(16))
    assert first.extras["next_obs"].action_mask.shape == (8, 1)
    step, draw = jax.jit(auto_reset.step), jax.jit(functools.partial(one_step_of, auto_reset))
    seen = np.asarray(first.observation.agent_view["features"])
    num_truncated = 0
    for index in range(6):
        states, timesteps, pool, _ = step(states, jnp.zeros((8,), jnp.int32), pool, draw(jax.random.key(index)))
        final = np.asarray(timesteps.extras["next_obs"].agent_view["features"])
        np.testing.assert_array_equal(final, seen + np.array([0.0, 1.0, 0.0]))  # the same level, one step on
        num_truncated += int((timesteps.last() & (timesteps.discount == 1)).sum())
        np.testing.assert_array_equal(timesteps.discount == 0, final[:, 0] == final[:, 1])
        seen = np.asarray(timesteps.observation.agent_view["features"])
        np.testing.assert_array_equal(seen[:, 1] == 0, timesteps.last())
    assert num_truncated > 5


@pytest.mark.parametrize(
    ("num_envs", "rollout_length", "batch", "size"),
    [
        # A refill may stop one short of a batch, so there is room for batch - 1 more than must be in stock.
        (4, 16, 32, 96),  # one level per step: 64 + 31, rounded up
        (64, 128, 64, 4160),  # a quarter would be 2048
        (1024, 128, 1024, 33792),  # 32768 + 1023
        (1024, 10, 1024, 5120),  # 1024 x 3 = 3072, so 4096 + 1023
        (1500, 10, 1024, 6144),  # 1500 x 3 + 1023 = 5523
    ],
)
def test_automatic_sizes(num_envs, rollout_length, batch, size):
    assert refill_batch_size(num_envs) == batch
    assert auto_pool_size(num_envs, rollout_length) == size


def test_pool_size_auto_by_number_and_below_one():
    env = probes.make_constant_reward()
    for pool_size, expected in (("auto", 96), (10, 10), (100, 128)):
        auto_reset = auto_reset_for(env, 4, 16, pool_size)
        _, _, pool = jax.eval_shape(auto_reset.init, jax.random.key(0))
        assert pool.observations.action_mask.shape == (expected, 1)
    with pytest.raises(ConfigError, match="pool_size = 0"):
        make_auto_reset(probes.make_constant_reward(), 4, 0, 4)


@pytest.mark.parametrize(("num_envs", "length", "needed"), [(64, 128, 8256), (8, 16, 160)])
def test_levels_whose_randomness_cannot_be_replaced_are_never_played_twice(num_envs, length, needed):
    """One for every step, whole batches of at least 32, and one batch that a refill may leave out."""
    dice = probes.make_tagged_levels()._replace(rekey=None, deterministic=False, task_id="dice")
    pool = jax.eval_shape(auto_reset_for(dice, num_envs, length).init, jax.random.key(0))[2]
    assert pool.observations.action_mask.shape[0] == needed
    with pytest.raises(ConfigError, match="a level of dice that is played twice repeats its randomness") as caught:
        auto_reset_for(dice, num_envs, length, needed - 1)
    assert f"ask for {needed:,}" in caught.value.hint
    for harmless in (dice._replace(deterministic=True), dice._replace(rekey=lambda state, key: state)):
        assert auto_reset_for(harmless, num_envs, length, 32)
