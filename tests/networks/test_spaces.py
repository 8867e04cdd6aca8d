"""The 16 spaces in which something fits: which they are, where their scores go, and what all others get."""

import jax
import jax.numpy as jnp
import numpy as np
from jumanji.environments.packing.bin_pack.types import EMS, Item

from stoix_like.networks.spaces import NUM_SPACES, scores_of_all, usable_spaces
from stoix_like.types import Observation

EMS_COUNT, ITEMS = 20, 3


def observed(fits):
    """One observation whose spaces have the numbers 0.00, 0.01, ... as coordinates, from legal pairs [E, I]."""
    at = jnp.arange(EMS_COUNT)[None] / 100.0
    view = {
        "ems": EMS(x1=at, x2=at + 1, y1=at + 2, y2=at + 3, z1=at + 4, z2=at + 5),
        "items": Item(*(jnp.ones((1, ITEMS)),) * 3),
        "ems_mask": jnp.ones((1, EMS_COUNT), bool),
        "items_mask": jnp.ones((1, ITEMS), bool),
        "items_placed": jnp.zeros((1, ITEMS), bool),
    }
    return Observation(view, jnp.array(fits).reshape(1, -1))


def legal(*pairs):
    fits = np.zeros((EMS_COUNT, ITEMS), bool)
    fits[tuple(zip(*pairs, strict=True))] = True
    return fits


def test_spaces_without_a_fit_are_left_out_and_the_others_keep_their_order():
    fits = legal((1, 0), (4, 2), (4, 0), (19, 1))
    found, places = jax.jit(usable_spaces)(observed(fits))
    np.testing.assert_array_equal(np.argwhere(places[0]), [[0, 1], [1, 4], [2, 19]])
    np.testing.assert_array_equal(found.agent_view["ems_mask"][0], [True] * 3 + [False] * (NUM_SPACES - 3))
    of_places = found.action_mask.reshape(NUM_SPACES, ITEMS)
    np.testing.assert_array_equal(of_places[:3], fits[[1, 4, 19]])
    assert not of_places[3:].any()
    for n, coordinate in enumerate(("x1", "x2", "y1", "y2", "z1", "z2")):
        np.testing.assert_allclose(
            getattr(found.agent_view["ems"], coordinate)[0, :3], n + np.array([0.01, 0.04, 0.19])
        )


def test_scores_go_back_exactly_to_their_spaces():
    fits = legal(*((e, 0) for e in range(1, EMS_COUNT)))  # 19 spaces: the last three have no place
    _, places = usable_spaces(observed(fits))
    scores = jax.random.normal(jax.random.key(0), (1, NUM_SPACES, ITEMS)) * 1e3
    whole = jax.jit(scores_of_all)(scores, places, jnp.float32(0.37))
    np.testing.assert_array_equal(whole[0, 1:17], scores[0])
    np.testing.assert_array_equal(whole[0, [0, 17, 18, 19]], np.full((4, ITEMS), np.float32(0.37)))


def test_an_observation_of_few_spaces_is_kept_as_it_is():
    observation = observed(legal((2, 1)))
    view = observation.agent_view
    few = view | {"ems": jax.tree.map(lambda x: x[:, :16], view["ems"]), "ems_mask": view["ems_mask"][:, :16]}
    few = Observation(few, observation.action_mask[:, : 16 * ITEMS])
    same, places = usable_spaces(few)
    assert same is few
    assert places is None
    scores = jnp.ones((1, 16, ITEMS))
    assert scores_of_all(scores, places, jnp.float32(5.0)) is scores
