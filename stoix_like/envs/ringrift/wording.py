"""What is said to people: names of actions, what each player has, and why an action is not legal. On the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stoix_like.envs.ringrift import state as phases
from stoix_like.envs.ringrift.actions import PAIR, PAY, PLACE, REGION, SEGMENT, SKIP, SWAP, WHOLE, Actions
from stoix_like.envs.ringrift.boards import WORD, Board
from stoix_like.envs.ringrift.state import RingRiftState, Rules
from stoix_like.types import Array

_AXES = {"square": ("right", "down left", "down", "down right"), "hex": ("right", "down left", "down right")}
#: What is decided in each phase.
_ASKS = {
    phases.PLACEMENT: "rings are placed now",
    phases.MOVEMENT: "a stack is moved now",
    phases.CAPTURE: "the stack that has moved may capture now",
    phases.CHAIN: "the stack must capture on",
    phases.LINE: "a line is collapsed now",
    phases.LINE_PAYMENT: "a ring is paid now",
    phases.TERRITORY: "a region may be claimed now",
    phases.TERRITORY_PAYMENT: "a cap is paid for the region now",
    phases.FORCED_ELIMINATION: "a cap is given up now, as nothing else could be done",
}
#: What is said of the only stack that may act.
_ONLY_IT = {
    phases.MOVEMENT: "must be moved: a ring was placed on it",
    phases.CAPTURE: "has moved, and may capture now",
    phases.CHAIN: "must capture on",
}
_PHASES_OF = {
    PLACE: (phases.PLACEMENT,),
    PAIR: (phases.MOVEMENT, phases.CAPTURE, phases.CHAIN),
    WHOLE: (phases.LINE,),
    SEGMENT: (phases.LINE,),
    REGION: (phases.TERRITORY,),
    PAY: (phases.LINE_PAYMENT, phases.TERRITORY_PAYMENT, phases.FORCED_ELIMINATION),
    SKIP: (phases.PLACEMENT, phases.MOVEMENT, phases.CAPTURE, phases.TERRITORY),
    SWAP: (phases.PLACEMENT,),
}


def cell_name(board: Board, cell: int) -> str:
    """The letter of the column and the number of the row, `a1` at the top left."""
    column, row = board.coordinates[cell]
    return f"{chr(ord('a') + int(column))}{int(row) + 1}"


def action_names(rules: Rules, actions: Actions) -> tuple[str, ...]:
    """[A] such as `place 2 c3`, `e4 to e7`, `line c3 right`, `part c3 right`, `region c3 of 1`, `pay e4`, `skip`."""
    return tuple(_action_name(rules, actions, action) for action in range(actions.total))


def _action_name(rules: Rules, actions: Actions, action: int) -> str:
    kind, number = int(actions.kind[action]), int(actions.number[action])
    start = cell_name(rules.board, int(actions.start[action]))
    if kind == PLACE:
        return f"place {number} {start}"
    if kind == PAIR:
        return f"{start} to {cell_name(rules.board, int(actions.landing[action]))}"
    if kind in (WHOLE, SEGMENT):
        return f"{'line' if kind == WHOLE else 'part'} {start} {_AXES[rules.board.kind][number]}"
    if kind == REGION:
        return f"region {start}" + (f" of {number + 1}" if number < rules.num_players else "")
    return {PAY: f"pay {start}", SKIP: "skip", SWAP: "swap"}[kind]


def status(rules: Rules, state: RingRiftState, names: Sequence[str]) -> str:
    """What is decided now, and what each player has, by the names of the players."""
    swapped = bool(state.is_swapped)
    lines = [] if int(state.phase) == phases.OVER else [_asked(rules, state)]
    territory = _on_cells(rules, state.collapsed).sum(axis=1)
    for player, name in enumerate(names[: rules.num_players]):
        colour = player ^ swapped
        hand, eliminated = int(state.hand[colour]), int(state.eliminated[colour])
        lines.append(
            f"{name}: {hand} in hand, {eliminated} of {rules.ring_victory} eliminated, "
            f"{territory[colour]} of {rules.territory_victory} territory"
        )
    return "\n".join(lines)


def _asked(rules: Rules, state: RingRiftState) -> str:
    """What is decided now."""
    phase = int(state.phase)
    recovers = phase == phases.MOVEMENT and not _controls_any(rules, state)
    return "a marker slides now, to recover a ring" if recovers else _ASKS[phase]


def why_illegal(rules: Rules, actions: Actions, state: RingRiftState, action: int) -> str:
    """Why an action is not legal in a state."""
    kind, phase = int(actions.kind[action]), int(state.phase)
    if phase not in _PHASES_OF[kind]:
        return _asked(rules, state)
    if kind == PLACE:
        return _why_not_placed(rules, state, int(actions.start[action]), int(actions.number[action]))
    if kind == PAIR:
        return _why_not_moved(rules, actions, state, action)
    return {
        WHOLE: "no line of the mover begins there in this direction, or it begins further back",
        SEGMENT: "no part of a longer line of the mover begins there in this direction",
        REGION: "no region that the mover may claim begins there, its first cell in the order of rows",
        PAY: f"nothing at {cell_name(rules.board, int(actions.start[action]))} can pay",
        SKIP: "there is something that must be done",
        SWAP: "only the second player may swap, in its first placement",
    }[kind]


def _why_not_placed(rules: Rules, state: RingRiftState, cell: int, count: int) -> str:
    hand, name = int(state.hand[int(state.player)]), cell_name(rules.board, cell)
    if hand < count:
        return f"{hand} ring{'s are' if hand != 1 else ' is'} in hand"
    if (why := _why_not_empty(rules, state, cell, with_stacks=False)) is not None:
        return why
    if count > 1 and _height(rules, state, cell):
        return f"a stack stands at {name}, and takes one ring at a time"
    return f"the stack at {name} could not move from there"


def _why_not_moved(rules: Rules, actions: Actions, state: RingRiftState, action: int) -> str:
    board = rules.board
    start, landing, direction = (int(x[action]) for x in (actions.start, actions.landing, actions.number))
    name, owners = cell_name(board, start), _owners(rules, state, start)
    focus = np.flatnonzero(_on_cells(rules, state.focus))
    if len(focus) and start != focus[0]:
        return f"the stack at {cell_name(board, int(focus[0]))} {_ONLY_IT[int(state.phase)]}"
    if not _controls_any(rules, state):
        return _why_not_recovered(rules, state, start, landing, direction)
    if not owners or owners[0] != int(state.player):
        return f"no stack of the mover stands at {name}"
    if (why := _why_not_empty(rules, state, landing, with_stacks=True)) is not None:
        return why
    path = [start]
    while path[-1] != landing:
        path.append(board.neighbor(path[-1], direction))
    closed = [cell for cell in path[1:-1] if _on_cells(rules, state.collapsed)[:, cell].any()]
    if closed:
        return f"{cell_name(board, closed[0])} on the way is collapsed"
    return _why_not_so_far(rules, state, owners, path)


def _why_not_recovered(rules: Rules, state: RingRiftState, start: int, landing: int, direction: int) -> str:
    if not _on_cells(rules, state.markers)[int(state.player), start]:
        return f"no marker of the mover lies at {cell_name(rules.board, start)}"
    if rules.board.neighbor(start, direction) != landing:
        return "a marker slides to a cell beside it"
    why = _why_not_empty(rules, state, landing, with_stacks=False)
    return why or "it completes no line there, and another slide does"


def _why_not_so_far(rules: Rules, state: RingRiftState, owners: list[int], path: list[int]) -> str:
    board, distance = rules.board, len(path) - 1
    name, targets = cell_name(board, path[0]), [cell for cell in path[1:-1] if _height(rules, state, cell)]
    if len(targets) > 1:
        return f"more than one stack stands between {name} and {cell_name(board, path[-1])}"
    if not targets and int(state.phase) != phases.MOVEMENT:
        return _asked(rules, state)
    if targets and (theirs := _cap(_owners(rules, state, targets[0]))) > _cap(owners):
        return f"the cap at {cell_name(board, targets[0])} has height {theirs}, that of {name} {_cap(owners)}"
    if distance < len(owners):
        return f"the stack at {name} has height {len(owners)} and must move at least {len(owners)}"
    return "the rules forbid it here"


def _why_not_empty(rules: Rules, state: RingRiftState, cell: int, with_stacks: bool) -> str | None:
    """Why a cell cannot be landed on, or not be placed on: markers forbid only placing."""
    name = cell_name(rules.board, cell)
    if _on_cells(rules, state.collapsed)[:, cell].any():
        return f"{name} is collapsed"
    if with_stacks and _height(rules, state, cell):
        return f"a stack stands at {name}"
    if not with_stacks and _on_cells(rules, state.markers)[:, cell].any():
        return f"a marker lies at {name}"
    return None


def _on_cells(rules: Rules, words: Array) -> np.ndarray:
    """[..., C] bool of sets [..., W] on the host."""
    bits = rules.board.bits
    return (np.asarray(words)[..., bits // WORD] >> (bits % WORD).astype(np.uint32)) & 1 != 0


def _owners(rules: Rules, state: RingRiftState, cell: int) -> list[int]:
    """The owners of the rings of a stack, from the top."""
    has = _on_cells(rules, state.rings)[..., cell]  # [H, P]
    return [int(row.argmax()) for row in has if row.any()]


def _controls_any(rules: Rules, state: RingRiftState) -> bool:
    """Whether the mover's ring is on top of a stack."""
    return bool(_on_cells(rules, state.rings)[0, int(state.player)].any())


def _height(rules: Rules, state: RingRiftState, cell: int) -> int:
    return len(_owners(rules, state, cell))


def _cap(owners: list[int]) -> int:
    return next((level for level, owner in enumerate(owners) if owner != owners[0]), len(owners))
