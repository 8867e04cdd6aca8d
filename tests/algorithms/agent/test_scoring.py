"""Scores of samples of one level: their chances in the world are their own, and Pass@k needs a success to count."""

import jax
import numpy as np
from support.agents import scripted_speaker, tiny_agent, tiny_config, tiny_world

from stoix_like.algorithms.agent import scoring


def scores(monkeypatch, world, **leaves):
    """{name: [12]} of an agent that always goes right, and eight samples of each of twelve levels."""
    agent, params, _ = tiny_agent(world, **leaves)
    speaker = scripted_speaker(agent, ["</think><answer>Right || Right</answer><|im_end|>"] * 3)
    monkeypatch.setattr(scoring, "model_speaker", lambda *_: speaker)
    items = scoring.make_items(agent, None, 12)
    keys = jax.random.split(jax.random.key(5), 12)
    return jax.device_get(jax.jit(lambda items: scoring.score(agent, 8, params, items, keys))(items))


def test_samples_of_a_level_slip_apart_also_where_groups_of_training_share_their_chances(monkeypatch):
    assert tiny_config().agent.shared_env_noise
    found = scores(monkeypatch, tiny_world(intended_p=0.34))
    assert np.any((found["solve_rate"] > 0) & (found["solve_rate"] < 1))
    np.testing.assert_allclose(found["pass_at_1"], found["solve_rate"], rtol=1e-6)
    assert found["pass_at_8"].mean() > found["pass_at_1"].mean()


def test_a_world_that_does_not_tell_success_has_its_return_for_a_score(monkeypatch):
    world = tiny_world()
    found = scores(monkeypatch, world._replace(env=world.env._replace(episode_metrics=lambda *_: {})))
    assert not any(name.startswith(("pass_at", "solve")) for name in found)
    np.testing.assert_allclose(found["score"], scores(monkeypatch, world)["solve_rate"])
