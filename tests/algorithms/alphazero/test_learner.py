"""AlphaZero as a Learner: what an update does to its state, seeds side by side, quick searches, counts."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.asserts import assert_same_bits
from support.configs import SMALL_ALPHAZERO

import stoix_like as sl
from stoix_like.errors import ConfigError
from stoix_like.runtime.runs.build import ALGORITHMS, build

SMALL = SMALL_ALPHAZERO | {"task_id": "tic_tac_toe"}


def built(**changes):
    config = sl.alphazero_config(**SMALL | changes)
    return build("alphazero", config), config


@pytest.fixture(scope="module")
def few_updates():
    """(state, [metrics]) of 12 updates."""
    run, _ = built()
    state, rows = jax.jit(run.learner.init)(jax.random.key(0)), []
    update = jax.jit(run.learner.update)
    for _ in range(12):
        state, metrics = update(state)
        rows.append(jax.device_get(metrics))
    return state, rows


def test_what_is_played_is_stored_once_and_learned_from_at_most_four_times(few_updates):
    state, rows = few_updates
    added = sum(row["trainer/samples_added_sum"] for row in rows)
    steps = sum(row["trainer/gradient_steps_sum"] for row in rows)
    assert added + state.self_play.recorded.sum() == 12 * 8 * 4  # every ply, but for those of games on their way
    assert state.replay.size.sum() == min(added, 128)
    assert rows[0]["trainer/gradient_steps_sum"] == 0  # not every shard of the ring has a sample yet
    assert 0 < steps * 8 <= 4 * added
    assert state.budget.samples == pytest.approx(4 * added - 8 * steps)


@pytest.mark.full
def test_the_average_plays_and_the_newest_learns(few_updates):
    state, _ = few_updates
    run, _ = built()
    online, average = state.params
    assert any((a != b).any() for a, b in zip(jax.tree.leaves(online), jax.tree.leaves(average), strict=True))
    env_state, timestep = jax.vmap(run.env.reset)(jax.random.split(jax.random.key(0), 8))
    for policy in (run.learner.policy, run.learner.network_policy):
        act = jax.jit(policy, static_argnums=4)
        actions = act(state.params, env_state, timestep.observation, jax.random.key(0), True)
        changed = state.params._replace(online=jax.tree.map(jnp.zeros_like, online))
        assert_same_bits(actions, act(changed, env_state, timestep.observation, jax.random.key(0), True))
    published = ALGORITHMS["alphazero"].published(state.params)
    assert_same_bits(published, average)
    assert_same_bits(ALGORITHMS["alphazero"].from_published(published).average, average)


def test_paths_that_are_divided_over_devices_exist(few_updates):
    state, _ = few_updates
    run, _ = built()
    for path in run.learner.sharded:
        leaves = jax.tree.leaves(operator.attrgetter(path)(state))
        assert {leaf.shape[0] for leaf in leaves} <= {8}, path  # eight games, eight shards of the ring
    assert set(run.learner.volatile) <= set(state._fields)


@pytest.mark.full  # in the fast tests the searches are, in tests/search/test_gumbel_by_hand.py
def test_seeds_side_by_side_equal_separate_runs():
    run, _ = built(quick_simulations=1)
    keys = jax.vmap(jax.random.key)(jnp.arange(2))
    together = jax.jit(jax.vmap(run.learner.init))(keys)
    update = jax.jit(jax.vmap(run.learner.update))
    for _ in range(4):
        together, _ = update(together)
    for seed in range(2):
        alone = jax.jit(run.learner.init)(jax.random.key(seed))
        for _ in range(4):
            alone, _ = jax.jit(run.learner.update)(alone)
        own = jax.tree.map(lambda x, s=seed: x[s], (together.self_play.games, together.replay.size))
        assert_same_bits(own, (alone.self_play.games, alone.replay.size))
        close = lambda a, b, s=seed: np.testing.assert_allclose(a[s], b, rtol=1e-3, atol=1e-4)
        jax.tree.map(close, together.params, alone.params)


@pytest.mark.full
def test_quick_searches_take_turns_with_full_ones():
    run, config = built(quick_simulations=1)
    settings, game = sl.alphazero.settings_of(config), run.env.game
    model = sl.gumbel.GameModel(game, run.network.actor_critic)
    state = jax.jit(run.learner.init)(jax.random.key(0))

    @jax.jit
    def searched(key):
        found, is_full = sl.alphazero.self_play_search(model, settings, state.params.average)(
            key, state.self_play.games
        )
        return found.visits.sum(axis=1), is_full

    visits, is_full = jax.lax.map(searched, jax.random.split(jax.random.key(1), 400))
    expected = np.where(is_full, settings.search.num_simulations, 1)
    np.testing.assert_array_equal(visits, np.broadcast_to(expected[:, None], visits.shape))
    assert abs(is_full.mean() - 0.25) < 4 * (0.25 * 0.75 / 400) ** 0.5


def test_an_environment_in_the_place_of_its_game_is_refused():
    run, config = built()
    with pytest.raises(ConfigError) as caught:
        sl.alphazero.make(run.env, run.network, config)
    assert caught.value.hint == "give env.game"


def test_counts_come_from_the_table():
    _, config = built()
    algorithm = ALGORITHMS["alphazero"]
    assert algorithm.steps_per_update(config) == 32
    assert algorithm.samples_per_update(config) == 128
    further = algorithm.further_envs(built()[0].env, sl.alphazero_config(**SMALL | {"anchors": "random, heuristic"}))
    assert list(further) == ["vs_heuristic"]  # random is the main opponent already
