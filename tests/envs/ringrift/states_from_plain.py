"""The package's state of a plain position, so that both can play on from any position and not from the start alone."""

import numpy as np
from envs.ringrift.against_plain import ENDINGS, batched, index_of, play_beside
from envs.ringrift.plain import game
from envs.ringrift.plain.actions import Place, Region, Skip, Swap
from envs.ringrift.plain.position import Phase

from stoix_like.envs.ringrift.boards import MAX_PLACED
from stoix_like.envs.ringrift.sets import board_words
from stoix_like.envs.ringrift.state import RingRiftState

MOST_PLIES = 600  # more than games take


def play_from(found, positions, generator, choose=None, watch=None):
    """As `play_beside` from plain positions."""
    states = batched([from_plain(found, position) for position in positions])
    return play_beside(found, states, positions, generator, MOST_PLIES, choose, watch)


def from_plain(found, position):
    """The state of a position that stands at a decision, or is over. Cached sets are those of the plain options."""
    options = game.legal(position)
    return RingRiftState(
        **cells_of(found, position, options),
        **turn_of(position, options),
        hand=np.array(list(position.hand.values()), np.int8),
        eliminated=np.array(list(position.eliminated.values()), np.int8),
        can_skip=np.bool_(Skip() in options),
        has_acted=np.bool_(position.is_changed),
        is_recovery=np.bool_(position.is_recovering),
        is_swapped=np.bool_(position.has_swapped),
        candidate=np.int8((position.candidate or 0) - 1),
        rounds=np.int8(position.num_rounds),
        ending=np.int8(ENDINGS.index(position.ending)),
        winner=np.int8((position.winner or 0) - 1),
    )


def cells_of(found, position, options):
    """The fields that are sets of cells."""
    board, cells, players = found.rules.board, position.board.index, position.num_players
    rings = np.zeros((board.max_height, players, board.num_cells), bool)
    markers, collapsed = np.zeros((2, players, board.num_cells), bool)
    for cell, stack in position.stacks.items():
        for level, owner in enumerate(reversed(stack)):
            rings[level, owner - 1, cells[cell]] = True
    for has, owners in ((markers, position.markers), (collapsed, position.collapsed)):
        for cell, owner in owners.items():
            has[owner - 1, cells[cell]] = True
    places, regions = chosen_by(found, position, options)
    focus = np.zeros(board.num_cells, bool)
    if (cell := focus_of(position)) is not None:
        focus[cells[cell]] = True
    sets = {"rings": rings, "markers": markers, "collapsed": collapsed}
    sets |= {"places": places, "regions": regions, "focus": focus}
    return {name: board_words(board, has) for name, has in sets.items()}


def chosen_by(found, position, options):
    """(cells by number of rings to place, first cells of regions by colour, the last one without), of the options."""
    places = np.zeros((MAX_PLACED, found.rules.board.num_cells), bool)
    regions = np.zeros((position.num_players + 1, found.rules.board.num_cells), bool)
    for option in options:
        if type(option) is Place:
            places[option.count - 1, position.board.index[option.cell]] = True
        if type(option) is Region:
            action = index_of(found, position, option)
            regions[found.actions.number[action], found.actions.start[action]] = True
    return places, regions


def focus_of(position):
    """The cell of the stack that must move, or goes on."""
    if position.phase is Phase.MOVEMENT:
        return position.must_move
    return position.chain_cell if position.phase in (Phase.CAPTURE, Phase.CHAIN) else None


def turn_of(position, options):
    """The phase, and the turns as the package counts them: passed seats may count or not, as only the order matters.

    The second turn is told by its number, and then only if the swap is on offer.
    """
    number = max([position.num_turns, *position.last_ring_turn.values()]) + 1
    is_before_offer = position.swap_enabled and not position.swap_offered
    assert number == 2 or Swap() not in options
    lost = [position.last_ring_turn.get(player, 0) for player in position.players]
    return {
        "turn": np.int16(number if is_before_offer else max(number, 3)),
        "lost_at": np.array(lost, np.int16),
        "player": np.int8(position.player - 1),
        "phase": np.int8(position.phase.value - 1),
    }
