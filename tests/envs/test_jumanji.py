"""The door to Jumanji: types, actions, masks, metrics and pictures."""

import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.interpreters import partial_eval
from jumanji import registration, specs
from jumanji.environments import Connector, LevelBasedForaging, Maze
from jumanji.environments.routing.connector.generator import RandomWalkGenerator
from jumanji.environments.routing.lbf.generator import RandomGenerator as ForagingGenerator
from jumanji.wrappers import MultiToSingleWrapper
from PIL import Image
from support.asserts import assert_fits_a_scan
from support.marks import full, quick

import stoix_like as sl
from stoix_like.algorithms import searching
from stoix_like.envs import registry
from stoix_like.envs.jumanji import action_form, from_jumanji
from stoix_like.envs.jumanji_tasks import TASKS, Task, task_of
from stoix_like.envs.time_limit import with_time_limit
from stoix_like.errors import UnsupportedEnvironmentError
from stoix_like.types import FIRST, LAST

ADMITTED = {  # task id: mask shape
    "BinPack-v0": (800,),
    "BinPack-v2": (800,),
    "CVRP-v1": (21,),
    "Cleaner-v0": (3, 4),
    "Connector-v3": (10, 5),
    "FlatPack-v0": (25 * 4 * 9 * 9,),
    "Game2048-v1": (4,),
    "GraphColoring-v1": (20,),
    "JobShop-v0": (10, 21),
    "Knapsack-v1": (50,),
    "MMST-v0": (3, 36),
    "Maze-v0": (4,),
    "Minesweeper-v0": (100,),
    "MultiCVRP-v0": (2, 21),
    "PacMan-v1": (5,),
    "RobotWarehouse-v0": (4, 5),
    "RubiksCube-partly-scrambled-v0": (18,),
    "RubiksCube-v0": (18,),
    "SlidingTilePuzzle-v0": (4,),
    "Snake-v1": (4,),
    "Sokoban-v0": (4,),
    "Sudoku-v0": (729,),
    "Sudoku-very-easy-v0": (729,),
    "TSP-v1": (20,),
    "Tetris-v0": (40,),
}
REFUSED = {"LevelBasedForaging-v0", "SearchAndRescue-v0"}
#: Of one mask, of a joint action and of factors; that never draw, and that do.
TRACED = {"BinPack-v2", "Maze-v0", "JobShop-v0", "Connector-v3", "Game2048-v1", "Minesweeper-v0", "RubiksCube-v0"}


@functools.cache
def make(task_id):
    return registry.make(task_id, kwargs={"generator": "toy"} if task_id == "Sokoban-v0" else {})


def random_action(key, mask):
    return jax.random.categorical(key, jnp.where(mask, 0.0, -1e9))


@pytest.mark.parametrize("task_id", quick(ADMITTED, TRACED))
def test_steps_fit_a_scan_carry_and_are_deterministic_exactly_where_they_never_read_the_key(task_id):
    env = make(task_id)
    state, first = jax.eval_shape(env.reset, jax.random.key(0))
    action = jax.ShapeDtypeStruct(env.action_spec.shape, jnp.int32)

    step = jax.jit(env.step)
    after, program = step.eval_shape(state, action), step.trace(state, action).jaxpr.jaxpr  # traced once
    assert_fits_a_scan((state, first), after)
    assert env.action_spec.mask_shape == ADMITTED[task_id] == first.observation.action_mask.shape
    assert (first.reward.shape, first.reward.dtype) == ((), jnp.float32)
    assert (first.discount.shape, first.discount.dtype) == ((), jnp.float32)
    assert (first.step_type.dtype, first.observation.action_mask.dtype) == (jnp.int8, jnp.bool_)
    metrics = jax.eval_shape(env.episode_metrics, state, first)
    assert all(m.shape == () and m.dtype == jnp.float32 for m in metrics.values())
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(after)]
    _, is_read = partial_eval.dce_jaxpr(program, [path != "[0].key" for path in paths])  # by all but the next own key
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path((state, action))]
    assert env.deterministic == (not is_read[paths.index("[0].key")])


@pytest.mark.slow  # they take minutes to compile; tests/contract plays Maze, Snake and a task with factors
@pytest.mark.parametrize("task_id", ADMITTED)
def test_twenty_random_legal_steps(task_id):
    env = make(task_id)
    num_envs = 4

    def play(key):
        reset_key, step_key = jax.random.split(key)
        carry = jax.vmap(env.reset)(jax.random.split(reset_key, num_envs))

        def step(carry, key):
            state, timestep = carry
            carry = jax.vmap(env.step)(state, random_action(key, timestep.observation.action_mask))
            return carry, carry[1]

        return carry[1], jax.lax.scan(step, carry, jax.random.split(step_key, 20))[1]

    first, timesteps = jax.jit(play)(jax.random.key(1))
    assert (first.step_type == FIRST).all()
    for leaf in jax.tree.leaves((first, timesteps)):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            assert jnp.isfinite(leaf).all()
    view, mask = timesteps.observation
    assert mask.shape == (20, num_envs, *env.action_spec.mask_shape)
    assert "action_mask" not in view


