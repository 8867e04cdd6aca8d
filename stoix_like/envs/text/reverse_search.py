"""Rooms of Sokoban made by playing backwards from the solved room, in NumPy: the levels of gym_sokoban's difficulty.

As in mpSchrader/gym-sokoban, which RAGEN (mll-lab-nu/RAGEN) and SPA use, a room is dug by a walk and boxes are pulled
away from their targets as far as they go; the player then walks up to three steps, as RAGEN adds. gym_sokoban searches
depth first and its score also counts how often another box is pulled. Here the search is breadth first, and the score
is the distance of the boxes from their targets alone. Both stop at 300,000 states.
"""

from __future__ import annotations

import numpy as np

from stoix_like.envs.text.grids import ROOM_MOVES, Position, Room
from stoix_like.envs.text.sokoban import ROOM_SHAPES, ROOM_TURNS, num_room_steps
from stoix_like.errors import ConfigError

MOST_STATES = 300_000  # of a search; what was found until then counts


def draw_room(rng: np.random.Generator, num_rows: int, num_cols: int, num_boxes: int) -> Room | None:
    """A level, with arrays of NumPy; None if the room that was dug has no place for it."""
    walls = dig(rng, num_rows, num_cols)
    free = np.flatnonzero(~walls)
    if len(free) <= num_boxes:
        return None
    *targets, player = rng.permutation(free)[: num_boxes + 1]
    states = pulled_states(walls, player, targets)
    states = states[~np.isin(states[:, 1:], targets).any(axis=1)]
    if not len(states):
        return None
    moved = _distance(states[:, 1:], np.array(targets), num_cols)
    player, *boxes = rng.choice(states[moved == moved.max()])
    player = _walked(rng, walls, player, boxes, first_p=0.8 if moved.max() == 1 else 0.5)
    return Room(walls, _marks(targets, walls), _marks(boxes, walls), Position(*np.divmod(np.int32(player), num_cols)))


def dig(rng: np.random.Generator, num_rows: int, num_cols: int) -> np.ndarray:
    """[R, C] bool walls. A walk through a block of them digs one of five shapes at every step."""
    free = np.zeros((num_rows, num_cols), bool)
    place = rng.integers(1, [num_rows - 1, num_cols - 1])
    direction = rng.integers(4)
    for _ in range(num_room_steps((num_rows, num_cols))):
        if rng.random() < ROOM_TURNS:
            direction = rng.integers(4)
        place = np.clip(place + ROOM_MOVES[direction], 1, [num_rows - 2, num_cols - 2])
        around = free[place[0] - 1 : place[0] + 2, place[1] - 1 : place[1] + 2]
        around |= ROOM_SHAPES[rng.integers(len(ROOM_SHAPES))]
    inside = np.zeros_like(free)
    inside[1:-1, 1:-1] = True
    return ~(free & inside)


def pulled_states(walls: np.ndarray, player: int, targets: list[int]) -> np.ndarray:
    """[S, 1 + boxes] cells of the player and of each box, by target: what pulls lead to from the solved room."""
    count = walls.size
    if count ** (1 + len(targets)) >= 2**63:  # else a state has no number of its own
        raise ConfigError(
            f"environment.kwargs.num_boxes: {len(targets)} boxes are too many for a search of {count} cells",
            "ask for fewer boxes, or a smaller room",
        )
    reached = np.array([[player, *targets]])
    seen = _codes(reached, count)
    frontier = reached
    while len(frontier) and len(reached) < MOST_STATES:
        after = np.concatenate([_pulled(walls, frontier, step) for step in ROOM_MOVES @ [walls.shape[1], 1]])
        codes, first = np.unique(_codes(after, count), return_index=True)
        is_new = ~np.isin(codes, seen, assume_unique=True)
        frontier, seen = after[first[is_new]], np.concatenate([seen, codes[is_new]])
        reached = np.concatenate([reached, frontier])
    return reached


def _codes(states: np.ndarray, count: int) -> np.ndarray:
    """[S] int64, one for each state."""
    return states @ count ** np.arange(states.shape[1])


def _pulled(walls: np.ndarray, states: np.ndarray, step: int) -> np.ndarray:
    """The states after the player has moved, without a box and, where one stands behind it, with that box."""
    player, boxes = states[:, 0], states[:, 1:]
    moves = ~walls.reshape(-1)[player + step] & ~(boxes == (player + step)[:, None]).any(axis=1)
    alone = np.column_stack([player + step, boxes])[moves]
    behind = boxes == (player - step)[:, None]
    with_box = np.column_stack([player + step, np.where(behind, player[:, None], boxes)])[moves & behind.any(axis=1)]
    return np.concatenate([alone, with_box])


def _distance(boxes: np.ndarray, targets: np.ndarray, num_cols: int) -> np.ndarray:
    """[S] the sum over boxes [S, boxes] of rows and columns to their targets."""
    apart = [abs(x - y) for x, y in zip(np.divmod(boxes, num_cols), np.divmod(targets, num_cols), strict=True)]
    return (apart[0] + apart[1]).sum(axis=1)


def _walked(rng: np.random.Generator, walls: np.ndarray, player: int, boxes: list[int], first_p: float) -> int:
    """The cell of the player after up to three moves that push nothing and lead to no cell twice.

    The first is made with `first_p`, each further one with a half.
    """
    steps, visited = ROOM_MOVES @ [walls.shape[1], 1], [player]
    for move_p in (first_p, 0.5, 0.5):
        taken = [*visited, *boxes]
        ways = [visited[-1] + int(step) for step in steps]
        ways = [cell for cell in ways if not walls.reshape(-1)[cell] and cell not in taken]
        if rng.random() >= move_p or not ways:
            break
        visited.append(int(rng.choice(ways)))
    return visited[-1]


def _marks(cells: list[int], walls: np.ndarray) -> np.ndarray:
    """[R, C] bool: true at the cells."""
    return np.isin(np.arange(walls.size), cells).reshape(walls.shape)
