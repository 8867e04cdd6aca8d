"""Plain moves, and what a stack that moves or captures does to the markers on its way."""

from envs.ringrift.plain.actions import Move
from envs.ringrift.plain.position import Phase, cap_height, collapse, controlled, controls, set_stack


def can_move(position, cell, height, cap):
    """Whether a stack of this height and cap could make a plain move or a capture from `cell`."""
    return any(can_move_along(position, path, height, cap) for path in position.board.rays[cell])


def can_move_along(position, path, height, cap):
    """Whether there is a free cell at least `height` away, past at most one stack with no higher cap than `cap`."""
    is_past_stack = False
    for distance, cell in enumerate(path, 1):
        if cell in position.collapsed:
            return False
        if cell not in position.stacks:
            if distance >= height:
                return True
        elif is_past_stack or cap_height(position.stacks[cell]) > cap:
            return False
        else:
            is_past_stack = True
    return False


def can_any_move(position, player):
    return any(
        can_move(position, cell, len(stack), cap_height(stack))
        for cell, stack in position.stacks.items()
        if stack[-1] == player
    )


def plain_moves(position, start):
    """Moves over cells without a stack to one at least as far away as the stack is high."""
    return [Move(start, landing) for path in position.board.rays[start] for landing in landings(position, start, path)]


def landings(position, start, path):
    found = []
    for distance, cell in enumerate(path, 1):
        if cell in position.collapsed or cell in position.stacks:
            break
        if distance >= len(position.stacks[start]):
            found.append(cell)
    return found


def movers(position):
    """The cells of the stacks that may move: the one on which rings were placed, or else all controlled."""
    return controlled(position, position.player) if position.must_move is None else [position.must_move]


def way(position, start, landing):
    """The cells strictly between two on a line."""
    for path in position.board.rays[start]:
        if landing in path:
            return path[: path.index(landing)]
    raise ValueError(f"{start} and {landing} are not on a line")


def pass_over(position, cells):
    """Foreign markers on the way become the player's, own ones collapse."""
    for cell in cells:
        if cell in position.markers:
            if position.markers[cell] == position.player:
                collapse(position, cell, position.player)
            else:
                position.markers[cell] = position.player


def leave(position, start):
    """Takes the stack from its cell, on which a marker of the player stays, and returns it."""
    stack = position.stacks.pop(start)
    position.markers[start] = position.player
    return stack


def land(position, landing, stack):
    """Puts the stack down; landing on a marker takes the marker and costs the top ring."""
    if position.markers.pop(landing, None) is not None:
        position.events.append("marker_landing")
        stack = stack[:-1]
        position.eliminated[position.player] += 1
    set_stack(position, landing, stack)


def move(position, action):
    """A plain move. The stack may then capture from where it landed, if it is still the player's."""
    position.events.append("move")
    pass_over(position, way(position, action.start, action.landing))
    land(position, action.landing, leave(position, action.start))
    go_on_after(position, action.landing, Phase.CAPTURE)


def go_on_after(position, landing, phase):
    """The turn goes on with `phase` from `landing`, or with lines if the stack or its control was lost there."""
    position.is_changed = position.has_acted = True
    keeps_control = controls(position, position.player, landing)
    if not keeps_control:
        position.events.append("control_lost" if phase is Phase.CAPTURE else "control_lost_in_chain")
    position.phase = phase if keeps_control else Phase.LINE
    position.chain_cell = landing if keeps_control else None
