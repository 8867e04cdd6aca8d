"""Recorded positions, moves and outcomes of RingRift, read as positions and actions of the plain rules.

The cases in cases.json are facts from tests/fixtures of github synaptent/RingRift at commit 2aa9f89b5, under the MIT
licence. A case is a position, a move and what RingRift's programs made of it: a whole state (set `rules-parity`) or
some numbers (set `contract`); six cases of the latter record no move. The set `golden` holds the moves of whole games.

RingRift also records what it did not ask the player for. How that is read here:
- A phase without options passes by itself, so `no_..._action` needs no action, and a declined option is `Skip`.
- A case in the middle of a turn has changed something before; a chain without a place goes on from the move's start.
- The elimination recorded in `territory_processing` is the payment for a region.
- A third coordinate that is not recorded follows from the other two.
"""

import json
from pathlib import Path

from envs.ringrift.plain.actions import Line, Move, Pay, Place, Region, Segment, Skip, Swap
from envs.ringrift.plain.position import Phase, make_position

PHASES = {
    "ring_placement": Phase.PLACEMENT,
    "movement": Phase.MOVEMENT,
    "chain_capture": Phase.CHAIN,
    "line_processing": Phase.LINE,
    "territory_processing": Phase.TERRITORY,
    "game_over": Phase.OVER,
}


def load_cases():
    cases = json.loads(Path(__file__).with_name("cases.json").read_text())
    return {case["name"]: case for case in cases}


def cell_of(numbers, board_name):
    """The cell of a list [x, y] or [x, y, z], or of a dictionary of these."""
    x, y = (numbers["x"], numbers["y"]) if isinstance(numbers, dict) else numbers[:2]
    return (x, y) if board_name.startswith("square") else (x, y, -x - y)


def position_of(case, move):
    """The recorded position, in the phase in which `move` (or None) is due; `settled` finds its options."""
    initial = case["initial"]
    name, players = initial["board"], initial["players"]
    phase = phase_of(initial, move)
    fields = {
        word: {seat: player[word] for seat, player in enumerate(players, 1)}
        for word in ("hand", "eliminated", "territory")
    }
    fields |= {word: initial[word] for word in ("ring_victory", "territory_victory") if word in initial}
    return make_position(
        name,
        len(players),
        player=initial["player"],
        phase=phase,
        chain_cell=chain_cell_of(initial, move) if phase is Phase.CHAIN else None,
        is_changed=phase not in (Phase.PLACEMENT, Phase.MOVEMENT),
        stacks={cell_of(numbers, name): tuple(reversed(numbers[-1])) for numbers in initial["stacks"]},
        markers=owners_of(initial["markers"], name),
        collapsed=owners_of(initial["collapsed"], name),
        **fields,
    )


def owners_of(entries, board_name):
    return {cell_of(numbers, board_name): numbers[-1] for numbers in entries}


def phase_of(initial, move):
    is_payment = move is not None and move["type"] == "eliminate_rings_from_stack"
    phase = PHASES[initial["phase"]]
    return Phase.TERRITORY_PAYMENT if is_payment and phase is Phase.TERRITORY else phase


def chain_cell_of(initial, move):
    return cell_of(initial.get("chain_at") or move["from"], initial["board"])


def action_of(move, position):
    """The action that a recorded move names. It need not be legal."""
    return ACTIONS[move["type"]](move, position)


def target_cell(move, position):
    return cell_of(move["to"], position.board.name)


def place_of(move, position):
    return Place(target_cell(move, position), move.get("placementCount") or 1)


def move_of(move, position):
    return Move(cell_of(move["from"], position.board.name), target_cell(move, position))


def line_of(move, position):
    """The whole first line, or the segment of it that is recorded as collapsed."""
    name = position.board.name
    lines = [[cell_of(numbers, name) for numbers in line["positions"]] for line in move["formedLines"] or ()]
    cells = tuple(sorted(lines[0], key=position.board.index.__getitem__)) if lines else ()
    part = tuple(cell_of(numbers, name) for numbers in move.get("collapsedMarkers") or ())
    return Segment(part) if 0 < len(part) < len(cells) else Line(cells)


def region_of(move, position):
    """The first recorded region, as one without a colour; no colour is recorded."""
    regions = move.get("disconnectedRegions") or [{"spaces": []}]
    return Region(0, frozenset(cell_of(numbers, position.board.name) for numbers in regions[0]["spaces"]))


def pay_of(move, position):
    return Pay(target_cell(move, position))


def skip_of(move, position):
    return Skip()


def swap_of(move, position):
    return Swap()


ACTIONS = {
    "place_ring": place_of,
    "move_stack": move_of,
    "overtaking_capture": move_of,
    "continue_capture_segment": move_of,
    "process_line": line_of,
    "choose_line_option": line_of,
    "choose_line_reward": line_of,
    "choose_territory_option": region_of,
    "eliminate_rings_from_stack": pay_of,
    "forced_elimination": pay_of,
    "skip_placement": skip_of,
    "skip_capture": skip_of,
    "skip_recovery": skip_of,
    "swap_sides": swap_of,
}
