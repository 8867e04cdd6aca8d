"""What RingRift recorded of a state, compared with a position: whole fingerprints and single numbers."""

from envs.ringrift.cases import PHASES
from envs.ringrift.plain.position import Phase, cap_height, progress

#: Facts about whose decision comes next, and not about what the move did.
COURSE = (
    "currentPlayer",
    "currentPhase",
    "gameStatus",
    "pendingDecisionType",
    "victoryReason",
    "victoryWinner",
    "head",
)
REASONS = {"territory": "territory_control", "rings": "ring_elimination"}


def is_refused(expect):
    """Whether the move is recorded as not legal."""
    return not expect.get("tsValid", expect.get("expected", {}).get("tsValid", True))


def recorded_facts(expect):
    """Everything recorded of the state after a move: of a fingerprint its five parts and S, else the assertions."""
    after = expect.get("tsNext") or expect
    if "stateHash" not in after:
        return expect["assertions"]
    head, *parts = after["stateHash"].split("#")
    facts = dict(zip(("players", "stacks", "markers", "collapsed"), parts, strict=True))
    return facts | {"head": ":".join(head.split(":")[:2]), "progress": after.get("S", after.get("sInvariant"))}


def facts_of(position, before):
    """The same facts of a position, and of what it was before the move."""
    counts = {
        "stackCount": len(position.stacks),
        "markerCount": len(position.markers),
        "collapsedCount": len(position.collapsed),
        "sInvariantDelta": progress(position) - progress(before),
    }
    for player in position.players:
        counts[f"player{player}RingsInHand"] = position.hand[player]
        counts[f"player{player}EliminatedRings"] = position.eliminated[player]
        counts[f"player{player}TerritorySpaces"] = position.territory[player]
    return counts | course_of(position) | fingerprint_of(position)


def course_of(position):
    phases = {phase: name for name, phase in PHASES.items()}
    phases |= {Phase.LINE_PAYMENT: "line_processing", Phase.TERRITORY_PAYMENT: "territory_processing"}
    phase = phases.get(position.phase)
    return {
        "currentPlayer": position.player,
        "currentPhase": phase,
        "gameStatus": "completed" if position.phase is Phase.OVER else "active",
        "pendingDecisionType": "select_line_to_process" if position.phase is Phase.LINE else None,
        "victoryReason": REASONS.get(position.ending),
        "victoryWinner": position.winner,
        "head": f"{position.player}:{phase}",
    }


def fingerprint_of(position):
    """The parts of RingRift's fingerprint: it has no order of the rings in a stack, only owner, height and cap."""
    players = (
        f"{player}:{position.hand[player]}:{position.eliminated[player]}:{position.territory[player]}"
        for player in position.players
    )
    stacks = {cell: f"{rings[-1]}:{len(rings)}:{cap_height(rings)}" for cell, rings in position.stacks.items()}
    return {
        "players": "|".join(players),
        "stacks": listed(stacks),
        "markers": listed(position.markers),
        "collapsed": listed(position.collapsed),
        "progress": progress(position),
    }


def listed(values):
    """Cells and their values as RingRift writes them: hexagons with two coordinates, sorted as text."""
    return "|".join(sorted(f"{cell[0]},{cell[1]}:{value}" for cell, value in values.items()))


def differences(expect, position, before, leave_out=()):
    """The recorded facts in which a position differs, each with what was recorded and what came out."""
    facts = facts_of(position, before)
    recorded = {name: fact for name, fact in recorded_facts(expect).items() if name not in leave_out}
    return {name: (fact, facts[name]) for name, fact in recorded.items() if facts[name] != fact}
