"""The baselines: legal, uniform, and largest item in the smallest space, against a loop in Python."""

import jax
import jax.numpy as jnp
import numpy as np

import stoix_like as sl
from stoix_like.evaluation import baselines


def test_the_greedy_packer_equals_a_loop_over_all_pairs():
    env = sl.make_env("BinPack-v2", kwargs={"max_num_items": 6, "max_num_ems": 10, "obs_num_ems": 10})
    state, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 8))
    for _ in range(2):
        observation = timestep.observation
        chosen = np.asarray(baselines.largest_item_first(None, state, observation, jax.random.key(0), True))
        view = jax.tree.map(np.asarray, observation.agent_view)
        mask = np.asarray(observation.action_mask).reshape(8, 10, 6)
        for n, action in enumerate(chosen):
            e, i = divmod(int(action), 6)
            assert mask[n, e, i]
            items, ems = view["items"], view["ems"]
            volume = items.x_len[n] * items.y_len[n] * items.z_len[n]
            room = (ems.x2[n] - ems.x1[n]) * (ems.y2[n] - ems.y1[n]) * (ems.z2[n] - ems.z1[n])
            pairs = [(-volume[b], room[a], a, b) for a in range(10) for b in range(6) if mask[n, a, b]]
            assert (-volume[i], room[e]) == min(pairs)[:2]
        state, timestep = jax.jit(jax.vmap(env.step))(state, jnp.asarray(chosen))


def test_random_legal_is_uniform_over_the_legal_actions():
    mask = jnp.array([[True, False, True, True]])
    observation = sl.Observation({}, jnp.broadcast_to(mask, (30_000, 4)))
    actions = baselines.random_legal(None, None, observation, jax.random.key(0), True)
    np.testing.assert_allclose(jnp.bincount(actions, length=4) / 30_000, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.012)
