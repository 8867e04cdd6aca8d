"""What evaluations and drawings make of a world with held-out levels and a text."""

import jax
import numpy as np
from PIL import Image

import stoix_like as sl
from stoix_like.runtime.evaluators.record import record_episode
from stoix_like.runtime.evaluators.scores import make_levels
from stoix_like.runtime.figures.gif import save_gif


def test_frozen_sets_and_recorded_episodes_have_held_out_levels_and_the_text_is_drawn(tmp_path):
    """With a time limit around the world, which must pass both on."""
    env = sl.make_env("FrozenLake-text-v0", max_episode_steps=6)
    reset = jax.jit(env.reset)
    left = lambda params, state, observation, key, deterministic: np.zeros(1, np.int32)
    key = jax.random.key(3)
    episode = record_episode(env, left, None, key, deterministic=True)
    level_key, _ = jax.random.split(key)
    expected, other = (jax.jit(r)(level_key)[0].inner.lake for r in (env.evaluation_reset, reset))
    jax.tree.map(np.testing.assert_array_equal, episode.states[0].inner.lake, expected)
    assert not all(jax.tree.leaves(jax.tree.map(lambda a, b: bool((a == b).all()), expected, other)))
    path = save_gif(env, episode.states, tmp_path / "walk")
    with Image.open(path) as image:
        assert image.n_frames in (len(episode.states), len({env.render(jax.device_get(s)) for s in episode.states}))
    frozen = make_levels(env, "frozenlaketext-8", 8)
    open_env = env._replace(held_out=None)
    assert frozen.level_hash != make_levels(open_env, "frozenlaketext-8", 8).level_hash
