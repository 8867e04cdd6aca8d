"""FrozenLake against plain rules, Gymnasium's own tables, and its ceiling against brute force."""

import collections
import itertools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like.envs.text import oracles
from stoix_like.envs.text.frozen_lake import FrozenLakeState, make_frozen_lake
from stoix_like.envs.text.grids import LAKE_MOVES, Lake, Position
from stoix_like.errors import ConfigError
from stoix_like.evaluation import levels
from stoix_like.types import LAST

HOLES = np.array([[0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 1], [1, 0, 0, 0]], bool)


def lake(holes=HOLES, start=(0, 0), goal=(3, 3)):
    return Lake(np.asarray(holes), *(Position(np.int32(row), np.int32(col)) for row, col in (start, goal)))


def played(env, num_envs, num_steps, key):
    """(states, actions, time steps) of random play from fresh levels, [T, N] each; ended worlds go on unreset."""

    def step(carry, key):
        action = jax.random.randint(key, (num_envs,), 0, 4)
        state, timestep = jax.vmap(env.step)(carry, action)
        return state, (carry, action, state, timestep)

    state, _ = jax.vmap(env.reset)(jax.random.split(key, num_envs))
    return jax.jit(lambda: jax.lax.scan(step, state, jax.random.split(key, num_steps)))()[1]


@pytest.mark.parametrize(("intended_p", "num_envs"), [(1.0, 512), (0.8, 512), full(0.8, 15_000)])
def test_moves_ends_and_rewards_equal_plain_rules(intended_p, num_envs, key):
    env = make_frozen_lake(size=5, intended_p=intended_p, max_actions=7)
    before, action, after, timestep = jax.device_get(played(env, num_envs, 7, key))
    straight = []
    for t, n in itertools.product(range(7), range(num_envs)):
        holes, goal = before.lake.holes[t, n], (before.lake.goal.row[t, n], before.lake.goal.col[t, n])
        row, col = before.position.row[t, n], before.position.col[t, n]
        now = (after.position.row[t, n], after.position.col[t, n])
        ways = [(action[t, n] + turn) % 4 for turn in ((0,) if intended_p == 1.0 else (0, 1, 3))]
        cells = [(min(max(row + LAKE_MOVES[w][0], 0), 4), min(max(col + LAKE_MOVES[w][1], 0), 4)) for w in ways]
        assert now in cells
        straight.append((now == cells[0], len(set(cells)) == 3))
        ends = now == goal or holes[now] or t == 6
        assert timestep.reward[t, n] == float(now == goal)
        assert (timestep.step_type[t, n] == LAST) == ends
        assert timestep.discount[t, n] == 1.0 - ends
    shares = [went for went, differs in straight if differs or intended_p == 1.0]
    # a share of at least 1,000 draws: four standard deviations are below 0.051
    assert np.mean(shares) == pytest.approx(intended_p, abs=0.0 if intended_p == 1.0 else 0.051)


def drawn_lakes(num, size):
    """Random lakes, start and goal apart."""
    rng = np.random.default_rng(0)
    for _ in range(num):
        start, goal = np.unravel_index(rng.choice(size**2, 2, replace=False), (size, size))
        holes = rng.random((size, size)) < 0.3
        holes[[start[0], goal[0]], [start[1], goal[1]]] = False
        yield lake(holes, (start[0], start[1]), (goal[0], goal[1]))


def gymnasiums(level, is_slippery):
    """Gymnasium's table of a lake: for each cell and action the probabilities of (cell, reward, end)."""
    letters = np.where(level.holes, "H", "F")
    letters[tuple(level.start)], letters[tuple(level.goal)] = "S", "G"
    made = gymnasium.make("FrozenLake-v1", desc=["".join(row) for row in letters], is_slippery=is_slippery)
    for cell, action in itertools.product(range(level.holes.size), range(4)):
        if letters.reshape(-1)[cell] in "SF":  # it goes on from holes and goals, which end an episode
            chances = collections.Counter()
            for probability, after, reward, ends in made.unwrapped.P[cell][action]:
                chances[int(after), float(reward), bool(ends)] += probability
            yield cell, action, chances


