"""Sokoban against plain rules, its levels, and the fewest moves against a plain search."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.marks import full

from stoix_like.envs.text import oracles
from stoix_like.envs.text.grids import ROOM_MOVES, Position, Room
from stoix_like.envs.text.sokoban import SokobanState, make_sokoban
from stoix_like.errors import ConfigError
from stoix_like.types import LAST

LEVEL = """
######
#_PXO#
#_####
######
"""


def room(text):
    cells = np.array([list(row) for row in text.split()])
    player = np.argwhere(np.isin(cells, ["P", "S"]))[0].astype(np.int32)
    walls, targets, boxes = cells == "#", np.isin(cells, ["O", "√", "S"]), np.isin(cells, ["X", "√"])
    return Room(walls, targets, boxes, Position(*player))


def state(text):
    """A state of JAX arrays."""
    return jax.tree.map(jnp.asarray, SokobanState(room(text), np.int32(0)))


def plain_step(walls, targets, boxes, player, action):
    """(boxes, player, reward, solved) by the rules of gym_sokoban on sets of cells."""
    down, right = ROOM_MOVES[action]
    ahead, behind = (player[0] + down, player[1] + right), (player[0] + 2 * down, player[1] + 2 * right)
    before = len(boxes & targets)
    if ahead in boxes and behind not in walls and behind not in boxes:
        boxes, player = boxes - {ahead} | {behind}, ahead
    elif ahead not in boxes and ahead not in walls:
        player = ahead
    solved = boxes == targets
    return boxes, player, -0.1 + len(boxes & targets) - before + 10.0 * solved, solved


def as_set(cells):
    return set(map(tuple, np.argwhere(cells).tolist()))


@pytest.mark.parametrize(("sizes", "num_envs"), [((6, 6, 1), 256), ((7, 8, 3), 256), full((7, 8, 3), 5_000)])
def test_moves_rewards_masks_and_ends_equal_plain_rules(sizes, num_envs, key):
    env = make_sokoban(*sizes, max_actions=20)

    def step(state, key):
        action = jax.random.randint(key, (num_envs,), 0, 4)
        after, timestep = jax.vmap(env.step)(state, action)
        return after, (state, action, after, timestep)

    start, first = jax.jit(jax.vmap(env.reset))(jax.random.split(key, num_envs))
    played = jax.jit(lambda: jax.lax.scan(step, start, jax.random.split(key, 20)))()[1]
    before, action, after, timestep = jax.device_get(played)
    pushed = 0
    for t, n in itertools.product(range(20), range(num_envs)):
        walls, targets = as_set(before.room.walls[t, n]), as_set(before.room.targets[t, n])
        boxes, player = as_set(before.room.boxes[t, n]), tuple(int(x[t, n]) for x in before.room.player)
        now, where, reward, solved = plain_step(walls, targets, boxes, player, action[t, n])
        assert (as_set(after.room.boxes[t, n]), tuple(int(x[t, n]) for x in after.room.player)) == (now, where)
        np.testing.assert_allclose(timestep.reward[t, n], reward, atol=1e-6)  # float32 of a sum of three numbers
        assert (timestep.step_type[t, n] == LAST) == (solved or t == 19)
        moves = [plain_step(walls, targets, now, where, a)[1] != where for a in range(4)]
        assert timestep.observation.action_mask[t, n].tolist() == moves
        pushed += now != boxes
    assert pushed > 100
    assert first.observation.action_mask.any(axis=1).all()


def test_a_push_onto_the_target_is_worth_eleven_less_a_tenth():
    step = jax.jit(make_sokoban().step)
    _, timestep = step(state(LEVEL), 3)
    assert (float(timestep.reward), int(timestep.step_type)) == (pytest.approx(10.9), LAST)
    _, timestep = step(state(LEVEL), 0)
    assert timestep.reward == np.float32(-0.1)
    pushed, _ = step(state("####### #_P√_O# #__X__# #######"), 3)
    assert float(step(state("####### #_P√_O# #__X__# #######"), 3)[1].reward) == pytest.approx(-1.1)
    assert not pushed.room.boxes[1, 3]


def test_an_observation_shows_the_room_without_its_border_and_what_is_left():
    _, timestep = jax.jit(make_sokoban(max_actions=10).step)(state("###### #_PXO# #_#√_# ######"), 2)
    view = timestep.observation.agent_view
    walls, targets, boxes = np.moveaxis(np.asarray(view["cells"]), -1, 0)
    np.testing.assert_array_equal(walls, [[0, 0, 0, 0], [0, 1, 0, 0]])
    np.testing.assert_array_equal(targets, [[0, 0, 0, 1], [0, 0, 1, 0]])
    np.testing.assert_array_equal(boxes, [[0, 0, 1, 0], [0, 0, 1, 0]])
    np.testing.assert_array_equal(view["player"], [[1, 0, 0, 0], [0, 0, 0, 0]])
    assert float(view["actions_left"]) == pytest.approx(0.9)


def test_levels_are_solvable_whole_and_apart(key):
    sets = []
    env = make_sokoban(num_pulls=30)
    for reset in (env.reset, env.evaluation_reset):
        rooms = jax.device_get(jax.jit(jax.vmap(reset))(jax.random.split(key, 512))[0].room)
        for n in range(512):
            one = jax.tree.map(lambda x, n=n: x[n], rooms)
            assert one.targets.sum() == one.boxes.sum() == 1
            assert not one.walls[one.player]
            assert not one.boxes[one.player]
            assert not (one.walls & one.boxes).any()
            assert one.walls[[0, -1]].all()
            assert one.walls[:, [0, -1]].all()
            assert n >= 40 or oracles.sokoban_distance(one, 30) not in (None, 0)
        sets.append({b"".join(x[n].tobytes() for x in jax.tree.leaves(rooms)) for n in range(512)})
    assert not sets[0] & sets[1]
    assert min(map(len, sets)) > 450


def test_the_fewest_moves_by_hand_and_the_ceiling():
    assert oracles.sokoban_distance(room(LEVEL), 10) == 1
    around = room("######## #______# #_X_P_O# #______# ########")
    assert oracles.sokoban_distance(around, 20) == 9  # around the box in five, then four pushes
    assert oracles.sokoban_distance(around, 8) is None
    assert oracles.sokoban_ceiling(around, oracles.Turns(3, 3, 10)) == 1.0
    assert oracles.sokoban_ceiling(around, oracles.Turns(2, 4, 10)) == 0.0
    assert oracles.sokoban_distance(room("##### #P__# #__X# #O__# #####"), 50) is None  # along the wall for ever


def test_text_and_refusals():
    env = make_sokoban()
    assert env.render(SokobanState(room(LEVEL), np.int32(0))) == (
        "######\n#_PXO#\n#_####\n######\nPlayer (P) is at (1,2); box (X) is at (1,3); target (O) is at (1,4)."
    )
    assert env.render(SokobanState(room("##### #S√_# #####"), np.int32(0))).splitlines()[1] == "#S√_#"
    for wrong, what in (
        ({"num_rows": 2}, "at least 3 by 5"),
        ({"num_boxes": 9}, "num_boxes: must be from 1 to 5"),
        ({"max_actions": 0}, "max_actions"),
        ({"num_pulls": 0}, "num_pulls"),
    ):
        with pytest.raises(ConfigError, match=what):
            make_sokoban(**wrong)
