"""The BinPack network: symmetry, order of the logits, masks, and what the value sees. On real observations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like.networks.heads import PairHead
from stoix_like.networks.packing import raw_tokens
from stoix_like.types import Observation

EMS, ITEMS = 40, 20
FILL = np.finfo(np.float32).min
NETWORKS = [
    pytest.param({"num_heads": 2}, id="separate"),
    pytest.param({"num_heads": 2, "relations": True}, id="relations"),
    full({"relations": True, "shared_torso": True}, id="relations_shared"),
    full({"relations": True, "num_layers": 2}, id="relations_two_blocks"),
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
    if "pair_score" in head:
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


def test_logits_are_ems_major(binpack):
    """Two spaces, all pairs legal, and the head alone: entry e * I + i is the score of item i in space e."""
    tokens = raw_tokens(binpack)
    scale_ems = jnp.arange(1.0, 41.0)[None, :, None]  # token e is (e + 1) times the first, token i (i + 1) times
    scale_items = jnp.arange(1.0, 21.0)[None, :, None]
    tokens = tokens._replace(ems=scale_ems * jnp.ones((1, EMS, 4)), items=scale_items * jnp.ones((1, ITEMS, 4)))
    head = PairHead()
    logits = head.apply(head.init(jax.random.key(0), tokens), tokens)[0]
    for e, i in ((0, 1), (1, 0), (3, 7), (39, 19)):
        factor = (e + 1) * (i + 1)
        rounding = 1e-6 * factor  # of the products that are summed, which are of order `factor`; their sum may be small
        np.testing.assert_allclose(logits[e * ITEMS + i], logits[0] * factor, atol=rounding, rtol=1e-5)


def test_items_without_partners_change_their_own_column_and_placed_ones_the_value(trained, binpack):
    """With no legal pair of its own but marked as left, an item still informs the others; placed, it informs none."""
    forward, params = trained
    placed = binpack.agent_view["items_mask"] & binpack.agent_view["items_placed"]
    item = int(np.argmax(np.asarray(placed[0])))
    assert placed[0, item]
    items = binpack.agent_view["items"]
    bigger = items._replace(x_len=items.x_len.at[0, item].mul(0.5))
    legal = np.asarray(binpack.action_mask[0])
    before, after = (forward(params, changed(binpack, items=i)) for i in (items, bigger))
    np.testing.assert_array_equal(before[0][0][legal], after[0][0][legal])
    assert before[1][0] != after[1][0]  # the placed volume is seen by the value
    # placed items change the value
    nothing_placed = jnp.zeros_like(binpack.agent_view["items_placed"])
    assert jnp.all(forward(params, binpack)[1] != forward(params, changed(binpack, items_placed=nothing_placed))[1])


def test_what_is_masked_out_is_not_read(trained, binpack):
    forward, params = trained
    view = binpack.agent_view
    garbage = lambda name: jax.tree.map(lambda x: jnp.where(view[f"{name}_mask"], x, 0.37), view[name])
    assert not view["ems_mask"].all()
    before, after = (
        forward(params, o) for o in (binpack, changed(binpack, ems=garbage("ems"), items=garbage("items")))
    )
    jax.tree.map(np.testing.assert_array_equal, before, after)


@pytest.mark.full
@pytest.mark.parametrize(("num_layers", "attends"), [(1, False), (2, True)])
def test_ems_attend_to_each_other_in_a_network_of_several_blocks(num_layers, attends, binpack, prepared):
    """A space that no item fits can reach the others only through attention among the EMS."""
    _, params, forward, _ = prepared("binpack", **({"num_layers": num_layers} if num_layers > 1 else {}))
    mask = pairs(binpack.action_mask).at[:, 0].set(False).reshape(-1, EMS * ITEMS)
    ems = binpack.agent_view["ems"]
    moved = ems.replace(x2=ems.x2.at[:, 0].multiply(0.5))
    before, _ = forward(params, changed(binpack, mask))
    after, _ = forward(params, changed(binpack, mask, ems=moved))
    assert bool((before != after).any()) == attends


def test_the_network_with_relations_does_not_read_a_space_in_which_nothing_fits(binpack, prepared):
    _, params, forward, _ = prepared("binpack", num_heads=2, relations=True)
    mask = pairs(binpack.action_mask).at[:, 0].set(False).reshape(-1, EMS * ITEMS)
    ems = binpack.agent_view["ems"]
    moved = ems.replace(x2=ems.x2.at[:, 0].multiply(0.5))
    assert binpack.agent_view["ems_mask"][:, 0].all()
    before, after = forward(params, changed(binpack, mask)), forward(params, changed(binpack, mask, ems=moved))
    jax.tree.map(np.testing.assert_array_equal, before, after)


def test_one_pair_and_the_summary_are_read_by_hand(binpack):
    """One legal pair (space 3, item 7): exactly that space and that item have one partner."""
    mask = jnp.zeros((6, EMS * ITEMS), bool).at[:, 3 * ITEMS + 7].set(True)
    tokens = raw_tokens(changed(binpack, mask))
    assert np.argwhere(tokens.ems[0, :, -1] * binpack.agent_view["ems_mask"][0] > 0).tolist() in ([[3]], [])
    assert np.flatnonzero(tokens.items[0, :, -1] > 0).tolist() == [7]
    np.testing.assert_allclose(tokens.items[0, 7, -1], 1 / 40, rtol=1e-6)
    # the summary by hand
    view = binpack.agent_view
    mask, placed = np.asarray(view["items_mask"][2]), np.asarray(view["items_placed"][2])
    volume = np.prod([np.asarray(edge[2], np.float64) for edge in view["items"]], axis=0)
    expected = [
        np.mean(view["ems_mask"][2]),
        np.sum(mask & ~placed) / ITEMS,
        np.mean(binpack.action_mask[2]),
        volume[mask & placed].sum(),
        volume[mask & ~placed].sum(),
    ]
    assert expected[3] > 0.0
    np.testing.assert_allclose(raw_tokens(binpack).summary[2], expected, rtol=1e-5)


def extreme(name, binpack):
    view, nothing = binpack.agent_view, jnp.zeros_like(binpack.action_mask)
    if name == "all masked":
        names = ("ems_mask", "items_mask", "items_placed")
        return changed(binpack, nothing, **{n: jnp.zeros_like(view[n]) for n in names})
    if name == "one legal":
        return changed(binpack, nothing.at[:, 45].set(True))
    return changed(binpack, nothing, items_placed=view["items_mask"])


@pytest.mark.parametrize(
    "leaves",
    [
        full({}),
        {"compute_dtype": "bfloat16"},
        {"relations": True},
        full({"relations": True, "compute_dtype": "bfloat16"}),
    ],
)
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
