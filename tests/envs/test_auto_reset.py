"""The level pool: fresh levels, each once, and what stands on the border between two episodes."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from support.asserts import assert_fits_a_scan

from stoix_like.envs import auto_reset as auto_reset_module
from stoix_like.envs import probes, registry
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

        def step(carry, key):
            states, pool = carry
            actions = jnp.zeros((num_envs,), jnp.int32)
            states, timesteps, pool, reused = auto_reset.step(states, actions, pool, key)
            return (states, pool), (states, timesteps, reused, pool.stock)

        (states, pool), history = jax.lax.scan(step, (states, pool), jax.random.split(step_key, length))
        return states, pool, history

    return auto_reset, play


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
        *after, reused = jax.eval_shape(auto_reset.step, start[0], actions, start[2], jax.random.key(0))
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
    for rollout in range(100):
        states, pool, (history, timesteps, reused, _) = play(states, pool, jax.random.key(100 + rollout), 10)
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


def handed_out(take_slots=None, num_rollouts=100):
    """Lengths [P, 2] of pairs of levels: (given at one step to neighbours, given in turn to one environment)."""
    with pytest.MonkeyPatch.context() as patch:
        if take_slots:
            tagged.cache_clear()
            patch.setattr(auto_reset_module, "_take_slots", take_slots)
        auto_reset, play = tagged(8, 96, 16, 8)
        states, _, pool = jax.jit(auto_reset.init)(jax.random.key(13))
        at_once, one_after_another, last = [], [], {}
        for rollout in range(num_rollouts):
            states, pool, (history, timesteps, _, _) = play(states, pool, jax.random.key(2000 + rollout), 10)
            lengths, ended = np.asarray(history.length), np.asarray(timesteps.step_type) == LAST
            for length, who in zip(lengths, ended, strict=True):
                given = {env: length[env] for env in np.flatnonzero(who)}
                at_once += itertools.pairwise(given.values())
                one_after_another += [(last[env], new) for env, new in given.items() if env in last]
                last |= given
    if take_slots:
        tagged.cache_clear()
    return np.array(at_once), np.array(one_after_another)


def are_independent(pairs):
    table = np.zeros((8, 8))
    np.add.at(table, tuple(pairs.T - 1), 1)
    return stats.chi2_contingency(table).pvalue > 1e-3


def test_levels_do_not_depend_on_each_other_and_those_handed_out_twice_are_seen():
    """Neither those handed out at the same step, nor those that one environment gets in turn."""
    for pairs in handed_out():
        assert len(pairs) > 400
        assert are_independent(pairs)

    def first_slot_for_all(pool, is_last, key):
        slots, pool, reused = take_slots(pool, is_last, key)
        return jnp.full_like(slots, jnp.max(slots)), pool, reused

    take_slots = auto_reset_module._take_slots
    at_once, _ = handed_out(first_slot_for_all, 30)
    assert not are_independent(at_once)


def test_maze_targets_are_distributed_as_by_plain_reset():
    env = registry.make("Maze-v0", kwargs={"num_rows": 3, "num_cols": 3, "time_limit": 1})
    auto_reset = make_auto_reset(env, 1024, 2048, 512)

    def target(states):
        return 3 * states.target_position.row + states.target_position.col

    @jax.jit
    def run(key):
        plain, _, pool = auto_reset.init(key)  # the first levels are plain resets, not the pool's

        def step(carry, key):
            states, pool = carry
            states, timesteps, pool, reused = auto_reset.step(states, jnp.zeros((1024,), jnp.int32), pool, key)
            return (states, pool), (target(states), timesteps.last(), reused)

        return target(plain), jax.lax.scan(step, (plain, pool), jax.random.split(key, 2))[1]

    plain, (handed_out, is_last, reused) = run(jax.random.key(12))
    assert is_last.all()
    assert int(reused.sum()) == 0
    table = np.stack([np.bincount(np.asarray(cells).ravel(), minlength=9) for cells in (plain, handed_out)])
    assert table.sum(1).tolist() == [1024, 2048]
    assert stats.chi2_contingency(table[:, table.sum(0) > 0]).pvalue > 1e-3


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


def test_next_obs_is_the_true_final_observation():
    env = with_time_limit(probes.make_tagged_levels(8), 3)
    auto_reset = make_auto_reset(env, 8, 16, 8)
    states, first, pool = jax.jit(auto_reset.init)(jax.random.key(16))
    assert first.extras["next_obs"].action_mask.shape == (8, 1)
    step = jax.jit(auto_reset.step)
    seen = np.asarray(first.observation.agent_view["features"])
    num_truncated = 0
    for index in range(6):
        states, timesteps, pool, _ = step(states, jnp.zeros((8,), jnp.int32), pool, jax.random.key(index))
        final = np.asarray(timesteps.extras["next_obs"].agent_view["features"])
        np.testing.assert_array_equal(final, seen + np.array([0.0, 1.0, 0.0]))  # the same level, one step on
        num_truncated += int((timesteps.last() & (timesteps.discount == 1)).sum())
        np.testing.assert_array_equal(timesteps.discount == 0, final[:, 0] == final[:, 1])
        seen = np.asarray(timesteps.observation.agent_view["features"])
        np.testing.assert_array_equal(seen[:, 1] == 0, timesteps.last())
    assert num_truncated > 5


def test_seeds_under_vmap_equal_separate_runs():
    auto_reset, _ = tagged(4, 8, 4, 3)

    def run(key):
        start_key, play_key = jax.random.split(key)
        states, _, pool = auto_reset.init(start_key)

        def rollout(carry, key):
            states, pool = carry
            refill_key, step_key = jax.random.split(key)
            pool = auto_reset.refill(pool, refill_key)

            def step(carry, key):
                states, timesteps, pool, reused = auto_reset.step(carry[0], jnp.zeros((4,), jnp.int32), carry[1], key)
                return (states, pool), (states.tag, timesteps.reward, reused)

            return jax.lax.scan(step, (states, pool), jax.random.split(step_key, 5))

        return jax.lax.scan(rollout, (states, pool), jax.random.split(play_key, 6))[1]

    keys = jax.random.split(jax.random.key(17), 3)
    together = jax.jit(jax.vmap(run))(keys)
    alone = [jax.jit(run)(key) for key in keys]
    jax.tree.map(np.testing.assert_array_equal, together, jax.tree.map(lambda *x: np.stack(x), *alone))
    assert len({int(reused.sum()) for _, _, reused in alone}) > 1  # the seeds consumed different numbers of levels


@pytest.mark.parametrize(
    ("num_envs", "rollout_length", "batch", "size"),
    [
        # A refill may stop one short of a batch, so there is room for batch - 1 more than must be in stock.
        (4, 16, 32, 96),  # one level per step: 64 + 31, rounded up
        (8, 9, 32, 128),  # 72 + 31
        (64, 64, 64, 4160),  # 4096 + 63
        (64, 128, 64, 4160),  # a quarter would be 2048
        (1024, 128, 1024, 33792),  # 32768 + 1023
        (1024, 10, 1024, 5120),  # 1024 x 3 = 3072, so 4096 + 1023
        (3000, 2, 1024, 5120),
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
