"""Placing rings: where, how many, and when it may be declined."""

from envs.ringrift.plain import recovery
from envs.ringrift.plain.actions import Place, Skip, Swap
from envs.ringrift.plain.movement import can_any_move, can_move
from envs.ringrift.plain.position import Phase, cap_height, is_empty

MOST_RINGS_AT_ONCE = 3


def placement_options(position):
    """Placements, then what may be done instead. Nothing if no placement is legal: the phase then passes by itself."""
    placements = legal_placements(position, position.player)
    if not placements:
        return []
    others = [Skip()] if may_skip_placement(position) else []
    return [*placements, *others, *([Swap()] if may_swap(position) else [])]


def legal_placements(position, player):
    """Every placement after which the stack could move; notes if another was refused."""
    if position.hand[player] == 0:
        return []
    placements = [place for cell in position.board.cells for place in placements_on(position, player, cell)]
    legal = [place for place in placements if not is_dead(position, player, place)]
    if len(legal) < len(placements):
        position.events.append("dead_placement_refused")
    return legal


def placements_on(position, player, cell):
    """One ring onto any stack, one to three onto an empty cell, none onto a marker or a collapsed cell."""
    if cell in position.stacks:
        return [Place(cell, 1)]
    if is_empty(position, cell):
        return [Place(cell, count + 1) for count in range(min(MOST_RINGS_AT_ONCE, position.hand[player]))]
    return []


def is_dead(position, player, place):
    stack = position.stacks.get(place.cell, ()) + (player,) * place.count
    return not can_move(position, place.cell, len(stack), cap_height(stack))


def may_skip_placement(position):
    """Whether a controlled stack can move, or the player may recover, be there a slide or not."""
    return can_any_move(position, position.player) or recovery.may_recover(position, position.player)


def may_swap(position):
    return position.swap_enabled and position.num_players == 2 and position.player == 2 and not position.swap_offered


def place(position, action):
    player, cell = position.player, action.cell
    position.events.append("placement_on_stack" if cell in position.stacks else "placement")
    position.stacks[cell] = position.stacks.get(cell, ()) + (player,) * action.count
    position.hand[player] -= action.count
    position.must_move = cell
    position.is_changed = position.has_acted = True
    position.phase = Phase.MOVEMENT


def swap(position, action):
    """The players exchange their colours: nothing on the board changes, and the placement is still to come."""
    position.events.append("swap")
    position.has_swapped = True


def skip_placement(position):
    position.events.append("placement_skipped")
    position.phase = Phase.MOVEMENT
