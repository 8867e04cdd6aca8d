"""Banks of levels: the reverse search against plain searches, what a bank holds, and who may play it."""

import collections
import itertools

import jax
import numpy as np
import pytest
from support.asserts import refused

import stoix_like as sl
from stoix_like.envs.text import oracles, reverse_search
from stoix_like.envs.text.bank_making import make_bank
from stoix_like.envs.text.banks import are_held_out, with_rules
from stoix_like.envs.text.grids import ROOM_MOVES
from stoix_like.envs.text.sokoban import make_sokoban
from stoix_like.envs.text.sudoku import has_one_solution
from stoix_like.errors import ConfigError

TWO_BOXES = {"num_rows": 6, "num_cols": 7, "num_boxes": 2}


def plain_way(walls, start, goal):
    """Whether pushes lead from one (player, boxes in order) to another, by the rules on sets of cells."""
    reached, queue = {start}, collections.deque([start])
    while queue:
        player, boxes = queue.popleft()
        for step in ROOM_MOVES @ [walls.shape[1], 1]:
            ahead, behind = player + int(step), player + 2 * int(step)
            if walls.flat[ahead] or (ahead in boxes and (walls.flat[behind] or behind in boxes)):
                continue
            after = (ahead, tuple(behind if box == ahead else box for box in boxes))
            if after not in reached:
                reached.add(after)
                queue.append(after)
    return goal in reached


ROOMS = {  # numbers are the targets of boxes 0 and 1, P the player
    "pillar": "####### #0____# #_#_P_# #_____# #######",
    "two": "###### #0___# #_1_P# #____# ######",
    "apart": "###### #P#_0# #_#__# ######",
}


@pytest.mark.parametrize(("name", "least"), [("pillar", 80), ("two", 80), ("apart", 2)])
def test_pulls_reach_exactly_the_states_from_which_pushes_lead_back(name, least):
    cells = np.array([list(row) for row in ROOMS[name].split()])
    walls, flat = cells == "#", cells.reshape(-1)
    player, *targets = (int(np.flatnonzero(flat == mark)[0]) for mark in "P01" if mark in flat)
    found = {tuple(state) for state in reverse_search.pulled_states(walls, player, targets).tolist()}
    assert len(found) >= least
    solved = (player, tuple(targets))
    for where, *boxes in itertools.permutations(np.flatnonzero(~walls).tolist(), 1 + len(targets)):
        assert ((where, *boxes) in found) == plain_way(walls, (where, tuple(boxes)), solved)


def test_a_box_is_as_far_away_as_it_can_be_pulled():
    """By hand: in a corridor of five cells the box goes from the left end to the last cell but one."""
    corridor = np.ones((3, 7), bool)
    corridor[1, 1:6] = False
    states = reverse_search.pulled_states(corridor, 9, [8])
    assert sorted(map(tuple, states.tolist())) == [
        (9, 8),
        (10, 8),
        (10, 9),
        (11, 8),
        (11, 9),
        (11, 10),
        (12, 8),
        (12, 9),
        (12, 10),
        (12, 11),
    ]
    assert reverse_search._distance(states[:, 1:], np.array([8]), 7).max() == 3


def test_rooms_have_their_boxes_off_target_and_a_border():
    rng = np.random.default_rng(0)
    rooms = [room for _ in range(60) if (room := reverse_search.draw_room(rng, 6, 6, 1)) is not None]
    assert len(rooms) > 40
    for room in rooms:
        assert (room.targets.sum(), room.boxes.sum()) == (1, 1)
        assert not (room.boxes & room.targets).any()
        assert not (room.walls & (room.boxes | room.targets)).any()
        assert not room.walls[room.player.row, room.player.col]
        assert not room.boxes[room.player.row, room.player.col]
        assert room.walls[[0, -1]].all()
        assert room.walls[:, [0, -1]].all()
        assert oracles.sokoban_distance(room, 60) is not None


CASES = {
    "FrozenLake-text-v0": {"size": 4, "frozen_p": 0.8, "max_actions": 10},
    "Sokoban-text-v0": TWO_BOXES,
    "Sudoku-text-v0": {"num_empty": 6},
}


@pytest.fixture(scope="module", params=CASES)
def bank(request):
    return make_bank(request.param, 40, 3, CASES[request.param])


def rows(levels):
    """The bytes of each level."""
    leaves = jax.tree.leaves(levels)
    return [b"".join(np.asarray(leaf[i]).tobytes() for leaf in leaves) for i in range(len(leaves[0]))]


def test_halves_are_equal_levels_differ_and_a_seed_gives_the_same(bank):
    assert are_held_out(bank.levels).sum() == bank.size // 2 == 20
    assert len(set(rows(bank.levels))) == 40
    again, other = (make_bank(bank.task_id, 40, seed, bank.rules) for seed in (3, 4))
    assert again.hash == bank.hash != other.hash
    assert set(rows(other.levels)) != set(rows(bank.levels))
    assert bank._replace(rules=bank.rules | {"size": 5}).hash != bank.hash


def test_levels_can_be_played(bank):
    for i in range(bank.size):
        level = jax.tree.map(lambda x, i=i: x[i], bank.levels)
        if bank.task_id.startswith("Sudoku"):
            assert (level == 0).sum() == 6
            assert bool(has_one_solution(level))
        elif bank.task_id.startswith("Sokoban"):
            assert oracles.sokoban_distance(level, 100) is not None
        else:
            assert oracles.frozen_lake_ceiling(level, 1.0, oracles.Turns.one_by_one(10)) == 1.0
            assert oracles.frozen_lake_ceiling(level, 1.0, oracles.Turns.one_by_one(1)) < 1.0 or adjacent(level)


