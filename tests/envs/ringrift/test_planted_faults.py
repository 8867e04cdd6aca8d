"""Games beside the plain rules find a fault in any rule: each is planted, and found within a few dozen games."""

import numpy as np
import pytest
from envs.ringrift import faults, rare_positions, rare_recoveries
from envs.ringrift.against_plain import compiled
from envs.ringrift.plain import game
from envs.ringrift.states_from_plain import play_from

NUM_GAMES = 40
SWAP_FAULTS = [faults.the_swap_exchanges_nothing, faults.the_swap_is_offered_in_every_placement]
#: The fault, where it is looked for, and in which game.
FAULTS = [
    (faults.caps_compare_the_other_way, rare_positions.crowded, 2),
    (faults.no_marker_is_left_behind, rare_positions.anything, 2),
    (faults.foreign_markers_are_not_flipped, rare_positions.anything, 2),
    (faults.landing_on_a_marker_is_free, rare_positions.anything, 2),
    (faults.the_captured_ring_goes_on_top, rare_positions.crowded, 2),
    (faults.an_extraction_takes_the_top_ring, rare_recoveries.recovering, 2),
    (faults.a_cap_is_one_ring, rare_positions.blocked, 2),
    (faults.the_border_stays, rare_positions.at_regions, 2),
    (faults.lines_are_one_shorter, rare_positions.anything, 2),
    (faults.a_line_costs_nothing, rare_positions.at_lines, 2),
    (faults.a_region_costs_nothing, rare_positions.at_regions, 2),
    (faults.regions_with_everybody_inside_are_claimable, rare_positions.at_regions, 2),
    (faults.nothing_is_eliminated_by_force, rare_positions.blocked, 2),
    (faults.any_stack_moves_after_a_placement, rare_positions.closed, 2),
    (faults.a_capture_after_a_move_is_forced, rare_positions.anything, 2),
    (faults.nobody_recovers, rare_recoveries.recovering, 2),
    (faults.slides_look_for_no_lines, rare_recoveries.almost_in_line, 2),
    (faults.a_slide_into_a_line_is_paid_before_the_line, rare_recoveries.almost_in_line, 2),
    (faults.a_line_after_a_recovery_costs_nothing, rare_recoveries.almost_in_line, 2),
    (faults.a_line_after_a_recovery_is_paid_from_the_top, rare_recoveries.almost_in_line, 2),
    (faults.a_chain_is_optional, rare_positions.crowded, 2),
    (faults.a_chain_goes_on_without_control, rare_positions.crowded, 2),
    (faults.dead_placements_are_allowed, rare_positions.closed, 2),
    (faults.seats_follow_backwards, rare_positions.anything, 3),
    (faults.the_last_player_wins_a_round_early, rare_positions.lonely, 2),
    (faults.a_candidate_who_does_not_act_stays, rare_recoveries.hemmed_in, 2),
    (faults.a_candidate_who_cannot_act_stays, rare_positions.anything, 2),
    (faults.a_recovery_keeps_the_candidate, rare_recoveries.hemmed_in, 2),
    (faults.the_only_owner_does_not_win, rare_positions.thin, 2),
    (faults.one_ring_more_is_needed_to_win, rare_positions.crowded, 2),
    (faults.one_cell_less_is_needed_to_win, rare_positions.blocked, 2),
    (faults.a_stalemate_forgets_rings_in_hand, rare_positions.last_stack, 2),
    (faults.the_first_is_the_last, rare_positions.last_stack, 2),
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("fault", "make", "num_players"), [pytest.param(*each, id=each[0].__name__) for each in FAULTS]
)
def test_a_planted_fault_is_found(fault, make, num_players, monkeypatch):
    fault(monkeypatch.setattr)
    found, generator = compiled.__wrapped__("hex8", num_players), np.random.default_rng(0)
    positions = rare_positions.drawn_positions(make, generator, "hex8", num_players, NUM_GAMES)
    with pytest.raises(AssertionError, match="ours"):
        play_from(found, positions, generator, rare_positions.random_action)


@pytest.mark.full
@pytest.mark.parametrize("fault", SWAP_FAULTS, ids=lambda fault: fault.__name__)
def test_a_planted_fault_of_the_swap_is_found(fault, monkeypatch):
    fault(monkeypatch.setattr)
    found, starts = compiled.__wrapped__("hex8", 2, has_swap=True), [game.start("hex8", 2, swap=True)] * NUM_GAMES
    with pytest.raises(AssertionError, match="ours"):
        play_from(found, starts, np.random.default_rng(0), rare_positions.random_action)
