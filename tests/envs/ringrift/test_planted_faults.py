"""Games beside the plain rules find a fault in any rule: each is planted, and found within a few dozen games."""

import numpy as np
import pytest
from envs.ringrift import faults, rare_positions
from envs.ringrift.against_plain import compiled
from envs.ringrift.states_from_plain import play_from

NUM_GAMES = 40
#: The fault, where it is looked for, and in which game.
FAULTS = [
    (faults.caps_compare_the_other_way, rare_positions.crowded, 2),
    (faults.no_marker_is_left_behind, rare_positions.anything, 2),
    (faults.foreign_markers_are_not_flipped, rare_positions.anything, 2),
    (faults.landing_on_a_marker_is_free, rare_positions.anything, 2),
    (faults.the_captured_ring_goes_on_top, rare_positions.crowded, 2),
    (faults.an_extraction_takes_the_top_ring, rare_positions.recovering, 2),
    (faults.a_cap_is_one_ring, rare_positions.blocked, 2),
    (faults.the_border_stays, rare_positions.at_regions, 2),
    (faults.lines_are_one_shorter, rare_positions.anything, 2),
    (faults.a_line_costs_nothing, rare_positions.at_lines, 2),
    (faults.a_region_costs_nothing, rare_positions.at_regions, 2),
    (faults.regions_with_everybody_inside_are_claimable, rare_positions.at_regions, 2),
    (faults.nothing_is_eliminated_by_force, rare_positions.blocked, 2),
    (faults.nobody_recovers, rare_positions.recovering, 2),
    (faults.a_chain_is_optional, rare_positions.crowded, 2),
    (faults.a_chain_goes_on_without_control, rare_positions.crowded, 2),
    (faults.dead_placements_are_allowed, rare_positions.closed, 2),
    (faults.seats_follow_backwards, rare_positions.anything, 3),
    (faults.the_last_player_wins_a_round_early, rare_positions.lonely, 2),
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