def adjacent(lake):
    return abs(lake.start.row - lake.goal.row) + abs(lake.start.col - lake.goal.col) == 1


def test_training_and_evaluation_play_their_own_half_of_the_bank(bank, key):
    env = sl.make_env(bank.task_id, kwargs={"bank": bank})
    assert env.bank_hash == bank.hash
    known, held_out = rows(bank.levels), are_held_out(bank.levels)
    for reset, half in ((env.reset, ~held_out), (env.held_out, held_out)):
        state, _ = jax.jit(jax.vmap(reset))(jax.random.split(key, 400))
        level = {"Sudoku": "cells", "Sokoban": "room", "FrozenLake": "lake"}[bank.task_id.partition("-")[0]]
        played = collections.Counter(rows(getattr(state, level)))
        assert set(played) == {row for row, chosen in zip(known, half, strict=True) if chosen}
        assert max(played.values()) < 45  # of 20 each


def test_the_environment_takes_the_sizes_of_its_bank_and_refuses_others(bank):
    first, value = next(iter(bank.rules.items()))
    given = with_rules(bank.task_id, {"bank": bank, "max_actions": bank.rules.get("max_actions", 50)})
    assert given[first] == value
    assert given["max_actions"] == bank.rules.get("max_actions", 50)
    with refused(ConfigError, f"environment.kwargs.bank: its levels were made with {first} {value}"):
        sl.make_env(bank.task_id, kwargs={"bank": bank, first: 3})
    other = "Sudoku-text-v0" if bank.task_id.startswith("Soko") else "Sokoban-text-v0"
    with refused(ConfigError, f"environment.kwargs.bank: its levels are of {bank.task_id}, not of {other}"):
        sl.make_env(other, kwargs={"bank": bank})
    with refused(ConfigError, "environment.kwargs.bank: levels are expected, got 'mine'"):
        sl.make_env(bank.task_id, kwargs={"bank": "mine"})
    levels = jax.tree.map(lambda x: x[are_held_out(bank.levels)], bank.levels)
    with refused(ConfigError, "environment.kwargs.bank: none of its 20 levels belong to training"):
        sl.make_env(bank.task_id, kwargs={"bank": bank._replace(levels=levels)})


def test_sizes_are_the_banks_numbers_whatever_type_is_given(bank):
    name, value = next(iter(bank.rules.items()))
    given = with_rules(bank.task_id, {"bank": bank, name: float(value)})
    assert type(given[name]) is type(value)


def test_a_bank_of_other_sizes_is_refused_by_the_world_itself():
    room = make_bank("Sokoban-text-v0", 4, 0, TWO_BOXES)
    with refused(ConfigError, "environment.kwargs.bank: its levels have other sizes than the environment"):
        make_sokoban(bank=room)
    with refused(ConfigError, "environment.kwargs.num_pulls: levels of a bank are not drawn"):
        sl.make_env("Sokoban-text-v0", kwargs={"bank": room, "num_pulls": 3})


@pytest.mark.parametrize(
    ("task_id", "kwargs", "why"),
    [
        ("Sokoban-text-v0", {"num_rows": "six"}, "invalid literal"),
        ("Sokoban-text-v0", {"num_boxes": 1.5}, "num_boxes must be a whole number"),
        ("FrozenLake-text-v0", {"size": None}, "int()"),
        ("FrozenLake-text-v0", {1: 2}, "do not depend on 1"),
    ],
)
def test_values_that_cannot_be_used_are_one_line(task_id, kwargs, why):
    with pytest.raises(ConfigError, match=r"environment\.kwargs: ") as caught:
        make_bank(task_id, 2, 0, kwargs)
    assert why in caught.value.what


def test_more_boxes_than_states_can_be_numbered_for():
    with pytest.raises(ConfigError, match="9 boxes are too many for a search of 144 cells"):
        make_bank("Sokoban-text-v0", 2, 0, {"num_rows": 12, "num_cols": 12, "num_boxes": 9})


def test_the_player_walks_over_no_cell_twice():
    """By hand: in a corridor whose start is at its end, a walk of three steps ends three cells away."""
    corridor = np.ones((3, 8), bool)
    corridor[1, 1:7] = False
    rng = np.random.default_rng(0)
    ends = collections.Counter(reverse_search._walked(rng, corridor, 9, [14], 0.8) for _ in range(4000))
    # stays with 0.2, goes one step with 0.8 * 0.5, two with 0.8 * 0.25, three with as much
    np.testing.assert_allclose([ends[9 + n] / 4000 for n in range(4)], [0.2, 0.4, 0.2, 0.2], atol=0.03)


@pytest.mark.parametrize(
    ("task_id", "num", "kwargs", "what"),
    [
        ("Maze-v0", 2, {}, "there are no banks of 'Maze-v0'"),
        ("Sokoban-text-v0", 3, {}, "num_levels: must be an even number from 2 on, got 3"),
        (
            "Sokoban-text-v0",
            2,
            {"max_actions": 4},
            "environment.kwargs: the levels of Sokoban-text-v0 do not depend on max_actions",
        ),
        (
            "Sokoban-text-v0",
            2,
            {"num_boxes": 9},
            "environment.kwargs.num_boxes: must be from 1 to 5 in this room, got 9",
        ),
    ],
)
def test_what_cannot_be_made(task_id, num, kwargs, what):
    with refused(ConfigError, what):
        make_bank(task_id, num, 0, kwargs)


def test_a_world_with_too_few_levels():
    with pytest.raises(
        ConfigError, match=r"num_levels: \d+ of 50 levels of \w+ were found, and 2,048 draws gave no more"
    ):
        make_bank("FrozenLake-text-v0", 100, 0, {"size": 2})