@pytest.fixture(scope="module")
def binpack():
    """(last, states, time steps) of 64 environments that take 10 random steps."""
    env = make("BinPack-v2")

    def step(carry, key):
        state, timestep = carry
        return jax.vmap(env.step)(state, random_action(key, timestep.observation.action_mask)), carry

    def rollout():
        start = jax.vmap(env.reset)(jax.random.split(jax.random.key(3), 64))
        last, (states, timesteps) = jax.lax.scan(step, start, jax.random.split(jax.random.key(2), 10))
        return last, states, timesteps

    is_key = lambda x: jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
    return jax.tree.map(lambda x: x if is_key(x) else np.asarray(x), jax.jit(rollout)())


def test_binpack_actions_are_ems_major_pack_their_item_and_pay_what_is_used(binpack):
    env, ((last_state, last), states, timesteps) = make("BinPack-v2"), binpack
    pairs = states.action_mask.reshape(-1, 40, 20)
    flat = timesteps.observation.action_mask.reshape(-1, 800)
    row, action = np.nonzero(flat)
    assert len(np.unique(row)) > 600  # states with something to do
    assert pairs[row, action // 20, action % 20].all()
    assert len(row) == pairs.sum()
    item_major_is_legal = pairs[row, action % 40, action // 40]
    assert item_major_is_legal.mean() < 0.9  # the other order picks actions that are illegal
    # a step packs the item of the flat action
    state = jax.tree.map(lambda x: x[3, 0], states)
    action = int(np.flatnonzero(timesteps.observation.action_mask[3, 0])[-1])
    after, timestep = jax.jit(env.step)(state, jnp.int32(action))
    newly_placed = np.asarray(after.items_placed) & ~np.asarray(state.items_placed)
    assert np.flatnonzero(newly_placed).tolist() == [action % 20]
    assert float(timestep.reward) > 0
    assert not bool(timestep.extras["invalid_action"])
    # rewards add up to the utilisation
    assert not (timesteps.step_type == LAST).any(), "an episode ended early: the sum would not be its return"
    metrics = jax.vmap(env.episode_metrics)(last_state, last)
    returns = timesteps.reward.sum(0) + last.reward
    # Ten float32 additions of volumes below 1.
    np.testing.assert_allclose(metrics["utilisation"], returns, atol=1e-6)


def test_rewards_of_agents_are_summed_and_truncated_and_wrapped_by_hand():
    theirs = Connector(generator=RandomWalkGenerator(grid_size=5, num_agents=3), time_limit=1)
    env = registry.make("Connector-v3", kwargs={"grid_size": 5, "num_agents": 3, "time_limit": 1})

    @jax.jit
    def both(key):
        state, _ = env.reset(key)
        noop = jnp.zeros((3,), jnp.int32)
        with jax.numpy_rank_promotion("allow"):
            return env.step(state, noop)[1], theirs.step(state, noop)[1]

    ours, expected = both(jax.random.key(0))
    assert expected.reward.shape == (3,)
    assert float(expected.reward.sum()) < 0  # each agent pays for the step
    assert float(ours.reward) == pytest.approx(float(expected.reward.sum()), rel=1e-6)
    assert env.can_truncate
    assert (int(ours.step_type), float(ours.discount)) == (LAST, 1.0)
    # other tasks for several agents can be wrapped by hand
    env = from_jumanji(MultiToSingleWrapper(registration.make("LevelBasedForaging-v0")), "foraging")
    assert env.action_spec.mask_shape == (2, 6)
    assert env.can_truncate
    _, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    assert timestep.reward.shape == ()


@pytest.mark.parametrize(
    ("num_values", "mask_shape", "is_multi_agent", "form"),  # shape of the mask, number of factors, joint shape
    [
        ([2, 3], (2, 3), False, ((6,), None, (2, 3))),
        ([3, 3], (2, 3), False, ((2, 3), 2, None)),
        ([6, 1, 3], None, False, ((18,), None, (6, 1, 3))),
        ([2, 2], (2, 2), False, ((4,), None, (2, 2))),  # joint, unless the factors are agents
        ([2, 2], (2, 2), True, ((2, 2), 2, None)),
    ],
)
def test_every_reading_of_a_mask_by_hand(num_values, mask_shape, is_multi_agent, form):
    actions = specs.MultiDiscreteArray(jnp.array(num_values))
    found = action_form(actions, mask_shape, is_multi_agent, "task")
    assert (found.spec.mask_shape, found.spec.num_factors, found.joint_shape) == form
    with pytest.raises(UnsupportedEnvironmentError, match=r"a mask of shape \(2, 4\) does not fit actions of"):
        action_form(actions, (2, 4), is_multi_agent, "task")


def test_rekey_replaces_the_key_and_nothing_else():
    env = make("Snake-v1")
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    new = env.rekey(state, jax.random.key(9))
    assert jax.random.key_data(new.key).tolist() == jax.random.key_data(jax.random.key(9)).tolist()
    for name in ("body", "fruit_position", "length"):
        jax.tree.map(np.testing.assert_array_equal, getattr(new, name), getattr(state, name))
    # old-style keys work, too
    state, _ = jax.jit(env.reset)(jax.random.PRNGKey(0))
    new = env.rekey(state, jax.random.key(9))
    np.testing.assert_array_equal(new.key, jax.random.PRNGKey(9))


@pytest.mark.parametrize("task_id", ["Maze-v0", full("BinPack-v2")])
def test_animation_is_a_small_gif(task_id, tmp_path, capfd):
    env = make(task_id)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    state, timestep = reset(jax.random.key(0))
    states = [state]
    for _ in range(3):
        state, timestep = step(state, jnp.argmax(timestep.observation.action_mask))
        states.append(state)
    path = tmp_path / "episode.gif"
    env.animate(states, str(path))
    with Image.open(path) as image:
        assert (image.format, image.size, image.n_frames) == ("GIF", (480, 480), 4)
    assert path.stat().st_size < 200_000
    assert capfd.readouterr() == ("", "")
    import matplotlib.pyplot as plt

    assert plt.get_fignums() == []


def test_every_task_is_admitted_or_refused_and_hides_what_no_player_can_know():
    """Read from every task's observation. A robot on 11 x 10 cells senses all of them 10 away."""
    jumanji_ids = {name for name in registry.task_ids() if name not in registry.ENVIRONMENTS}
    assert jumanji_ids == set(ADMITTED) | REFUSED
    hidden = {name: make(name).hidden_state for name in ("Minesweeper-v0", "RobotWarehouse-v0", "Maze-v0")}
    assert hidden == {
        "Minesweeper-v0": "where the mines are",
        "RobotWarehouse-v0": "the robots, shelves and requests beyond the sensors",
        "Maze-v0": None,
    }
    assert sorted(name for name, task in TASKS.items() if task.hidden_state is not Task().hidden_state) == [
        "LevelBasedForaging",
        "Minesweeper",
        "RobotWarehouse",
    ]
    task = TASKS["RobotWarehouse"]
    seen = [task.hidden_state(SimpleNamespace(sensor_range=n, grid_size=(11, 10))) is None for n in (1, 9, 10)]
    assert seen == [False, False, True]
    # a limit of steps leaves it hidden
    env = with_time_limit(make("Minesweeper-v0"), 5)
    assert env.hidden_state == "where the mines are"

    # facts of an unlisted class are cautious
    class Unknown:
        unwrapped = property(lambda self: self)

    task = task_of(Unknown())
    assert not task.is_deterministic
    assert not task.is_cooperative


def test_the_steps_of_a_subclass_are_taken_as_random_unless_it_says_otherwise():
    """Jumanji's Maze draws nothing. A subclass may, also one of the same name, and a search must not see it coming."""

    class Slippery(Maze):
        def step(self, state, action):
            slipped = jax.random.randint(state.key, (), 0, 4)
            return super().step(state, jnp.where(jax.random.bernoulli(state.key), slipped, action))

    for kind in (Slippery, type("Maze", (Slippery,), {})):
        env = from_jumanji(kind(), "slippery")
        assert not env.deterministic
        assert searching.search_model(env, sl.make_network(env, sl.spo_config(observation_adapter="dense"))).rekey
        assert env.time_limit == 100  # other facts are the base's
    assert from_jumanji(Maze(), "Maze-v0").deterministic
    assert registry.make("BinPack-v2").deterministic  # our own subclass


@pytest.mark.parametrize(("fov", "hides"), [(3, True), (6, True), (7, False), (8, False)])
def test_foraging_agents_that_see_the_whole_grid_hide_nothing(fov, hides):
    """On 8 x 8 cells the furthest is 7 away."""
    generator = ForagingGenerator(grid_size=8, fov=fov, num_agents=2, num_food=2, force_coop=True)
    env = from_jumanji(MultiToSingleWrapper(LevelBasedForaging(generator=generator)), "foraging")
    assert (env.hidden_state is not None) == hides
