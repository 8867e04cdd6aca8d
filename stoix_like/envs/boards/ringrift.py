"""RingRift on square8 and hex8 for two to four players as board games: names of moves, symmetries, and what is said to
people. The rules are in `envs.ringrift`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.envs.ringrift import actions as action_lists
from stoix_like.envs.ringrift import rules as play
from stoix_like.envs.ringrift import wording
from stoix_like.envs.ringrift.actions import Actions, make_actions
from stoix_like.envs.ringrift.boards import NOWHERE, RINGS_PER_PLAYER, Board
from stoix_like.envs.ringrift.endings import outcome
from stoix_like.envs.ringrift.heuristic import preference
from stoix_like.envs.ringrift.planes import num_shared_planes, planes
from stoix_like.envs.ringrift.sets import as_bools
from stoix_like.envs.ringrift.state import NOT_OVER, RingRiftState, Rules, make_rules, position_of
from stoix_like.errors import ConfigError
from stoix_like.games import ActionPlaces, BoardGame, BoardLayout, Picture, Symmetries, Wording
from stoix_like.types import Array, Observation

T = TypeVar("T")
MAX_LEGAL = 256  # a placement has at most 192; a crowded board may have more, such as that of tests/…/test_heuristic.py
SELF_PLAY_PLIES = 256  # random games take 78 to 114 on average (docs/benchmarks/ringrift.md: decisions by games)


@functools.cache  # one game a process: so its functions are traced once, and its openings made once
def make_ringrift(board_name: str, num_players: int, has_swap: bool = False) -> BoardGame:
    """RingRift with the rules of its authors, as docs/ringrift.md tells them.

    Args:
        board_name: `square8` or `hex8`.
        num_players: 2 to 4.
        has_swap: the second of two players may take the colour of the first one in its first placement.

    Raises ConfigError for another number of players, and for a swap of more than two.
    """
    _check_players(board_name, num_players, has_swap)
    rules = make_rules(board_name, num_players, has_swap)
    actions = make_actions(rules)
    cells = cell_symmetries(rules.board)
    legal = _traced_once(functools.partial(play.legal_actions, rules, actions))
    name = board_name + ("_swap" if has_swap else "") + ("" if num_players == 2 else f"_{num_players}p")
    return BoardGame(
        name=name,
        num_players=num_players,
        num_actions=actions.total,
        max_plies=max_plies(rules),
        init=functools.partial(play.init, rules),
        step=_traced_once(functools.partial(play.step, rules, actions)),
        observe=_traced_once(lambda state: Observation(planes(rules, state), legal(state))),
        legal_actions=legal,
        player=_player,
        outcome=lambda state: _by_agent(state, outcome(rules, state)),
        is_over=lambda state: state.ending != NOT_OVER,
        cells=lambda state: _owners(state, as_bools(rules.board, position_of(state).rings.at(0))),
        preference=_traced_once(functools.partial(preference, rules, actions)),
        layout=_layout(rules, actions),
        symmetries=Symmetries(cells, action_symmetries(rules, actions, cells), is_named_by_first_cell(actions)),
        picture=functools.partial(_picture, rules),
        random_action=_traced_once(functools.partial(play.random_action, rules, actions)),
        wording=_wording(rules, actions),
        self_play_plies=SELF_PLAY_PLIES,
        max_legal=MAX_LEGAL,
    )


def _traced_once(function: Callable[..., T]) -> Callable[..., T]:
    """The function, of which JAX keeps the trace: these have thousands of operations, and a learner calls them in many
    places. Inlined, so that the programs are the same."""
    traced: Callable[..., T] = jax.jit(function, inline=True)
    return traced


def _wording(rules: Rules, actions: Actions) -> Wording:
    return Wording(
        status=functools.partial(wording.status, rules),
        why_illegal=functools.partial(wording.why_illegal, rules, actions),
        moves=wording.MOVES + (wording.SWAPS if rules.has_swap else ()),
        holdings=functools.partial(wording.holdings, rules),
        result=functools.partial(wording.result, rules),
    )


def _check_players(board_name: str, num_players: int, has_swap: bool) -> None:
    if num_players not in (2, 3, 4) or (has_swap and num_players != 2):
        what = f"{board_name}: {num_players} players{' who may swap' if has_swap else ''}"
        raise ConfigError(what, "RingRift is for 2 to 4 players, with the swap for 2")


def max_plies(rules: Rules) -> int:
    """A bound of the decisions in a game, far above what games take.

    S = markers + collapsed cells + eliminated rings never falls. Markers and collapsed cells lie on different cells, so
    S is at most C and all rings. Each move, each segment of a capture and each payment raises it. What is free, a part
    of a longer line or a whole one that nobody can pay for, collapses L cells: at most C / L times. These are the
    actions of progress. All others are placements, skips, a swap, slides and strikes of markers, and choices of a line
    or region that is then paid for. Before an action of progress there are at most 2 P + 1 of them:

    - 2 in the turn of the last progress: a skip of the capture, then one of the regions.
    - 2 in each whole turn without progress: a skip of the placement, then one of the recovery. Who controls a stack
      makes progress, and so does who must place. If there is a stack somebody controls one, and if there is none nobody
      can skip a placement. So at most P - 1 of these turns follow each other.
    - 3 in the turn of the next progress: a skip of the placement, a slide and the choice of the line that it completes,
      which a buried ring pays for. Then another player controls a stack, so there were only P - 2 turns before. After
      P - 1 of them there is 1: a placement or its skip, a region, or its skip and a forced elimination.

    The swap stands before the placement of the second turn, and the first turn has progress. With the progress itself
    this makes 2 P + 2 decisions. After the last progress 2 P are left by the same count, fewer than the free + 1 added.
    """
    board, players = rules.board, rules.num_players
    most = board.num_cells + RINGS_PER_PLAYER * players
    free = board.num_cells // rules.line_length
    return (most + free) * (2 * players + 2) + free + 1


def _player(state: RingRiftState) -> Array:
    """The agent that moves: after a swap the two have exchanged their colours."""
    return (state.player ^ state.is_swapped.astype(jnp.int8)).astype(jnp.int32)


def _by_agent(state: RingRiftState, by_colour: Array) -> Array:
    return jnp.where(state.is_swapped, jnp.roll(by_colour, 1), by_colour)


def _owners(state: RingRiftState, has: Array) -> Array:
    """[..., C] int8 of colours [..., P, C] bool: which of the players has a cell; -1: none."""
    player = jnp.argmax(has, axis=-2) ^ state.is_swapped
    return jnp.where(jnp.any(has, axis=-2), player, -1).astype(jnp.int8)


def _picture(rules: Rules, state: RingRiftState) -> Picture:
    """What lies on each cell, by players."""
    position = position_of(state)
    rings = _owners(state, as_bools(rules.board, position.rings))  # [H, C] from the top
    height = jnp.sum(rings >= 0, axis=0)  # [C]
    levels = height[None] - 1 - jnp.arange(rules.board.max_height)[:, None]  # [H, C], the level from the top
    from_below = jnp.where(levels >= 0, jnp.take_along_axis(rings, jnp.maximum(levels, 0), axis=0), -1)
    markers, territory = (_owners(state, as_bools(rules.board, cells)) for cells in position[1:])
    return Picture(from_below.T.astype(jnp.int8), markers, territory)


def _layout(rules: Rules, actions: Actions) -> BoardLayout:
    board = rules.board
    directions = [direction for direction in range(len(board.directions)) if board.directions[direction] != NOWHERE]
    neighbors = [[board.neighbor(cell, direction) for direction in directions] for cell in range(board.num_cells)]
    return BoardLayout(
        shape=(int(board.coordinates[:, 1].max()) + 1, board.stride),
        kind=board.kind,
        neighbors=np.array(neighbors, np.int32),
        action_names=wording.action_names(rules, actions),
        coordinates=None if board.kind == "square" else board.coordinates[:, ::-1].astype(np.int32),
        action_places=action_places(actions),
        num_shared_planes=num_shared_planes(rules),
    )


def action_places(actions: Actions) -> ActionPlaces:
    """Actions by cell. The sets of legal actions have a row for each kind: rings to place, direction and distance of a
    pair, axis of a line, colour of a region, payment. Of hexagons the rows of the fourth axis are empty."""
    on_cells = actions.start >= 0
    planes = np.unique(actions.row, return_inverse=True)[1]
    others = np.cumsum(~on_cells) - 1
    return ActionPlaces(
        cells=actions.start,
        planes=np.where(on_cells, planes, others).astype(np.int32),
        landings=actions.landing,
    )


def cell_symmetries(board: Board) -> np.ndarray:
    """[S, C] int32: the cell that moves to each place, by symmetry of the board; row 0 is the identity."""
    middle = board.stride - 1
    found = []
    for column, row in _maps(board.kind):
        centred = 2 * board.coordinates - middle  # [C, 2], so that the centre is 0
        moved = np.stack([centred @ np.array(column), centred @ np.array(row)], axis=1)
        places = [board.cell_at(*((place + middle) // 2).tolist()) for place in moved]
        found.append(np.argsort(places))
    return np.array(found, np.int32)


def _maps(kind: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Linear maps (new column, new row) of (column, row) from the centre: 8 of a square, 12 of a hexagon."""
    turn = ((0, -1), (1, 0)) if kind == "square" else ((0, -1), (1, 1))
    flip = ((0, 1), (1, 0))
    found = []
    for is_flipped in (False, True):
        current = np.array(flip if is_flipped else ((1, 0), (0, 1)))
        for _ in range(4 if kind == "square" else 6):
            (a, b), (c, d) = current.tolist()
            found.append(((a, b), (c, d)))
            current = np.array(turn) @ current
    return found


