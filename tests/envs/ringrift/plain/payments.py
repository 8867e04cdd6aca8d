"""Payments: a top ring for a line, a cap for a region or for doing nothing, a buried ring after a recovery."""

from envs.ringrift.plain.actions import Pay
from envs.ringrift.plain.position import Phase, cap_height, controlled, set_stack


def line_payment_options(position):
    return [Pay(cell) for cell in line_payers(position)]


def territory_payment_options(position):
    return [Pay(cell) for cell in territory_payers(position)]


def forced_elimination_options(position):
    """Every controlled stack, if the player changed nothing this turn."""
    return [] if position.is_changed else [Pay(cell) for cell in controlled(position, position.player)]


def line_payers(position):
    """Controlled stacks; after a recovery those that can yield a ring."""
    return recovery_payers(position) if position.is_recovering else controlled(position, position.player)


def territory_payers(position):
    """Controlled stacks, wherever they are; on a turn of recovery stacks with a buried ring, controlled or not."""
    return buried(position) if position.is_recovering else controlled(position, position.player)


def recovery_payers(position):
    """Stacks with a buried ring of the player; if a strike bared the only one left, the stack with that."""
    return buried(position) or controlled(position, position.player)


def buried(position):
    """The cells of the stacks with a ring of the player that is not on top, in the order of cells."""
    cells = [cell for cell, stack in position.stacks.items() if position.player in stack[:-1]]
    return sorted(cells, key=position.board.index.__getitem__)


def pay_for_line(position, action):
    if position.is_recovering:
        extract(position, action.cell)
    else:
        position.events.append("line_payment")
        eliminate_top(position, action.cell, 1)
    position.phase = Phase.LINE


def pay_for_territory(position, action):
    if position.is_recovering:
        extract(position, action.cell)
    else:
        position.events.append("territory_payment")
        eliminate_cap(position, action.cell)
    position.phase = Phase.TERRITORY


def eliminate_forced(position, action):
    """The last action of a turn that changed nothing else."""
    position.events.append("forced_elimination")
    eliminate_cap(position, action.cell)
    position.is_changed = True


def eliminate_cap(position, cell):
    eliminate_top(position, cell, cap_height(position.stacks[cell]))


def eliminate_top(position, cell, count):
    """Takes rings from the top of a stack, credited to the player."""
    set_stack(position, cell, position.stacks[cell][:-count])
    position.eliminated[position.player] += count


def extract(position, cell):
    """Takes the player's bottom-most ring from a stack."""
    position.events.append("extraction")
    stack = position.stacks[cell]
    place = stack.index(position.player)
    set_stack(position, cell, stack[:place] + stack[place + 1 :])
    position.eliminated[position.player] += 1
