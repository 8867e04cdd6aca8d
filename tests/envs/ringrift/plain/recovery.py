"""Recovery: what a player without a stack can do with a marker while a ring is buried."""

from envs.ringrift.plain.actions import Skip, Slide, Strike
from envs.ringrift.plain.lines import run
from envs.ringrift.plain.payments import eliminate_top
from envs.ringrift.plain.position import Phase, controls_any, is_empty, players_on_board


def may_recover(position, player):
    """Whether the player controls no stack, and has a marker and a buried ring."""
    has_marker = player in position.markers.values()
    return has_marker and player in players_on_board(position) and not controls_any(position, player)


def recovery_options(position):
    """Slides into a line; if there is none, any slide and any strike; they may be declined."""
    if not may_recover(position, position.player):
        return []
    all_slides = slides(position)
    into_line = [slide for slide in all_slides if makes_line(position, slide)]
    found = into_line or [*all_slides, *strikes(position)]
    return [*found, Skip()] if found else []


def own_markers(position):
    return [cell for cell in position.board.cells if position.markers.get(cell) == position.player]


def slides(position):
    return [
        Slide(cell, near)
        for cell in own_markers(position)
        for near in position.board.beside[cell]
        if is_empty(position, near)
    ]


def strikes(position):
    return [
        Strike(cell, near)
        for cell in own_markers(position)
        for near in position.board.beside[cell]
        if near in position.stacks
    ]


def makes_line(position, action):
    """Whether the marker that slid stands in a run that is long enough."""
    board, (start, landing) = position.board, action
    reach = [len(run(position, position.player, landing, way, without=start)) for way in range(2 * board.num_axes)]
    return any(
        1 + forward + back >= position.line_length
        for forward, back in zip(reach[: board.num_axes], reach[board.num_axes :], strict=True)
    )


def slide(position, action):
    """The marker moves. A line is then handled as any line; without one, a ring is extracted."""
    into_line = makes_line(position, action)
    position.events.append("recovery_line" if into_line else "recovery_fallback")
    del position.markers[action.start]
    position.markers[action.landing] = position.player
    begin_recovery(position, Phase.LINE if into_line else Phase.LINE_PAYMENT)


def strike(position, action):
    """The marker is lost, and the stack beside it loses its top ring; a ring is extracted."""
    position.events.append("recovery_strike")
    del position.markers[action.start]
    eliminate_top(position, action.target, 1)
    begin_recovery(position, Phase.LINE_PAYMENT)


def begin_recovery(position, phase):
    position.is_changed = position.is_recovering = True
    position.phase = phase


def skip_recovery(position):
    position.events.append("recovery_skip")
    position.phase = Phase.LINE
