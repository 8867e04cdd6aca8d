"""A position of RingRift, and the sets of cells that every rule reads from it."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from stoix_like.envs.ringrift.boards import (
    MAX_PLACED,
    RINGS_PER_PLAYER,
    Board,
    line_length,
    make_board,
    ring_victory,
    territory_victory,
)
from stoix_like.envs.ringrift.sets import Ahead, Cells, all_cells, make_ahead, unpacked
from stoix_like.types import Array

#: What the player to move decides. Recovery is decided in MOVEMENT.
PLACEMENT, MOVEMENT, CAPTURE, CHAIN, LINE, LINE_PAYMENT = 0, 1, 2, 3, 4, 5
TERRITORY, TERRITORY_PAYMENT, FORCED_ELIMINATION, OVER = 6, 7, 8, 9
NUM_PHASES = 10
#: How a game ended.
NOT_OVER, BY_RINGS, BY_TERRITORY, ONLY_OWNER, LAST_PLAYER, STALEMATE = 0, 1, 2, 3, 4, 5


class Rules(NamedTuple):
    """A board with the numbers of a game, and tables made from them once."""

    board: Board
    num_players: int  # P
    has_swap: bool
    line_length: int  # markers
    ring_victory: int  # eliminated rings
    territory_victory: int  # cells
    ahead: Ahead


def make_rules(board_name: str, num_players: int, has_swap: bool = False) -> Rules:
    """The rules on `square8` or `hex8` for two to four players."""
    board = make_board(board_name)
    return Rules(
        board=board,
        num_players=num_players,
        has_swap=has_swap,
        line_length=line_length(num_players),
        ring_victory=ring_victory(num_players),
        territory_victory=territory_victory(board, num_players),
        ahead=make_ahead(board),
    )


class RingRiftState(NamedTuple):
    """A position at a decision, or at the end. H levels of stacks, from the top; W words of a set of cells.

    `places` and `regions` follow from the rest, and are kept because they cost more than they weigh.
    """

    rings: Array  # [H, P, W] uint32, the cells where the ring at this level is this player's
    markers: Array  # [P, W] uint32
    collapsed: Array  # [P, W] uint32, the territory of each player
    places: Array  # [3, W] uint32, where one to three rings may be placed now
    regions: Array  # [P + 1, W] uint32, the first cell of each region that may be claimed now, by colour; last: none
    focus: Array  # [W] uint32, the cell of the stack that must be moved, or goes on capturing
    hand: Array  # [P] int8, rings
    eliminated: Array  # [P] int8, rings credited to a player
    lost_at: Array  # [P] int16, the turn in which a player lost its last ring; 0: it has rings
    turn: Array  # [] int16, from 1
    player: Array  # [] int8, the colour to move
    phase: Array  # [] int8
    can_skip: Array  # [] bool
    has_acted: Array  # [] bool: the mover changed something this turn, so nothing is eliminated by force
    is_recovery: Array  # [] bool: the mover recovered this turn, so buried rings pay
    candidate: Array  # [] int8, the only player who had a real action of late; -1: none
    rounds: Array  # [] int8, turns that the candidate had since
    is_swapped: Array  # [] bool: the players have exchanged their colours
    ending: Array  # [] int8
    winner: Array  # [] int8, a colour; -1 while the game is not over


class Position(NamedTuple):
    """What stands on the board, as sets, with the words unpacked."""

    rings: Cells  # [H, P]
    markers: Cells  # [P]
    collapsed: Cells  # [P]


class Sets(NamedTuple):
    """Sets that follow from a position."""

    control: Cells  # [P], the stacks that each player controls
    stacks: Cells  # []
    marked: Cells  # []
    open: Cells  # [], neither stack nor collapsed: what a move passes
    empty: Cells  # [], open and without a marker
    buried: Cells  # [P], the stacks with a ring of this player below another ring

    @property
    def owned(self) -> Cells:
        """[P], the stacks with a ring of this player at any level."""
        return self.control | self.buried


def position_of(state: RingRiftState) -> Position:
    """What stands on the board of a state."""
    return Position(unpacked(state.rings), unpacked(state.markers), unpacked(state.collapsed))


def sets_of(rules: Rules, position: Position) -> Sets:
    """The sets of a position."""
    control = position.rings.at(0)
    stacks, marked = control.union(0), position.markers.union(0)
    open_cells = all_cells(rules.board) & ~(stacks | position.collapsed.union(0))
    buried = position.rings.at(slice(1, None)).union(0)
    return Sets(control, stacks, marked, open_cells, open_cells & ~marked, buried)


def one(state: RingRiftState) -> Array:
    """1, as a number that the compiler does not know. [] int32."""
    return jnp.minimum(state.turn, 1).astype(jnp.int32)


def take(cells: Cells, player: Array) -> Cells:
    """The set of one player, of sets [P, ...] whose first axis is that of players."""
    count = cells.words[0].shape[0]
    chosen = (jnp.arange(count) == player).reshape((count,) + (1,) * (cells.words[0].ndim - 1))
    return cells.where(chosen).union(0)


def empty_state(rules: Rules) -> RingRiftState:
    """A board without anything on it, before anybody may move."""
    words, players = rules.board.num_words, rules.num_players
    return RingRiftState(
        rings=jnp.zeros((rules.board.max_height, players, words), jnp.uint32),
        markers=jnp.zeros((players, words), jnp.uint32),
        collapsed=jnp.zeros((players, words), jnp.uint32),
        places=jnp.zeros((MAX_PLACED, words), jnp.uint32),
        regions=jnp.zeros((players + 1, words), jnp.uint32),
        focus=jnp.zeros((words,), jnp.uint32),
        hand=jnp.full((players,), RINGS_PER_PLAYER, jnp.int8),
        eliminated=jnp.zeros((players,), jnp.int8),
        lost_at=jnp.zeros((players,), jnp.int16),
        turn=jnp.int16(1),
        player=jnp.int8(0),
        phase=jnp.int8(PLACEMENT),
        can_skip=jnp.bool_(False),
        has_acted=jnp.bool_(False),
        is_recovery=jnp.bool_(False),
        candidate=jnp.int8(-1),
        rounds=jnp.int8(0),
        is_swapped=jnp.bool_(False),
        ending=jnp.int8(NOT_OVER),
        winner=jnp.int8(-1),
    )
