"""Mazes and BinPack instances made quickly against Jumanji's own, bit by bit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jumanji.environments.packing.bin_pack.generator import RandomGenerator as BinPackGenerator
from jumanji.environments.routing.maze.generator import RandomGenerator as MazeGenerator
from support.asserts import key_data
from support.marks import full, quick

from stoix_like.envs import binpack_levels, maze_levels, registry
from stoix_like.envs.binpack_levels import FastBinPackGenerator
from stoix_like.envs.maze_levels import FastMazeGenerator

NUM_LEVELS = 500
MAZES = [(10, 10), (5, 5), (7, 12), (3, 20), (21, 20), (2, 2), (1, 5), (6, 2)]
INSTANCES = {
    "as registered": {"max_num_items": 20, "max_num_ems": 40},
    "10 items": {"max_num_items": 10, "max_num_ems": 20},
    "30 items": {"max_num_items": 30, "max_num_ems": 40},
    "300 items, more than a byte counts": {"max_num_items": 300, "max_num_ems": 4},
    "BinPack-v0": {
        "max_num_items": 20,
        "max_num_ems": 40,
        "split_eps": 0.001,
        "prob_split_one_item": 0.3,
        "split_num_same_items": 1,
    },
    "equal ones only": {"max_num_items": 20, "max_num_ems": 40, "prob_split_one_item": 0.0, "split_num_same_items": 7},
    "so small that items vanish": {"max_num_items": 16, "max_num_ems": 40, "container_dims": (6, 7, 5)},
    "not split at all": {"max_num_items": 4, "max_num_ems": 40},
}


#: The others stand between these: the size of the task, and items that vanish.
QUICK = {(10, 10), "so small that items vanish"}


def make(generator, seed=0, num_levels=NUM_LEVELS, impl=None):
    keys = jax.random.split(jax.random.key(seed, impl=impl), num_levels)
    with jax.numpy_rank_promotion("allow"):  # Jumanji needs it
        return jax.tree.leaves(key_data(jax.jit(jax.vmap(generator))(keys)))


@functools.cache
def jumanjis(name):
    """Its instances, or mazes, by name or size."""
    generator = MazeGenerator(*name) if isinstance(name, tuple) else BinPackGenerator(**INSTANCES[name])
    return make(generator, num_levels=num_levels_of(name))


def num_levels_of(name):
    return 20 if name == "300 items, more than a byte counts" else NUM_LEVELS


def differing(ours, theirs):
    """How many leaves differ anywhere in value or type."""
    return sum(a.dtype != b.dtype or not np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.fixture
def no_fallback(monkeypatch):
    """Jumanji's own code must not run: else it would be compared with itself."""

    def refuse(*_):
        raise AssertionError("Jumanji's generator was used")

    monkeypatch.setattr(MazeGenerator, "__call__", refuse)
    monkeypatch.setattr(BinPackGenerator, "_split_container_into_items_spaces", refuse)


@pytest.fixture
def planted(monkeypatch):
    """Changes in the module that are really traced: JAX keeps what it traced of a loop's body, before and after."""
    jax.clear_caches()
    yield monkeypatch.setattr
    jax.clear_caches()


@pytest.mark.parametrize("name", quick([*MAZES, *INSTANCES], QUICK), ids=str)
def test_mazes_and_instances_are_jumanjis(name, request):
    theirs = jumanjis(name)
    request.getfixturevalue("no_fallback")
    is_maze = isinstance(name, tuple)
    generator = FastMazeGenerator(*name) if is_maze else FastBinPackGenerator.like(BinPackGenerator(**INSTANCES[name]))
    assert differing(make(generator, num_levels=num_levels_of(name)), theirs) == 0


def with_walls_and_passages(change):
    """The draw of both, changed."""
    draw = maze_levels._draw

    def drawn(key):
        key, both = draw(key)
        return key, change(*both)

    return drawn


MAZE = maze_levels, FastMazeGenerator(10, 10), (10, 10)
INSTANCE = binpack_levels, FastBinPackGenerator(20, 40), "as registered"
FAULTS = {  # what is planted where
    "wall": (MAZE, "_draw", with_walls_and_passages(lambda wall, passage: (passage, passage))),
    "passage": (MAZE, "_draw", with_walls_and_passages(lambda wall, passage: (wall, wall))),
    "second cell": (MAZE, "_two_cells", lambda is_free, key: (jnp.argmax(is_free), jnp.argmax(is_free))),
    "choice": (INSTANCE, "_choose", lambda lengths, draw: jnp.argmax(lengths)),
    "axis": (INSTANCE, "_of_axis", lambda axis, values: values[0]),
}


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_the_comparison_sees_faults(fault, planted):
    (module, generator, name), *function = FAULTS[fault]
    planted(module, *function)
    assert differing(make(generator), jumanjis(name)) > 0


@pytest.mark.full
@pytest.mark.parametrize("length", [1, 17])
@pytest.mark.parametrize("made", [MAZE, INSTANCE], ids=["maze", "binpack"])
def test_a_block_may_have_any_length(made, length, planted):
    module, generator, name = made
    planted(module, "SPLITS_PER_BLOCK", length)
    assert differing(make(generator), jumanjis(name)) == 0


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        pytest.param(FastMazeGenerator(5, 5), MazeGenerator(5, 5), id="maze"),
        full(FastBinPackGenerator(8, 20), BinPackGenerator(8, 20), id="binpack"),
    ],
)
def test_keys_of_another_kind_go_to_jumanjis_code(ours, theirs):
    assert differing(make(ours, num_levels=20, impl="rbg"), make(theirs, num_levels=20, impl="rbg")) == 0


@pytest.mark.parametrize("task", ["Maze-v0", "BinPack-v2"])
def test_it_is_what_is_trained_on(task, no_fallback):
    key = jax.random.key(0)
    jax.eval_shape(registry.make(task).reset, key)
    with pytest.raises(AssertionError, match="Jumanji's generator was used"):
        jax.eval_shape(registry.make(task, exact_reference=True).reset, key)


def test_sums_that_float32_cannot_hold_and_other_generators_are_left_to_jumanji(request):
    from jumanji.environments.packing.bin_pack.generator import ToyGenerator

    env = registry.make("BinPack-v2", kwargs={"generator": ToyGenerator()})
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    assert int(state.items_mask.sum()) == 20
    assert int(state.items.x_len[0]) == 2445
    sizes = {"max_num_items": 8, "max_num_ems": 4, "container_dims": (2**22, 10, 10)}
    request.getfixturevalue("no_fallback")
    with pytest.raises(AssertionError, match="Jumanji's generator was used"):
        make(FastBinPackGenerator(**sizes), num_levels=2)
