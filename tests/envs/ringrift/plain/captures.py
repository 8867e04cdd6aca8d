"""Overtaking captures: as the first action, after a plain move, and in a chain."""

from envs.ringrift.plain.actions import Move, Skip
from envs.ringrift.plain.movement import go_on_after, land, leave, pass_over, way
from envs.ringrift.plain.position import Phase, cap_height, set_stack


def captures(position, start):
    """Captures by the stack on `start`: past the first stack on a ray, if its cap is not higher."""
    return [
        Move(start, landing)
        for path in position.board.rays[start]
        for landing in landings_past_target(position, start, path)
    ]


def landings_past_target(position, start, path):
    """Free cells behind the first stack, before the next one, at least as far from `start` as the attacker is high."""
    stack = position.stacks[start]
    target, found = None, []
    for distance, cell in enumerate(path, 1):
        if cell in position.collapsed:
            break
        if cell in position.stacks:
            if target is not None or cap_height(position.stacks[cell]) > cap_height(stack):
                break
            target = cell
        elif target is not None and distance >= len(stack):
            found.append(cell)
    return found


def capture_options(position):
    """Captures from where a plain move landed; they may be declined."""
    found = captures(position, position.chain_cell)
    return [*found, Skip()] if found else []


def chain_options(position):
    return captures(position, position.chain_cell)


def is_capture(position, action):
    return any(cell in position.stacks for cell in way(position, action.start, action.landing))


def capture(position, action):
    """Takes the top ring of the overtaken stack under the attacker, which must capture on while it can."""
    position.events.append(CAPTURE_EVENTS[position.phase])
    cells = way(position, action.start, action.landing)
    (target,) = (cell for cell in cells if cell in position.stacks)
    *rest, taken = position.stacks[target]
    if taken == position.player:
        position.events.append("capture_of_own")
    pass_over(position, cells)
    set_stack(position, target, tuple(rest))
    land(position, action.landing, (taken, *leave(position, action.start)))
    go_on_after(position, action.landing, Phase.CHAIN)


CAPTURE_EVENTS = {Phase.MOVEMENT: "capture_first", Phase.CAPTURE: "capture_after_move", Phase.CHAIN: "chain"}


def skip_capture(position):
    position.events.append("capture_skipped")
    position.phase = Phase.LINE
