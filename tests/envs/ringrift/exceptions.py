"""Every recorded case in which RingRift's record is not what the rules give, by name and with its reason."""

from typing import NamedTuple

NOT_CUT_OFF = "claims cells that no markers cut off; the claim's effects agree"
NOTHING_CLAIMED = "claims nothing; the rules offer no such claim, and nothing changes"
SHORT_SEGMENT = "lands nearer than the stack is high; the segment's effects agree"
OTHER_PLAYER = "is taken by another player than the one to move; the effects agree"
NO_LINE_LEFT = "stops for a line of markers that the move passed and so collapsed"
OTHER_STACK = "moves another stack than the one on which rings were placed"

#: By case: how it is compared instead, and why.
EXCEPTIONS = {
    "chain_capture.depth3.segment3.square8": ("effects", SHORT_SEGMENT),
    "chain_capture.depth3.segment2.hexagonal": ("effects", f"{SHORT_SEGMENT}, and it comes while lines are due"),
    "forced_elimination.territory_no_host_fe.square8": ("effects", NOTHING_CLAIMED),
    "territory_line.decision_auto_exit.square8": ("effects", NOTHING_CLAIMED),
    "meta.swap_sides.after_p1_first_move.square8": ("effects", "swaps while a move is due, and not a placement"),
    "multi_phase.line_then_multi_region_territory.square8.step1_line": (
        "effects",
        "collapses three markers of a line of four, the length of a line before it became four for two players",
    ),
    "multi_phase.line_then_multi_region_territory.square8.step2_regionB": ("effects", NOT_CUT_OFF),
    "multi_phase.line_then_multi_region_territory.square19.step1_line": ("effects", "names no line; nothing changes"),
    "multi_phase.line_then_multi_region_territory.square19.step2_regionB": ("effects", NOTHING_CLAIMED),
    "multi_phase.line_then_multi_region_territory.hex.step1_line": ("effects", "names no line; nothing changes"),
    "multi_phase.line_then_multi_region_territory.hex.step3_regionA": ("effects", NOTHING_CLAIMED),
    "near_victory_territory.process.multi_cell_region": (
        "effects",
        f"{NOT_CUT_OFF}, and the territory that wins counts before the payment",
    ),
    "territory.hex_region_then_elim.step2_elim": ("effects", OTHER_PLAYER),
    "territory.square_region_then_elim.step2_elim": ("effects", OTHER_PLAYER),
    "territory.square19_two_regions_then_elim.step1_regionB": ("effects", NOT_CUT_OFF),
    "territory.square19_two_regions_then_elim.step2_regionA": ("effects", f"{NOT_CUT_OFF}; it {OTHER_PLAYER}"),
    "territory.hex_two_regions_then_elim.step1_regionB": ("effects", NOT_CUT_OFF),
    "territory.hex_two_regions_then_elim.step2_regionA": ("effects", f"{NOT_CUT_OFF}; it {OTHER_PLAYER}"),
    "territory_processing.mizw0rb1.wpbd": ("effects", f"{NOT_CUT_OFF}, and the game is over before the payment"),
    "state_action.hex8_2p.process_territory.multi_region": ("effects", NOT_CUT_OFF),
    "trace.square8_2p.process_territory.multi_region": ("effects", NOT_CUT_OFF),
    "multiplayer.line.3marker_forms_line_3p": ("contradicted", NO_LINE_LEFT),
    "multiplayer.line.4marker_line_in_2p": ("contradicted", NO_LINE_LEFT),
    "chain_capture.5_plus_targets.extended_path": ("a turn fits", "records the end of a chain and not its segments"),
    "multi_phase.full_sequence_with_territory": ("a turn fits", "records numbers after a turn and no move"),
    "multi_phase.full_sequence_with_territory_square19": ("a turn fits", "records numbers after a turn and no move"),
    "recovery.overlength_option1": ("a turn fits", "records that the game goes on and no move"),
    "chain_capture.5_plus_targets.extended_zigzag_theoretical": (
        "no turn fits",
        "records no move; its last landing is nearer than the stack is high by then",
    ),
    "multi_phase.placement_capture_line": (
        "no turn fits",
        "records no move; no turn leaves four markers and two stacks with four more markers, cells and lost rings",
    ),
}


class Departures(NamedTuple):
    """The places in a recorded game where it departs from the rules."""

    other_stack: tuple[int, ...] = ()  # moves another stack than the one on which rings were placed
    declined: tuple[int, ...] = ()  # passes over a region that may be claimed, as if there were none


GAMES = {
    "captures_square8_2p_272ed96f": Departures(other_stack=(14, 31, 36, 41, 46, 51, 56)),
    "captures_square8_2p_8840e2e0": Departures(),
    "captures_square8_2p_8916c9a6": Departures(other_stack=(10, 19, 24)),
    "fullgame_hex8_2p_f6bb4e8e": Departures(declined=(46, 107, 111, 118)),
    "smoke_hex8_2p_mjk8qhtj": Departures(),
}
