"""The encoding of leaves by type, and the dense network on the tasks it must fit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.networks import build
from stoix_like.networks.vector import encode
from stoix_like.types import ActionSpec, Observation


def test_leaves_are_encoded_by_type():
    """5 = 00101 and -1 = 11111 in five bits of two's complement, lowest first."""
    encoded = encode(jnp.array([[5], [-1]], jnp.int32))
    np.testing.assert_allclose(encoded[:, 0], [np.log(6.0), -np.log(2.0)], rtol=1e-6)
    np.testing.assert_array_equal(encoded[:, 1:], [[1, 0, 1, 0, 0], [1, 1, 1, 1, 1]])
    # floats and booleans keep their values
    np.testing.assert_array_equal(encode(jnp.array([0.25, -3.0])), [[0.25], [-3.0]])
    np.testing.assert_array_equal(encode(jnp.array([[[True], [False]]])), [[1.0, 0.0]])
    # unsigned and small integers do not overflow
    np.testing.assert_allclose(encode(jnp.array([[255]], jnp.uint8))[0, 0], np.log(256.0), rtol=1e-6)
    np.testing.assert_allclose(encode(jnp.array([[-128]], jnp.int8))[0, 0], -np.log(129.0), rtol=1e-6)


@pytest.mark.parametrize("task", [full("maze"), "binpack"])
def test_dense_fits_every_observation(task, key, request):
    observation = request.getfixturevalue(task)
    num_actions = observation.action_mask.shape[1]
    config = ArchitectureConfig(hidden_dim=16, num_layers=3)
    example = jax.tree.map(lambda x: x[0], observation)
    network = build.make(example, ActionSpec(num_actions), config, adapter="dense")
    params = jax.eval_shape(network.init, key, observation)
    logits, value = jax.eval_shape(network.actor_critic, params, observation)
    assert (logits.shape, value.shape) == ((6, num_actions), (6,))
    assert len(params.actor["params"]["torso"]["MLP_0"]) == 3


def test_factored_actions(key):
    """The mask [F, A] keeps factors apart: logits [B, F, A]."""
    observation = Observation(
        {"board": jnp.ones((4, 2, 3), jnp.int8)}, jnp.ones((4, 5, 7), bool).at[1, 2, 3].set(False)
    )
    example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), observation)
    network = build.make(example, ActionSpec(7, num_factors=5), ArchitectureConfig(hidden_dim=8), adapter="dense")
    logits = jax.jit(lambda o: network.actor(network.init(key, o), o))(observation)
    assert logits.shape == (4, 5, 7)
    assert np.flatnonzero(logits == jnp.finfo(jnp.float32).min).tolist() == [1 * 35 + 2 * 7 + 3]
