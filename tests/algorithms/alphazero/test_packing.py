"""What is kept of positions of a game with many actions comes back, and games are played and learned as without it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.self_play import SETTINGS

from stoix_like.algorithms.alphazero import self_play as playing
from stoix_like.algorithms.alphazero import whole_games
from stoix_like.algorithms.alphazero.learning import unpacked
from stoix_like.algorithms.alphazero.packing import PackedObservation, pack, unpack
from stoix_like.envs.boards.registry import make_game
from stoix_like.envs.boards.tic_tac_toe import make_tic_tac_toe
from stoix_like.types import Observation

GAME = make_tic_tac_toe()
PACKED = GAME._replace(max_legal=9)


def observations(count, seed=0):
    """Planes and legal actions of tic-tac-toe's shapes at random, with at least one legal action, and policies."""
    generator = np.random.default_rng(seed)
    legal = generator.random((count, 9)) < 0.6
    legal[:, 4] |= ~legal.any(axis=1)
    weights = np.where(legal, generator.random((count, 9)) ** 4, 0.0)
    policy = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    shape = jax.eval_shape(lambda: GAME.observe(GAME.init())).agent_view.shape
    return Observation(jnp.asarray(generator.random((count, *shape)) < 0.5), jnp.asarray(legal)), jnp.asarray(policy)


def kl(policy, other):
    """[B] nats, of one distribution from another that is above 0 where it is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(policy > 0, policy * np.log(policy / other), 0.0)
    return terms.sum(axis=1)


def test_other_games_keep_what_they_see():
    observation, policy = observations(3)
    assert pack(GAME, observation, policy) == (observation, policy)
    assert unpack(GAME, observation, policy) == (observation, policy)


def test_planes_and_legal_actions_come_back_and_policies_in_half_precision():
    observation, policy = observations(500)
    kept, weights = jax.jit(functools.partial(pack, PACKED))(observation, policy)
    assert isinstance(kept, PackedObservation)
    assert (kept.planes.dtype, kept.legal.dtype, weights.dtype) == (jnp.uint8, jnp.int16, jnp.float16)
    assert weights.shape == kept.legal.shape == (500, 9)
    for row, mask in zip(np.asarray(kept.legal), np.asarray(observation.action_mask), strict=True):
        assert row.tolist() == [*np.flatnonzero(mask), *[-1] * (9 - mask.sum())]
    found, again = jax.jit(functools.partial(unpack, PACKED))(kept, weights)
    jax.tree.map(np.testing.assert_array_equal, found, observation)
    assert again.dtype == jnp.float32
    np.testing.assert_allclose(again.sum(axis=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(again, policy, rtol=2e-3, atol=1e-7)  # 11 bits, and the sum that they are divided by
    assert kl(np.asarray(again, np.float64), np.asarray(policy, np.float64)).max() < 1e-6


def test_of_more_legal_actions_than_places_the_first_are_kept():
    observation, policy = observations(200)
    kept, weights = pack(GAME._replace(max_legal=3), observation, policy)
    found, again = unpack(GAME._replace(max_legal=3), kept, weights)
    first = np.cumsum(observation.action_mask, axis=1) <= 3
    np.testing.assert_array_equal(found.action_mask, observation.action_mask & first)
    assert (again[~found.action_mask] == 0).all()
    rest = np.asarray(policy * found.action_mask, np.float64)
    total = rest.sum(axis=1, keepdims=True)
    assert (total < 0.9).any()
    rows = total[:, 0] > 0.01  # below, half precision has fewer bits
    np.testing.assert_allclose(again[rows], (rest / total)[rows], rtol=2e-3, atol=1e-5)


def even_search(game, _key, states):
    """Equal weights on the legal actions; the first by a number of the position is taken."""
    legal = jax.vmap(game.legal_actions)(states)
    policy = legal / jnp.sum(legal, axis=1, keepdims=True)
    action = jnp.argmax(legal, axis=1)
    zeros, values = jnp.zeros_like(policy), jnp.zeros((len(legal), 2))
    output = playing.GumbelOutput(action, policy, values, zeros.astype(jnp.int32), zeros, zeros, values, action)
    return output, jnp.bool_(True)


def played(game):
    """Samples of three updates of self-play, and records of whole games."""
    setup = playing.PlaySetup(game, functools.partial(even_search, game), SETTINGS, 1.0)
    state = playing.start(game, SETTINGS, 3, jax.random.key(0))
    play, found = jax.jit(functools.partial(playing.play, setup)), []
    for step in range(3):
        state, samples, counts, _ = play(state, jnp.int32(step), jax.random.key(step))
        found.append((jax.jit(functools.partial(unpacked, game))(samples), counts))
    batch = jax.jit(functools.partial(whole_games.begin, game, SETTINGS, 4, 2))(jax.random.key(0))
    batch = jax.jit(functools.partial(whole_games.advance, setup))(batch, jax.random.key(1), 1000)
    return jax.device_get((found, batch.records))


def test_games_and_samples_are_those_that_are_kept_whole():
    (samples, records), (whole, whole_records) = played(PACKED), played(GAME)
    for (one, counts), (other, other_counts) in zip(samples, whole, strict=True):
        np.testing.assert_array_equal(counts, other_counts)
        rows = np.flatnonzero(counts)
        ours, theirs = (jax.tree.map(lambda x, rows=rows: x[rows], each) for each in (one, other))
        np.testing.assert_allclose(ours.policy, theirs.policy, rtol=2e-3)
        jax.tree.map(np.testing.assert_array_equal, ours._replace(policy=0), theirs._replace(policy=0))
    assert sum(counts.sum() for _, counts in samples) > 8
    for name in ("moves", "num_plies", "outcome", "player"):
        np.testing.assert_array_equal(getattr(records, name), getattr(whole_records, name))
    assert isinstance(records.observation, PackedObservation)


@pytest.mark.full
@pytest.mark.parametrize("name", ["hex8", "square8:4"])
def test_a_position_of_ringrift_takes_less_than_two_kilobytes(name):
    game = make_game(name)
    position = playing.example_position(game)
    size = sum(x.dtype.itemsize * x.size for x in jax.tree.leaves((position.observation, position.policy)))
    assert size < 2304
    observation = jax.tree.map(lambda x: x[None], jax.jit(game.observe)(game.init()))
    policy = observation.action_mask / jnp.sum(observation.action_mask)
    found, again = unpack(game, *pack(game, observation, policy))
    jax.tree.map(np.testing.assert_array_equal, found, observation)
    np.testing.assert_allclose(again, policy, rtol=2e-3)