@pytest.mark.parametrize(("intended_p", "num_draws", "within"), [(1.0, 1, 0.0), (1 / 3, 2048, 0.05)])
def test_moves_rewards_and_ends_are_gymnasiums(intended_p, num_draws, within):
    """0.05 is 4.5 standard deviations of a share of 2,048 draws."""
    env, keys = make_frozen_lake(intended_p=intended_p), jax.random.split(jax.random.key(0), num_draws)

    @jax.jit
    def outcomes(level, cell, action):
        def one(key):
            state, timestep = env.step(FrozenLakeState(level, Position.of_cell(cell, 4), jnp.int32(0), key), action)
            return state.position.row * 4 + state.position.col, timestep.reward, timestep.last()

        return jax.vmap(one)(keys)

    for level in drawn_lakes(4, 4):
        for cell, action, chances in gymnasiums(level, intended_p < 1.0):
            found = collections.Counter(zip(*(x.tolist() for x in outcomes(level, cell, action)), strict=True))
            assert found.keys() == chances.keys()
            for outcome, probability in chances.items():
                assert found[outcome] / num_draws == pytest.approx(probability, abs=within)


def test_an_observation_shows_holes_player_goal_and_the_actions_made():
    level = jax.tree.map(jnp.asarray, lake(start=(0, 2), goal=(3, 1)))
    state = FrozenLakeState(level, level.start, jnp.int32(3), jax.random.key(0))
    _, timestep = jax.jit(make_frozen_lake(intended_p=1.0).step)(state, 1)
    view = timestep.observation.agent_view
    np.testing.assert_array_equal(view["walls"], HOLES)
    assert tuple(map(int, view["agent_position"])) == (1, 2)
    assert tuple(map(int, view["target_position"])) == (3, 1)
    assert int(view["step_count"]) == 4


def test_levels_have_a_way_and_those_of_evaluation_are_never_trained_on(key):
    env = make_frozen_lake(size=3, max_actions=4)
    keys = jax.random.split(key, 4096)
    sets = []
    for reset in (env.reset, env.evaluation_reset):
        lakes = jax.device_get(jax.jit(jax.vmap(reset))(keys)[0].lake)
        cells = np.stack(
            [lakes.holes.reshape(4096, -1).dot(2 ** np.arange(9)), *(3 * p.row + p.col for p in lakes[1:])], 1
        )
        sets.append({tuple(level) for level in cells.tolist()})
        for n in range(50):
            one = jax.tree.map(lambda x, n=n: x[n], lakes)
            assert oracles.frozen_lake_ceiling(one, 1.0, oracles.Turns.one_by_one(4)) == 1.0
    assert not sets[0] & sets[1]
    assert min(map(len, sets)) > 400  # of about 1,400 in all


def brute_force(level, intended_p, turns, actions, budget, cell=None):
    """The best probability of success, by trying every sequence of every turn and following every slip."""
    goal = (int(level.goal.row), int(level.goal.col))
    cell = (int(level.start.row), int(level.start.col)) if cell is None else cell
    size = level.holes.shape[0]
    if cell == goal:
        return 1.0
    if level.holes[cell] or turns == 0 or budget == 0:
        return 0.0

    def follow(cell, sequence):
        if cell == goal or level.holes[cell]:
            return float(cell == goal)
        if not sequence:
            return after(cell)
        total = 0.0
        for turn, share in ((0, intended_p), (1, (1 - intended_p) / 2), (3, (1 - intended_p) / 2)):
            if share:
                down, right = LAKE_MOVES[(sequence[0] + turn) % 4]
                there = (min(max(cell[0] + down, 0), size - 1), min(max(cell[1] + right, 0), size - 1))
                total += share * follow(there, sequence[1:])
        return total

    best = 0.0
    for length in range(1, min(actions, budget) + 1):
        values = {}

        def after(cell, length=length, values=values):
            if cell not in values:
                values[cell] = brute_force(level, intended_p, turns - 1, actions, budget - length, cell)
            return values[cell]

        best = max(best, *(follow(cell, seq) for seq in itertools.product(range(4), repeat=length)))
    return best


