"""Level sets: frozen, of one task, apart from training. Baselines: legal, uniform, greedy as a loop in Python."""

import itertools
from collections import namedtuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stoix_like as sl
from stoix_like.errors import ConfigError
from stoix_like.evaluation import baselines, levels
from stoix_like.types import role_key


def _words(keys):
    return {tuple(words) for words in np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()}


def _reset(task, keys, **kwargs):
    return jax.jit(jax.vmap(sl.make_env(task, kwargs=kwargs).reset))(keys)[0]


def test_the_keys_of_a_set_are_frozen_and_shared_with_no_other_nor_a_root_of_training():
    """Written down once: a change of these words is a change of every claim made on the set."""
    words = np.asarray(jax.random.key_data(sl.level_set("maze-2048", "Maze-v0").keys))
    assert words.shape == (2048, 2)
    assert words[[0, 2047]].tolist() == [[2503182643, 3528701566], [1095288154, 2290431758]]
    small, large = (sl.level_set(name, "Maze-v0").keys for name in ("maze-16", "maze-64"))
    np.testing.assert_array_equal(jax.random.key_data(small), jax.random.key_data(large)[:16])
    maze = _words(sl.level_set("maze-2048", "Maze-v0").keys)
    binpack = _words(sl.level_set("binpack-2048", "BinPack-v2").keys)
    assert (len(maze), len(binpack)) == (2048, 2048)
    assert not maze & binpack
    # The root of a run is `key(seed)`, whose first word is 0.
    assert not any(first == 0 for first, _ in maze | binpack)
    assert all(first == 0 for first, _ in _words(jax.vmap(jax.random.key)(jnp.array([0, 1, 2**31 - 1]))))


@pytest.mark.parametrize(
    ("name", "task", "digits"), [("maze-16", "Maze-v0", "3046d9e1663b"), ("binpack-16", "BinPack-v2", "01b09838d772")]
)
def test_the_levels_of_a_set_are_frozen(name, task, digits):
    assert levels.fingerprint(_reset(task, sl.level_set(name, task).keys)) == digits


def test_no_level_of_training_or_fresh_evaluation_is_in_a_set():
    """Levels that say which key made them: those of 32 seeds, in the environments and in stock, and of evaluations."""
    env = sl.make_env("probe/tagged_levels")
    config = sl.ppo_config(num_envs=16, rollout_length=4, num_minibatches=1, hidden_dim=8)
    learner = sl.ppo.make(env, sl.make_network(env, config), config)
    roots = jax.vmap(jax.random.key)(jnp.arange(32))
    states, _ = jax.jit(jax.vmap(lambda key: learner.update(learner.init(key))))(roots)
    trained = _words(jax.random.wrap_key_data(states.rollout.env_state.tag))
    trained |= _words(jax.random.wrap_key_data(states.rollout.pool.states.tag))
    evaluated = set()
    for seed in range(4):
        for update in (0, 20):
            level_key, _ = jax.random.split(role_key(jax.random.key(seed), "evaluation", update))
            evaluated |= _words(jax.random.split(level_key, 256))
    frozen = set()
    for name, task in (("maze-2048", "Maze-v0"), ("binpack-2048", "BinPack-v2"), ("taggedlevels-2048", env.task_id)):
        frozen |= _words(sl.level_set(name, task).keys)
    assert len(trained) >= 32 * 16
    assert len(frozen) == 3 * 2048
    assert not frozen & trained
    assert not frozen & evaluated
    assert not trained & evaluated


def test_a_wrong_name_says_what_the_right_ones_are_and_the_name_in_the_hint_is_accepted():
    for name in ("binpack-16", "maze", "maze-0", "maze-08", "maze-x", "Maze-16", "maze-16-2", ""):
        with pytest.raises(ConfigError) as caught:
            sl.level_set(name, "Maze-v0")
        assert caught.value.what == f"evaluation.level_set: '{name}' is not a level set of Maze-v0"
        assert caught.value.hint == "its sets are named maze-<number of levels>, for example maze-2048"
    for task in ("BinPack-v0", "RubiksCube-partly-scrambled-v0", "Game2048-v1", "probe/tagged_levels"):
        with pytest.raises(ConfigError) as caught:
            sl.level_set("nothing-1", task)
        suggested = caught.value.hint.rsplit(" ", 1)[1]
        assert sl.level_set(suggested, task).keys.shape == (2048,)


def test_the_fingerprint_sees_levels_and_their_order_but_not_the_last_bits_of_floats():
    states = _reset("probe/tagged_levels", jax.random.split(jax.random.key(0), 16))
    digits = levels.fingerprint(states)
    assert digits == levels.fingerprint(jax.tree.map(jnp.array, states))
    assert digits != levels.fingerprint(jax.tree.map(lambda x: x[::-1], states))
    assert digits != levels.fingerprint(jax.tree.map(lambda x: x[:-1], states))
    assert digits != levels.fingerprint(states._replace(length=states.length.at[3].add(1)))
    floats = {"levels": states, "value": jnp.float32(0.1)}
    assert levels.fingerprint(floats) == levels.fingerprint(floats | {"value": jnp.nextafter(jnp.float32(0.1), 1.0)})


Item = namedtuple("Item", "x_len y_len z_len")
Space = namedtuple("Space", "x1 x2 y1 y2 z1 z2")


def test_the_greedy_packer_equals_a_loop_over_all_pairs_and_random_legal_is_uniform():
    """Spaces and items as BinPack shows them, of few lengths, so that there are ties; one pair in four is legal."""
    rng, num_spaces, num_items = np.random.default_rng(0), 10, 6
    lengths = lambda num: rng.integers(1, 4, (64, num)).astype(np.float32) / 4
    items = Item(*(lengths(num_items) for _ in range(3)))
    lower, edges = ([lengths(num_spaces) for _ in range(3)] for _ in range(2))
    ems = Space(*itertools.chain.from_iterable((x, x + edge) for x, edge in zip(lower, edges, strict=True)))
    mask = rng.random((64, num_spaces, num_items)) < 0.25
    mask[:, 3, 4] = True
    view = {"items": items, "ems": ems}
    observation = sl.Observation(jax.tree.map(jnp.asarray, view), jnp.asarray(mask.reshape(64, -1)))
    chosen = baselines.largest_item_first(None, None, observation, jax.random.key(0), True)
    volume, room = np.prod(items, axis=0), np.prod(edges, axis=0)
    for n, action in enumerate(np.asarray(chosen)):
        e, i = divmod(int(action), num_items)
        assert mask[n, e, i]
        assert (-volume[n, i], room[n, e]) == min((-volume[n, b], room[n, a]) for a, b in np.argwhere(mask[n]))
    # random_legal is uniform over the legal actions
    mask = jnp.array([[True, False, True, True]])
    observation = sl.Observation({}, jnp.broadcast_to(mask, (30_000, 4)))
    actions = baselines.random_legal(None, None, observation, jax.random.key(0), True)
    np.testing.assert_allclose(jnp.bincount(actions, length=4) / 30_000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.012)