def action_symmetries(rules: Rules, actions: Actions, cells: np.ndarray) -> np.ndarray:
    """[S, A] int32: the action that becomes each action. Whole lines and regions, which are named by a first cell, stay
    as they are: positions that offer some are shown as they are."""
    numbers = np.where(actions.kind == action_lists.PAIR, 0, actions.number)
    index = {key: action for action, key in enumerate(zip(*_keys(actions, numbers), strict=True))}
    segments = _segments(rules, actions)
    by_cells = {frozenset(line): action for action, line in segments.items()}
    found = []
    for table in cells:
        place = np.append(np.argsort(table), -1)  # of each cell; -1 stays
        becomes = np.arange(actions.total)
        moving = np.isin(actions.kind, (action_lists.PLACE, action_lists.PAIR, action_lists.PAY))
        for action in np.flatnonzero(moving):
            kind, number = int(actions.kind[action]), int(numbers[action])
            becomes[action] = index[
                kind, number, int(place[actions.start[action]]), int(place[actions.landing[action]])
            ]
        for segment, line in segments.items():
            becomes[segment] = by_cells[frozenset(int(place[cell]) for cell in line)]
        found.append(np.argsort(becomes))
    return np.array(found, np.int32)


def is_named_by_first_cell(actions: Actions) -> np.ndarray:
    """[A] bool: whole lines and regions, which no symmetry but the identity maps."""
    return np.isin(actions.kind, (action_lists.WHOLE, action_lists.REGION))


def _keys(actions: Actions, numbers: np.ndarray) -> list[list[int]]:
    return [column.tolist() for column in (actions.kind, numbers, actions.start, actions.landing)]


def _segments(rules: Rules, actions: Actions) -> dict[int, list[int]]:
    """The cells of each part of a line, by its action."""
    found = {}
    for action in np.flatnonzero(actions.kind == action_lists.SEGMENT):
        start, axis = int(actions.start[action]), int(actions.number[action])
        found[int(action)] = [rules.board.neighbor(start, axis, step) for step in range(rules.line_length)]
    return found
