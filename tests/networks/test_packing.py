"""The BinPack network: symmetry, order of the logits, masks, and what the value sees. On real observations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like.networks.heads import PairHead
from stoix_like.networks.packing import packing_tokens
from stoix_like.types import Observation

EMS, ITEMS = 40, 20
FILL = np.finfo(np.float32).min
NETWORKS = [
    pytest.param({"num_heads": 2}, id="separate"),
    full({"shared_torso": True}, id="shared"),
    full({"num_layers": 2}, id="two_blocks"),
]


@pytest.fixture(scope="module", params=NETWORKS)
def trained(request, prepared):
    """(jitted actor_critic, params) with the small policy head enlarged, so that differences show in float32."""
    _, params, forward, _ = prepared("binpack", **request.param)
    params = jax.tree.map(lambda x: x, params)  # new containers: the originals are shared between tests
    head = params.actor["params"] if params.torso is not None else params.actor["params"]["head"]
    head["items"]["Dense_0"]["kernel"] *= 100.0
    head["pair_score"] *= 100.0
    return forward, params


def changed(observation, mask=None, **fields):
    view = {**observation.agent_view, **fields}
    return Observation(view, observation.action_mask if mask is None else mask)


def pairs(x):
    return x.reshape(-1, EMS, ITEMS)


def test_permuting_the_sets_permutes_logits_and_keeps_the_value(trained, binpack):
    forward, params = trained
    ems_order = jax.random.permutation(jax.random.key(1), EMS)
    item_order = jax.random.permutation(jax.random.key(2), ITEMS)
    view, take_ems, take_items = binpack.agent_view, lambda x: x[:, ems_order], lambda x: x[:, item_order]
    permuted = changed(
        binpack,
        pairs(binpack.action_mask)[:, ems_order][:, :, item_order].reshape(-1, EMS * ITEMS),
        ems=jax.tree.map(take_ems, view["ems"]),
        ems_mask=take_ems(view["ems_mask"]),
        **{name: jax.tree.map(take_items, view[name]) for name in ("items", "items_mask", "items_placed")},
    )
    logits, value = forward(params, binpack)
    new_logits, new_value = forward(params, permuted)
    assert np.std(logits[binpack.action_mask]) > 0.01  # otherwise the comparison would prove nothing
    # Only the order of float32 sums over at most 40 terms of order one differs.
    np.testing.assert_allclose(pairs(new_logits), pairs(logits)[:, ems_order][:, :, item_order], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(new_value, value, rtol=1e-5, atol=1e-5)


def test_logits_are_ems_major(binpack, key):
    """Entry e * I + i is what the head says of space e and item i alone."""
    k = jax.random.split(key, 4)
    tokens = packing_tokens(binpack)._replace(
        places=None,
        ems=jax.random.normal(k[0], (6, EMS, 4)),
        items=jax.random.normal(k[1], (6, ITEMS, 4)),
        pairs=jax.random.normal(k[2], (16, 6, EMS, ITEMS)),
    )
    head = PairHead()
    params = jax.jit(head.init)(k[3], tokens)
    logits = head.apply(params, tokens)
    for e, i in ((0, 1), (1, 0), (3, 7), (39, 19)):
        pair = tokens._replace(
            ems=tokens.ems[:, e : e + 1],
            items=tokens.items[:, i : i + 1],
            pairs=tokens.pairs[:, :, e : e + 1, i : i + 1],
        )
        rounding = 1e-6  # sums of 4 and of 16 products, all below 0.1
        np.testing.assert_allclose(logits[:, e * ITEMS + i], head.apply(params, pair)[:, 0], atol=rounding)
    assert logits.std() > 0.003


def test_a_placed_item_changes_the_value_alone(trained, binpack):
    forward, params = trained
    placed = binpack.agent_view["items_mask"] & binpack.agent_view["items_placed"]
    item = int(np.argmax(np.asarray(placed[0])))
    assert placed[0, item]
    items = binpack.agent_view["items"]
    smaller = items._replace(x_len=items.x_len.at[0, item].mul(0.5))
    before, after = (forward(params, changed(binpack, items=i)) for i in (items, smaller))
    np.testing.assert_array_equal(before[0], after[0])
    assert before[1][0] != after[1][0]
    nothing_placed = jnp.zeros_like(binpack.agent_view["items_placed"])
    assert jnp.all(forward(params, binpack)[1] != forward(params, changed(binpack, items_placed=nothing_placed))[1])


def test_all_pairs_of_spaces_without_a_place_have_one_score_that_is_learned(binpack, prepared):
    """20 spaces in which an item fits: the last 4 have no place among 16."""
    network, params, _, _ = prepared("binpack", num_heads=2)
    legal = jnp.zeros((6, EMS, ITEMS), bool).at[:, :20, :5].set(True)
    crowded = changed(binpack, legal.reshape(6, -1))
    head = params.actor["params"]["head"] | {"other_spaces": jnp.float32(0.7)}
    params = params._replace(actor={"params": params.actor["params"] | {"head": head}})

    def log_probability(params):
        logits = network.actor(params, crowded)
        return jax.nn.log_softmax(logits)[:, 17 * ITEMS].sum(), logits

    gradient, logits = jax.jit(jax.grad(log_probability, has_aux=True))(params)
    others = pairs(logits)[:, 16:20, :5]
    np.testing.assert_array_equal(others, np.full(others.shape, np.float32(0.7)))
    assert np.unique(pairs(logits)[0, :16, :5]).size > 20  # absent spaces are alike
    probability = jax.nn.softmax(logits)
    # d log p_i / dx of the score x that 20 pairs share is 1 less their probability; float32 of order one
    expected = (1.0 - pairs(probability)[:, 16:20].sum(axis=(1, 2))).sum()
    np.testing.assert_allclose(gradient.actor["params"]["head"]["other_spaces"], expected, rtol=1e-4)


def test_what_is_masked_out_is_not_read(trained, binpack):
    forward, params = trained
    view = binpack.agent_view
    garbage = lambda name: jax.tree.map(lambda x: jnp.where(view[f"{name}_mask"], x, 0.37), view[name])
    assert not view["ems_mask"].all()
    before, after = (
        forward(params, o) for o in (binpack, changed(binpack, ems=garbage("ems"), items=garbage("items")))
    )
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_a_space_in_which_nothing_fits_is_not_read(binpack, prepared):
    _, params, forward, _ = prepared("binpack", num_heads=2)
    mask = pairs(binpack.action_mask).at[:, 0].set(False).reshape(-1, EMS * ITEMS)
    ems = binpack.agent_view["ems"]
    moved = ems.replace(x2=ems.x2.at[:, 0].multiply(0.5))
    assert binpack.agent_view["ems_mask"][:, 0].all()
    before, after = forward(params, changed(binpack, mask)), forward(params, changed(binpack, mask, ems=moved))
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_one_pair_and_the_summary_are_read_by_hand(binpack):
    """One legal pair (space 3, item 7): that space has the first place, and both have one partner."""
    mask = jnp.zeros((6, EMS * ITEMS), bool).at[:, 3 * ITEMS + 7].set(True)
    tokens = packing_tokens(changed(binpack, mask))
    np.testing.assert_array_equal(tokens.ems[:, 0, 1], binpack.agent_view["ems"].x2[:, 3])
    assert not tokens.ems[:, 1:].any()
    np.testing.assert_allclose(tokens.ems[:, 0, 10], 1 / ITEMS, rtol=1e-6)  # the share of items that fit
    assert np.flatnonzero(tokens.items[0, :, 4] > 0).tolist() == [7]
    np.testing.assert_allclose(tokens.items[0, 7, 4], 1 / 16, rtol=1e-6)  # of 16 places
    # the summary by hand
    view, fits = binpack.agent_view, pairs(np.asarray(binpack.action_mask))[2]
    mask, placed = np.asarray(view["items_mask"][2]), np.asarray(view["items_placed"][2])
    volume = np.prod([np.asarray(edge[2], np.float64) for edge in view["items"]], axis=0)
    expected = [
        fits.any(axis=1).sum() / 16,
        np.sum(mask & ~placed) / ITEMS,
        fits.sum() / (16 * ITEMS),
        volume[mask & placed].sum(),
        volume[mask & ~placed].sum(),
    ]
    assert expected[3] > 0.0
    np.testing.assert_allclose(packing_tokens(binpack).summary[2], expected, rtol=1e-5)


def extreme(name, binpack):
    view, nothing = binpack.agent_view, jnp.zeros_like(binpack.action_mask)
    if name == "all masked":
        names = ("ems_mask", "items_mask", "items_placed")
        return changed(binpack, nothing, **{n: jnp.zeros_like(view[n]) for n in names})
    if name == "one legal":
        return changed(binpack, nothing.at[:, 45].set(True))
    return changed(binpack, nothing, items_placed=view["items_mask"])


@pytest.mark.parametrize("leaves", [{}, full({"compute_dtype": "bfloat16"})])
def test_extreme_masks_stay_finite(leaves, binpack, prepared):
    network, params, _, _ = prepared("binpack", **leaves)

    @jax.jit
    @functools.partial(jax.grad, has_aux=True)
    def gradient_and_outputs(params, observation):
        logits, value = network.actor_critic(params, observation)
        return jax.nn.logsumexp(logits, axis=-1).sum() / 1e30 + jnp.sum(value**2), (logits, value)

    for name in ("all masked", "one legal", "all placed"):
        observation = extreme(name, binpack)
        outputs = gradient_and_outputs(params, observation)
        assert all(bool(jnp.all(jnp.isfinite(x))) for x in jax.tree.leaves(outputs)), name
        logits, value = outputs[1]
        assert (logits.dtype, value.dtype) == (jnp.float32, jnp.float32)
        np.testing.assert_array_equal(np.asarray(logits) == FILL, ~np.asarray(observation.action_mask), name)