@pytest.mark.parametrize("intended_p", [1 / 3, 0.8, 1.0])
@pytest.mark.parametrize("turns", [(1, 3, 3), (2, 2, 3), (3, 1, 3)])
def test_the_ceiling_equals_brute_force(intended_p, turns):
    small = lake([[0, 0, 1], [0, 1, 0], [0, 0, 0]], (0, 0), (2, 1))
    found = oracles.frozen_lake_ceiling(small, intended_p, oracles.Turns(*turns))
    assert found == pytest.approx(brute_force(small, intended_p, turns[0], turns[1], turns[2]), abs=1e-12)
    assert found > 0.0
    assert found < 1.0 or intended_p == 1.0


def test_seeing_more_is_never_worse_and_a_certain_way_is_certain():
    way = lake()
    seen, blind = (
        oracles.frozen_lake_ceiling(way, 0.8, turns) for turns in (oracles.Turns.one_by_one(10), oracles.Turns())
    )
    assert 0.0 < blind < seen < 1.0
    assert oracles.frozen_lake_ceiling(way, 1.0, oracles.Turns(2, 3, 6)) == 1.0
    assert oracles.frozen_lake_ceiling(way, 1.0, oracles.Turns(2, 3, 5)) == 0.0
    with pytest.raises(ConfigError, match="at most 8 actions a turn"):
        oracles.frozen_lake_ceiling(way, 1.0, oracles.Turns(2, 9, 10))


def test_text_and_refusals():
    env = make_frozen_lake()
    state = FrozenLakeState(lake(), Position(np.int32(2), np.int32(1)), np.int32(3), None)
    assert env.render(state) == (
        "____\n_O_O\n_P_O\nO__G\n"
        "Player (P) is at (2,1); holes (O) are at (1,1), (1,3), (2,3), (3,0); goal (G) is at (3,3)."
    )
    assert env.render(state._replace(position=Position(3, 3))).splitlines()[3] == "O__√"
    assert env.render(state._replace(position=Position(1, 1))).splitlines()[1] == "_X_O"
    for wrong in ({"size": 1}, {"frozen_p": 1.5}, {"intended_p": 0.0}, {"max_actions": 0}):
        with pytest.raises(ConfigError, match=next(iter(wrong))):
            make_frozen_lake(**wrong)


def test_ceilings_of_levels_are_those_of_their_states_and_equal_levels_are_computed_once(key):
    """By hand: one move from the goal with one action left, a move goes there with 1/3 whatever is chosen."""
    env = make_frozen_lake(size=2, max_actions=1)
    zero = jnp.int32(0)
    ice = Lake(jnp.zeros((2, 2), bool), Position(zero, zero), Position(zero, jnp.int32(1)))
    here = lambda key: (FrozenLakeState(ice, ice.start, zero, key), env.reset(key)[1])
    computed = []
    counting = lambda state: computed.append(state) or env.ceiling(state)
    found = levels.ceilings(env._replace(held_out=here, ceiling=counting), jax.random.split(key, 300))
    np.testing.assert_allclose(found, np.full(300, 1 / 3))
    assert len(computed) == 1


def test_a_ceiling_of_very_many_actions_is_found():
    ice = Lake(np.zeros((2, 2), bool), Position(0, 0), Position(1, 1))
    assert oracles.frozen_lake_ceiling(ice, 1 / 3, oracles.Turns.one_by_one(2000)) == pytest.approx(1.0)
