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
#: (an example, what it does) of each kind of move.
MOVES = (
    ("place 2 c3", "place one, two or three rings"),
    ("c3 to c5", "move a stack, capture with it, or recover with a marker"),
    ("line c3 right", "collapse a whole line that begins at c3"),
    ("part c3 right", "collapse a part of a longer line, from c3 on"),
    ("region c3 of 1", "claim the region with the first cell c3 that markers of the first player bound"),
    ("region c3", "claim a region that no markers bound"),
    ("pay e4", "pay with the stack on e4"),
    ("skip", "decline"),
)
SWAPS = (("swap", "exchange the colours, at the second player's first placement"),)
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
    phases.OVER: "the game is over",
}
#: What must be done in each phase that cannot be skipped now.
_MUSTS = {
    phases.PLACEMENT: "rings must be placed: no stack of the mover could move, and it may not recover",
    phases.MOVEMENT: "a stack must be moved",
    phases.LINE: "a line must be collapsed",
    phases.LINE_PAYMENT: "a ring must be paid for the line",
    phases.TERRITORY_PAYMENT: "a cap must be paid for the region",
    phases.FORCED_ELIMINATION: "a cap must be given up, as nothing else could be done",
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
    asked = [] if int(state.phase) == phases.OVER else [_asked(rules, state)]
    players = zip(names[: rules.num_players], holdings(rules, state), strict=True)
    return "\n".join([*asked, *(f"{name}: {has}" for name, has in players)])


def holdings(rules: Rules, state: RingRiftState) -> list[str]:
    """[P] what each player has beside its stacks and markers."""
    territory = _on_cells(rules, state.collapsed).sum(axis=1)
    return [
        f"{int(state.hand[colour])} in hand, {int(state.eliminated[colour])} of {rules.ring_victory} eliminated, "
        f"{territory[colour]} of {rules.territory_victory} territory"
        for colour in (player ^ bool(state.is_swapped) for player in range(rules.num_players))
    ]


def _asked(rules: Rules, state: RingRiftState) -> str:
    """What is decided now."""
    phase = int(state.phase)
    recovers = phase == phases.MOVEMENT and not _controls_any(rules, state)
    return "a marker slides now, to recover a ring" if recovers else _ASKS[phase]


def _must(rules: Rules, state: RingRiftState) -> str:
    """What must be done now, where nothing may be skipped."""
    focus, phase = np.flatnonzero(_on_cells(rules, state.focus)), int(state.phase)
    if len(focus) and phase in _ONLY_IT:
        return f"the stack at {cell_name(rules.board, int(focus[0]))} {_ONLY_IT[phase]}"
    return _MUSTS.get(phase, _ASKS[phase])


def result(rules: Rules, state: RingRiftState) -> str:
    """By what a game that is over was decided."""
    winner, ending = int(state.winner), int(state.ending)
    if ending == phases.BY_RINGS:
        return f"by rings ({int(state.eliminated[winner])} eliminated, {rules.ring_victory} win)"
    if ending == phases.BY_TERRITORY:
        cells = _on_cells(rules, state.collapsed).sum(axis=1)
        rest = int(cells.sum() - cells[winner])
        return f"by territory ({cells[winner]} cells, {rules.territory_victory} win, and all others have {rest})"
    if ending == phases.ONLY_OWNER:
        return "as the only owner (nobody else has a ring, in hand or on the board)"
    if ending == phases.LAST_PLAYER:
        return "as the last player standing (for three rounds nobody else could place, move or capture)"
    return f"by stalemate (there is no stack, nobody can place, and {_decided_stalemate(rules, state)})"


def _decided_stalemate(rules: Rules, state: RingRiftState) -> str:
    """What distinguished the winner where nobody could go on; compare `endings._best_of_stuck`."""
    winner = int(state.winner)
    counts = {
        "territory": _on_cells(rules, state.collapsed).sum(axis=1),
        "rings, those in hand included,": np.asarray(state.eliminated).astype(int) + np.asarray(state.hand),
        "markers": _on_cells(rules, state.markers).sum(axis=1),
    }
    best = np.ones(rules.num_players, bool)
    for name, count in counts.items():
        best &= count == count[best].max()
        if best.sum() == 1:
            return f"{name} decided"
    return "the best are equal" + (", so the turn that ended decided" if winner >= 0 else "")


def why_illegal(rules: Rules, actions: Actions, state: RingRiftState, action: int) -> str:
    """Why an action is not legal in a state."""
    kind, phase = int(actions.kind[action]), int(state.phase)
    if kind == SKIP:
        return _must(rules, state)
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
