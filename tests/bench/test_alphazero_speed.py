"""The restated network and self-play of pgx's example, and what is timed. Nothing is timed here."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.bench.alphazero import pgx_example, speed
from stoix_like.bench.alphazero.pgx_example import make_resnet
from stoix_like.bench.timing.measure import Timing
from stoix_like.envs.boards.registry import make_game
from stoix_like.types import Observation


def test_the_network_of_the_example_has_its_parameters():
    """Counted from its layers at 6 blocks of 128 channels on 6 x 7 cells, 2 planes and 7 actions."""
    params = jax.eval_shape(lambda: make_resnet().init(jax.random.key(0), (6, 7), 2, 7))
    trained = [
        leaf.size
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        if not {"mean", "variance"} & {getattr(key, "key", None) for key in path}
    ]
    stem, convolution, norm = 9 * 2 * 128 + 128, 9 * 128 * 128 + 128, 2 * 128
    policy = 128 * 2 + 2 + 2 * 2 + 6 * 7 * 2 * 7 + 7
    value = 128 + 1 + 2 + 6 * 7 * 128 + 128 + 128 + 1
    assert sum(trained) == stem + 6 * 2 * (convolution + norm) + norm + policy + value


def random_params(resnet):
    return jax.jit(lambda: resnet.init(jax.random.key(0), (6, 7), 2, 7))()


def test_a_block_is_normalised_before_it_is_convolved_and_the_residual_added():
    """One block of one channel on one cell, by hand: a 3 x 3 kernel sees only its centre there, so the stem makes
    2 x - 1, each norm then halves (variance 4) and cuts at 0, and each convolution of the block triples."""
    resnet = make_resnet(1, 1)
    params = {}
    norm = {"scale": jnp.ones(1), "offset": jnp.zeros(1), "mean": jnp.zeros(1), "variance": jnp.full(1, 4.0)}
    centre = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1.0)
    params["stem"] = (2.0 * centre, -jnp.ones(1))
    params["blocks"] = [{"norms": [norm, norm], "convolutions": [(3.0 * centre, jnp.zeros(1))] * 2}]
    params["norm"] = norm
    one = norm | {"variance": jnp.ones(1)}
    params["policy"] = (jnp.ones((1, 1, 1, 2)), jnp.zeros(2)), one, (jnp.ones((2, 1)), jnp.zeros(1))
    params["value"] = (jnp.ones((1, 1, 1, 1)), jnp.zeros(1)), one, (jnp.ones((1, 1)), jnp.zeros(1))
    params["outcome"] = jnp.full((1, 1), 0.1), jnp.zeros(1)
    logits, values = jax.jit(resnet.apply)(params, jnp.ones((1, 1, 1, 1), bool))
    x = 1.0  # after the stem
    x += 3.0 * (3.0 * x / 2.0) / 2.0  # 3.25
    assert logits[0, 0] == pytest.approx(2.0 * x / 2.0, rel=1e-4)
    assert values[0] == pytest.approx(np.tanh(0.1 * x / 2.0), rel=1e-4)


def test_our_search_sees_the_network_with_the_same_planes_and_both_outcomes():
    resnet = make_resnet(1, 4)
    params = random_params(resnet)
    planes = jax.random.bernoulli(jax.random.key(1), 0.3, (3, 6, 7, 2))
    logits, values = jax.jit(resnet.apply)(params, planes)
    seen = Observation(planes.reshape(3, 42, 2), jnp.ones((3, 7), bool))
    ours = jax.jit(pgx_example.for_our_search(resnet, (6, 7)))(params, seen)
    np.testing.assert_allclose(ours[0], logits, rtol=1e-6)
    np.testing.assert_allclose(ours[1], np.stack([values, -values], axis=1), rtol=1e-6)


@pytest.mark.full
def test_the_example_and_ours_play_positions_of_the_shapes_they_learn_from():
    resnet = make_resnet(1, 4)
    params = random_params(resnet)
    with jax.numpy_rank_promotion("allow"):  # pgx and mctx
        played = jax.jit(pgx_example.make_self_play(resnet, 3, 2, num_simulations=4))(params, jax.random.key(1))
    assert played.observation.shape == (2, 3, 6, 7, 2)
    np.testing.assert_allclose(played.action_weights.sum(axis=-1), 1.0, rtol=1e-5)
    sizes = {"num_envs": 3, "rollout_length": 2, "num_simulations": 4, "batch_size": 4, "random_plies": 0}
    config = speed.preset("connect_four", **sizes)
    evaluate = pgx_example.for_our_search(resnet, (6, 7))
    _, samples, counts, _ = speed.our_self_play(make_game("connect_four"), evaluate, params, config)()
    assert samples.policy.shape == (3 * (42 + 2), 7)
    assert not counts.any()  # no game is over after two plies


def test_repeated_evaluations_are_made_each_time():
    """The flag turns every plane around where values are huge, so the last of three evaluations shows whether the one
    before was seen."""
    seen = []

    def evaluate(observation):
        seen.append(None)
        value = jnp.sum(observation.agent_view, axis=1, dtype=jnp.float32)
        return value[:, None] * 1e31, value[:, None]

    observation = Observation(jnp.ones((1, 2), bool), jnp.ones((1, 1), bool))
    results = [
        bool(speed.repeated_evaluation(lambda _, seen: evaluate(seen), None, observation, times)())
        for times in (1, 2, 3)
    ]
    assert results == [True, False, True]


def test_random_games_begin_again_when_they_end():
    """From 8 stones on tic-tac-toe the ninth ends each game, and it stands empty again."""
    game = make_game("tic_tac_toe")
    play, states = speed.random_play(game, 4, 9)
    states, ended = jax.jit(play)(states, jax.random.key(0))
    assert int(ended) >= 4
    assert not np.asarray(jax.vmap(game.is_over)(states)).any()


def test_rates_are_told_per_position_beside_the_example_and_as_shares_of_the_ceiling():
    timings = {"theirs": Timing(4.0, 0.0), "same network": Timing(2.0, 0.0)}
    timings |= {"preset network": Timing(1.0, 0.0), "preset": Timing(0.5, 0.0)}
    config = speed.preset("connect_four")
    rows = {row.name: row for row in speed._beside_example(timings, 32, 1, config)}
    assert rows["alphazero_example/theirs"].value == 8.0
    assert rows["alphazero_example/same_network"].ratio == 2.0
    assert rows["alphazero_example/preset"].value == pytest.approx(2 * 256 * 32)
    timings = {"network": Timing(1.0, 0.0)} | {str(number): Timing(2.0, 0.0) for number in (16, 32, 64)}
    rows = {row.name: row for row in speed.rows_of_batch("g", 64, timings)}
    assert rows["alphazero_network/g/64"].value == 64 * 64
    assert rows["alphazero_search/g/64x32"].value == 32 * 32
    assert rows["alphazero_search/g/64x32"].share == pytest.approx(1024 / (4096 * 32 / 33))
