"""Which rare rules a step by the plain rules meets, beyond the events that those name themselves."""

import itertools
from collections import Counter

from envs.ringrift.plain.actions import Move, Pay, Region, Skip, Slide, Strike
from envs.ringrift.plain.endings import ranking_key, stalemate_key
from envs.ringrift.plain.movement import way
from envs.ringrift.plain.payments import buried
from envs.ringrift.plain.position import Phase, controls_any

RARE = """line_exact line_longer_all line_longer_segment line_payment line_payment_waived
    recovery_line recovery_line_exact recovery_line_longer_all recovery_line_longer_segment recovery_fallback
    recovery_strike recovery_skip extraction extraction_of_bared_ring region_recovery candidate_recovers
    region_none region_coloured region_empty region_nested region_at_same_cell territory_payment territory_skip
    forced_elimination forced_elimination_after_skip capture_of_own control_lost control_lost_in_chain
    chain chain_over_left_marker chain_onto_left_marker
    dead_placement_refused placement_on_stack placement_skipped placement_skipped_to_recover
    passed_seat round_alone candidate_cannot_act threshold_waits won_by_another
    ending_rings ending_territory ending_only_owner ending_last_player ending_stalemate
    stalemate_by_territory stalemate_by_rings stalemate_by_markers stalemate_by_actor"""
AMONG_MANY = "stalemate_of_nobody ranks_tied ranks_by_loss"  # three and four players


def rare_rules(num_players):
    return [*RARE.split(), *(AMONG_MANY.split() if num_players > 2 else [])]


def make_watch():
    """(watch, counts): `watch(game, before, action, after)` counts the rules that a step in one of the games meets."""
    counts, left = Counter(), {}  # by game, where the turn has left markers

    def watch(game, before, action, after):
        counts.update(after.events)
        if type(action) is Move:
            left[game] = set() if before.phase is Phase.MOVEMENT else left.get(game, set())
            counts.update(over_left_markers(before, action, left[game]))
            left[game].add(action.start)
        counts.update(name for name, is_met in met(before, action, after).items() if is_met)
        if after.phase is Phase.OVER:
            counts.update(met_at_end(before, after))

    return watch, counts


def over_left_markers(before, action, left):
    passed = {cell for cell in way(before, action.start, action.landing) if cell in left}
    return ["chain_over_left_marker"] * bool(passed) + ["chain_onto_left_marker"] * (action.landing in left)


def met(before, action, after):
    """Whether a step meets each of the rules that no event names."""
    kind, phase = type(action), before.phase
    recovers = kind in (Slide, Strike) or (kind is Skip and phase is Phase.MOVEMENT)
    regions = [option for option in before.options if type(option) is Region and option.colour > 0]
    is_over, is_recovery = after.phase is Phase.OVER, recovers or before.is_recovering
    is_cancelled = before.candidate is not None and after.candidate is None and not is_over
    return {
        "extraction_of_bared_ring": kind is Pay and before.is_recovering and not buried(before),
        "candidate_recovers": is_cancelled and is_recovery and before.candidate == before.player,
        "candidate_cannot_act": is_cancelled and not is_recovery,
        "region_nested": any(one.cells < other.cells for one, other in itertools.permutations(regions, 2)),
        "region_at_same_cell": len({lowest(before, region) for region in regions}) < len(regions),
        "forced_elimination_after_skip": kind is Skip and after.phase is Phase.FORCED_ELIMINATION,
        "placement_skipped_to_recover": kind is Skip
        and phase is Phase.PLACEMENT
        and not controls_any(before, before.player),
        "round_alone": after.num_rounds > before.num_rounds,
        "threshold_waits": not is_over and after.eliminated[before.player] >= after.ring_victory,
    }


def lowest(position, region):
    return min(position.board.index[cell] for cell in region.cells)


def met_at_end(before, after):
    """The rules that decided a game and the order of its players."""
    names = ["won_by_another"] if after.winner not in (None, before.player) else []
    if after.ending == "stalemate":
        names.append(f"stalemate_{how_decided(after)}")
    pairs = [pair for pair in itertools.combinations(after.players, 2) if after.winner not in pair]
    keys = [[ranking_key(after, player) for player in pair] for pair in pairs]
    names += ["ranks_tied"] * any(one == other for one, other in keys)
    names += ["ranks_by_loss"] * any(one[:-1] == other[:-1] and one != other for one, other in keys)
    return names


def how_decided(position):
    keys = [stalemate_key(position, player) for player in position.players]
    for place, name in enumerate(("by_territory", "by_rings", "by_markers"), 1):
        best = max(key[:place] for key in keys)
        if sum(key[:place] == best for key in keys) == 1:
            return name
    return "of_nobody" if position.winner is None else "by_actor"
