"""The BinPack that is trained on against Jumanji's, bit by bit over whole episodes, and its pieces by hand."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full, quick

from stoix_like.envs import binpack, registry
from stoix_like.envs.binpack import Boxes, largest_first, update_spaces
from stoix_like.evaluation import parity
from stoix_like.evaluation.baselines import largest_item_first, random_legal

#: Few slots, so that they overflow often; the task as registered; rust_rl's generator.
SIZES = {
    "10 items, 20 EMS": ("BinPack-v2", {"max_num_items": 10, "max_num_ems": 20, "obs_num_ems": 20}),
    "20 items, 12 EMS": ("BinPack-v2", {"max_num_items": 20, "max_num_ems": 12, "obs_num_ems": 12}),
    "as registered": ("BinPack-v2", {}),
    "30 items, 10 of 40 EMS shown": ("BinPack-v2", {"max_num_items": 30, "max_num_ems": 40, "obs_num_ems": 10}),
    "BinPack-v0": ("BinPack-v0", {}),
}

FULL = lambda state: state.ems_mask.all()
#: Where spaces run out most often, as the rules that are hard to copy are those for what finds no free slot.
CROWDED = "20 items, 12 EMS"


@functools.cache
def environments(size):
    task_id, kwargs = SIZES[size]
    return [registry.make(task_id, kwargs=kwargs, exact_reference=exact) for exact in (False, True)]


@functools.cache
def compared(size):
    """(is_greedy, level keys) -> comparison of whole episodes, compiled once for both policies."""
    fast, exact = environments(size)

    def compare(is_greedy, levels):
        policy = lambda *asked: jnp.where(is_greedy, largest_item_first(*asked), random_legal(*asked))
        return parity.compare(fast, exact, policy, levels, jax.random.key(1), FULL)

    return jax.jit(compare)


def levels_of(seed):
    return jax.random.split(jax.random.key(seed), 100)


@pytest.mark.parametrize("size", quick(SIZES, [CROWDED]))
@pytest.mark.parametrize("is_greedy", [False, full(True)])
def test_random_and_greedy_episodes_are_jumanjis_bit_by_bit(size, is_greedy):
    found = compared(size)(is_greedy, levels_of(0))
    assert found.different_leaves() == {}
    assert int(found.num_steps) >= 600
    if size != "BinPack-v0" and not is_greedy:
        assert int(found.num_watched) > 0  # all slots full: the rule for what finds no free one was at work


def equals_everywhere(sides):
    return lambda a, b: jnp.where(a.lower[0].shape[0] == 1, 0, sides(a, b))


FAULTS = {  # name of a function: the faulty one, made of the right one
    "_last_of_overflow": lambda _: lambda candidates, added, count, kept: jnp.int32(0),
    "_sides_inside": equals_everywhere,
    "largest_first": lambda _: lambda values: jnp.arange(values.shape[0]),
}


@pytest.mark.full
@pytest.mark.parametrize("name", FAULTS)
def test_the_comparison_sees_faults(name, monkeypatch):
    """Each planted fault changes some episode. The right steps are ours, which are Jumanji's and compile sooner."""
    task_id, kwargs = SIZES[CROWDED]
    right, _ = environments(CROWDED)  # an environment is traced when it is made: this one without the fault
    monkeypatch.setattr(binpack, name, FAULTS[name](getattr(binpack, name)))
    faulty, keys = registry.make(task_id, kwargs=kwargs), levels_of(0)[:50]
    found = jax.jit(lambda: parity.compare(faulty, right, random_legal, keys, jax.random.key(1), FULL))()
    assert found.different_leaves()


update_in_one_go = jax.jit(update_spaces)


def test_spaces_by_hand_around_an_item_in_the_corner_and_where_one_lies_in_another():
    """A container of 10 x 10 x 10 in slot 1, an item of 4 x 5 x 6 at the origin; what is left lies above it."""
    three = lambda *values: tuple(jnp.array(v, jnp.int32) for v in values)
    spaces = Boxes(three([7, 0, 0, 0], [7, 0, 0, 0], [7, 0, 0, 0]), three([8, 10, 0, 0], [8, 10, 0, 0], [8, 10, 0, 0]))
    item = Boxes(three(0, 0, 0), three(4, 5, 6))
    new, mask = update_in_one_go(spaces, jnp.array([False, True, False, False]), item)
    assert mask.tolist() == [True, True, True, False]
    corners = [[x.tolist() for x in corner] for corner in new]
    assert corners[0] == [[4, 0, 0, 0], [0, 5, 0, 0], [0, 0, 6, 0]]  # x, y, z of the lower corners, slot by slot
    assert corners[1] == [[10, 10, 10, 0], [10, 10, 10, 0], [10, 10, 10, 0]]
    # Two overlapping spaces; of the one that is cut, the part above the item lies in the other and is not added.
    nothing, end = [0, 0, 0, 0], [10, 10, 0, 0]
    spaces = Boxes(three([0, 4, 0, 0], nothing, nothing), three(end, end, end))
    item = Boxes(three(0, 0, 0), three(4, 10, 10))
    new, mask = update_in_one_go(spaces, jnp.array([True, True, False, False]), item)
    assert mask.tolist() == [False, True, False, False]
    assert [x[1].item() for corner in new for x in corner] == [4, 0, 0, 10, 10, 10]


@pytest.mark.parametrize("size", [7, 40, 300])
def test_largest_first_is_a_stable_argsort(size):
    """With ties, negative zeros, and more values than a byte counts."""
    values = np.random.default_rng(0).integers(0, 5, size).astype(np.float32) * np.float32(1e9)
    values[::3] *= -0.0
    assert largest_first(jnp.asarray(values)).tolist() == np.argsort(-values, kind="stable").tolist()


def test_both_compile_to_different_programs():
    """`exact_reference` is not ignored: only Jumanji's own step loops over 240 insertions."""
    lengths = []
    for env in environments("as registered"):
        state, _ = jax.eval_shape(env.reset, jax.random.key(0))
        program = str(jax.make_jaxpr(env.step)(state, jnp.int32(0)))
        lengths.append(len(re.findall(r"\blength=40\b", program)))
    assert lengths == [0, 6]
