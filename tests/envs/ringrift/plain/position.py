"""A position of RingRift: what lies on the cells, what each player has, and where in the turn the game stands.

A position is a value: only `game.play` and the functions it calls change one, and they change a copy.
"""

import dataclasses
import enum
from dataclasses import dataclass, field
from typing import Any

from envs.ringrift.plain import boards
from envs.ringrift.plain.boards import Board, Cell


class Phase(enum.Enum):
    PLACEMENT = enum.auto()
    MOVEMENT = enum.auto()  # recovery too
    CAPTURE = enum.auto()  # a capture after a plain move
    CHAIN = enum.auto()
    LINE = enum.auto()
    LINE_PAYMENT = enum.auto()  # the extraction that a fallback slide or a strike costs, too
    TERRITORY = enum.auto()
    TERRITORY_PAYMENT = enum.auto()
    FORCED_ELIMINATION = enum.auto()
    OVER = enum.auto()


@dataclass
class Position:
    """`stacks` hold the owners of rings from bottom to top; a cell is in at most one of the three dictionaries."""

    board: Board
    num_players: int
    line_length: int
    ring_victory: int
    territory_victory: int
    hand: dict[int, int]  # by player, as the next two
    eliminated: dict[int, int]  # rings credited to a player, of any colour
    territory: dict[int, int]  # number of own collapsed cells
    stacks: dict[Cell, tuple[int, ...]] = field(default_factory=dict)
    markers: dict[Cell, int] = field(default_factory=dict)
    collapsed: dict[Cell, int] = field(default_factory=dict)

    player: int = 1  # who decides; a colour, 1 .. num_players
    phase: Phase = Phase.PLACEMENT
    must_move: Cell | None = None  # where rings were placed this turn
    chain_cell: Cell | None = None  # where the stack stands that moved this turn, while it may capture
    is_changed: bool = False  # placement, move, capture, recovery or claim this turn: no forced elimination
    has_acted: bool = False  # placement, move or capture this turn: counts for the last player standing
    is_recovering: bool = False  # a recovery this turn: payments are extractions
    has_decided: bool = False  # any action this turn

    num_turns: int = 0  # that have ended, passed ones included
    candidate: int | None = None  # for the last player standing
    num_rounds: int = 0  # that the candidate alone could act
    last_ring_turn: dict[int, int] = field(default_factory=dict)  # turn in which a player lost the last ring
    swap_enabled: bool = False
    swap_offered: bool = False  # player 2 has answered the offer
    has_swapped: bool = False

    ending: str | None = None  # "rings", "territory", "only_owner", "last_player" or "stalemate"
    winner: int | None = None  # None also where a stalemate has no single winner
    options: list[Any] = field(default_factory=list)  # the legal actions
    events: list[str] = field(default_factory=list)  # of the last action, up to this decision

    @property
    def players(self):
        return range(1, self.num_players + 1)


COPIED = ("hand", "eliminated", "territory", "stacks", "markers", "collapsed", "last_ring_turn")


def copied(position):
    """An equal position that can be changed, without options and events."""
    copies = {name: dict(vars(position)[name]) for name in COPIED}
    return dataclasses.replace(position, **copies, options=[], events=[])


def make_position(board_name, num_players, **fields):
    """An empty board with all rings in hand, player 1 to place; any field can be given instead."""
    board = boards.make_board(board_name)
    everyone = range(1, num_players + 1)
    usual = {
        "line_length": boards.line_length(board, num_players),
        "ring_victory": boards.ring_victory(board, num_players),
        "territory_victory": boards.territory_victory(board, num_players),
        "hand": dict.fromkeys(everyone, board.rings_per_player),
        "eliminated": dict.fromkeys(everyone, 0),
        "territory": dict.fromkeys(everyone, 0),
    }
    return Position(board, num_players, **(usual | fields))


def cap_height(stack):
    """Rings of the controller from the top down, up to the first of another player."""
    height = 1
    while height < len(stack) and stack[-1 - height] == stack[-1]:
        height += 1
    return height


def controls(position, player, cell):
    stack = position.stacks.get(cell)
    return stack is not None and stack[-1] == player


def controlled(position, player):
    """The cells of the stacks with a ring of `player` on top, in the order of cells."""
    cells = [cell for cell, stack in position.stacks.items() if stack[-1] == player]
    return sorted(cells, key=position.board.index.__getitem__)


def controls_any(position, player):
    return any(stack[-1] == player for stack in position.stacks.values())


def is_empty(position, cell):
    return cell not in position.stacks and cell not in position.markers and cell not in position.collapsed


def players_on_board(position):
    """Everyone with a ring on the board, buried ones included."""
    return {owner for stack in position.stacks.values() for owner in stack}


def has_rings(position, player):
    return position.hand[player] > 0 or any(player in stack for stack in position.stacks.values())


def num_markers(position, player):
    return sum(owner == player for owner in position.markers.values())


def collapse(position, cell, player):
    """Makes a cell without a stack territory of `player`."""
    position.markers.pop(cell, None)
    position.collapsed[cell] = player
    position.territory[player] += 1


def set_stack(position, cell, stack):
    """Puts a stack on a cell, or nothing if it has no ring."""
    if stack:
        position.stacks[cell] = stack
    else:
        position.stacks.pop(cell, None)


def progress(position):
    """S = markers + collapsed cells + eliminated rings: never falls."""
    return len(position.markers) + len(position.collapsed) + sum(position.eliminated.values())


def potential(position):
    """Markers + 2 collapsed cells + eliminated rings: rises with all but placements, skips and unpaid recoveries."""
    return progress(position) + len(position.collapsed)


def num_rings(position):
    """All rings: in hands, on the board and eliminated."""
    on_board = sum(len(stack) for stack in position.stacks.values())
    return on_board + sum(position.hand.values()) + sum(position.eliminated.values())
