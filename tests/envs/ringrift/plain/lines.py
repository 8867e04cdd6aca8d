"""Lines of the player's markers: found, collapsed whole or in part, and paid."""

from envs.ringrift.plain.actions import Line, Segment
from envs.ringrift.plain.position import Phase, collapse


def line_options(position):
    """For each line: all of it, and for a longer one also every segment of the required length."""
    length = position.line_length
    options = []
    for cells in lines(position, position.player):
        options.append(Line(cells))
        if len(cells) > length:
            options += [Segment(cells[first : first + length]) for first in range(len(cells) - length + 1)]
    return options


def lines(position, player):
    """The maximal runs of a player's markers that are long enough, by first cell and axis."""
    board = position.board
    starts = [
        (cell, axis)
        for cell in board.cells
        if position.markers.get(cell) == player
        for axis in range(board.num_axes)
        if run(position, player, cell, axis + board.num_axes) == ()
    ]
    found = [(cell, *run(position, player, cell, axis)) for cell, axis in starts]
    return [cells for cells in found if len(cells) >= position.line_length]


def run(position, player, start, direction, without=None):
    """The cells with the player's markers that follow `start` unbroken, as if `without` had no marker."""
    cells = []
    for cell in position.board.rays[start][direction]:
        if position.markers.get(cell) != player or cell == without:
            break
        cells.append(cell)
    return tuple(cells)


def collapse_line(position, action):
    is_exact = len(action.cells) == position.line_length
    name = "recovery_line" if position.is_recovering else "line"
    position.events.append(f"{name}_exact" if is_exact else f"{name}_longer_all")
    collapse_all(position, action.cells)
    position.phase = Phase.LINE_PAYMENT


def collapse_segment(position, action):
    position.events.append("recovery_line_longer_segment" if position.is_recovering else "line_longer_segment")
    collapse_all(position, action.cells)
    position.phase = Phase.LINE


def collapse_all(position, cells):
    for cell in cells:
        collapse(position, cell, position.player)
