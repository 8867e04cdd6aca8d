"""The plain rules by hand: placing, moving, capturing, lines and territory, on positions that random games rarely meet.

Cells are (x, y), from the top left; a stack is written from bottom to top.
"""

import pytest
from envs.ringrift.drawings import drawn
from envs.ringrift.plain.actions import Line, Move, Pay, Place, Region, Segment, Skip, Swap
from envs.ringrift.plain.game import legal, play, start
from envs.ringrift.plain.position import Phase, potential, progress


def played(position, *actions):
    for action in actions:
        position = play(position, action)
    return position


def test_an_action_that_is_not_legal_is_refused():
    with pytest.raises(ValueError, match="not legal"):
        play(start("square8", 2), Skip())


def test_each_count_of_rings_must_be_able_to_move():
    position = drawn("square8", 2, ". . . c2 \n c2 c2", phase=Phase.PLACEMENT, hand={1: 5, 2: 0})
    assert [action for action in legal(position) if action.cell == (0, 0)] == [Place((0, 0), 1), Place((0, 0), 2)]
    assert position.events == ["dead_placement_refused"]
    beside_cap = drawn("square8", 2, ". 22 \n c2 c2", phase=Phase.PLACEMENT, hand={1: 5, 2: 0})
    assert [action.count for action in legal(beside_cap) if action.cell == (0, 0)] == [2, 3]


def test_rings_go_onto_empty_cells_and_one_onto_any_stack_but_not_onto_markers():
    position = drawn("square8", 2, "m1 . 2 11", phase=Phase.PLACEMENT, hand={1: 2, 2: 0})
    on = {cell: [a.count for a in legal(position)[:-1] if a.cell == cell] for cell in [(0, 0), (1, 0), (2, 0), (3, 0)]}
    assert on == {(0, 0): [], (1, 0): [1, 2], (2, 0): [1], (3, 0): [1]}
    assert play(position, Place((2, 0), 1)).stacks[2, 0] == (2, 1)


def test_who_placed_moves_that_stack_captures_included():
    position = drawn("square8", 2, "1 2 . . . 1 2", phase=Phase.PLACEMENT, hand={1: 1, 2: 0})
    after = play(position, Place((5, 0), 1))
    assert {action.start for action in legal(after)} == {(5, 0)}
    assert Move((5, 0), (7, 0)) in legal(after)


def test_a_placement_may_be_declined_only_by_who_can_move_or_may_recover():
    blocked = "1 c2 \n c2 c2 . 2"
    assert Skip() not in legal(drawn("square8", 2, blocked, phase=Phase.PLACEMENT, hand={1: 1, 2: 0}))
    able = "1 c2 \n . c2 . 2"
    assert Skip() in legal(drawn("square8", 2, able, phase=Phase.PLACEMENT, hand={1: 1, 2: 0}))
    without_slide = drawn("square8", 2, "m1 c2 \n c2 c2 . 12", phase=Phase.PLACEMENT, hand={1: 1, 2: 0})
    assert Skip() in legal(without_slide)
    after = play(without_slide, Skip())
    assert (after.player, after.phase) == (2, Phase.MOVEMENT)


def test_the_swap_is_offered_at_the_first_placement_of_player_2_alone():
    position = played(start("square8", 2, swap=True), Place((3, 3), 1), Move((3, 3), (3, 4)))
    assert legal(position)[-1] == Swap()
    swapped = play(position, Swap())
    assert (swapped.player, swapped.phase, swapped.has_swapped) == (2, Phase.PLACEMENT, True)
    assert swapped.stacks == position.stacks
    assert Swap() not in legal(swapped)
    declined = played(position, Place((0, 0), 1), Move((0, 0), (1, 0)), Place((7, 7), 1), Move((7, 7), (7, 6)))
    assert declined.player == 2
    assert Swap() not in legal(declined)
    without = played(start("square8", 2), Place((3, 3), 1), Move((3, 3), (3, 4)))
    assert Swap() not in legal(without)


def test_a_move_flips_foreign_markers_collapses_own_and_pays_for_landing_on_one():
    after = play(drawn("square8", 2, "11 m1 m2 m1 . . 2"), Move((0, 0), (3, 0)))
    assert after.markers == {(0, 0): 1, (2, 0): 1}
    assert after.collapsed == {(1, 0): 1}
    assert after.stacks[3, 0] == (1,)
    assert after.eliminated[1] == 1
    assert after.phase is Phase.CAPTURE  # of the stack at (6, 0), from where it landed


def test_a_stack_moves_at_least_its_height_and_not_past_stacks_or_territory():
    position = drawn("square8", 2, "111 . . . . c2 \n 1 \n . \n 2 ")
    assert [move.landing for move in legal(position) if move.start == (0, 0)] == [(3, 0), (4, 0), *diagonal(3, 8)]


def diagonal(first, last):
    return [(place, place) for place in range(first, last)]


def test_a_capture_needs_a_cap_as_high_and_leaves_the_order_of_rings():
    position = drawn("square8", 2, "211 . 122 . . \n . \n 222")
    after = play(position, Move((0, 0), (3, 0)))
    assert after.stacks == {(3, 0): (2, 2, 1, 1), (2, 0): (1, 2), (0, 2): (2, 2, 2)}
    assert Move((0, 0), (0, 3)) not in legal(position)


def test_a_captured_ring_goes_under_before_the_landing_takes_the_top_one():
    after = play(drawn("square8", 2, "1 2 m1 . . 2"), Move((0, 0), (2, 0)))
    assert after.stacks == {(2, 0): (2,), (5, 0): (2,)}
    assert after.eliminated == {1: 1, 2: 0}
    assert "control_lost_in_chain" in after.events


def test_a_chain_that_lost_control_ends_though_it_could_capture_on():
    after = play(drawn("square8", 2, "21 2 m2 2 . . . 1"), Move((0, 0), (2, 0)))
    assert after.stacks[2, 0] == (2, 2)
    assert (after.player, after.phase) == (2, Phase.MOVEMENT)


def test_a_capture_after_a_move_is_free_and_a_chain_is_not():
    position = play(drawn("square8", 2, "1 . . 2 . 2"), Move((0, 0), (1, 0)))
    assert legal(position)[-1] == Skip()
    chain = play(position, Move((1, 0), (4, 0)))
    assert chain.phase is Phase.CHAIN
    assert legal(chain) == [Move((4, 0), (6, 0)), Move((4, 0), (7, 0))]


def test_a_chain_comes_back_over_the_markers_it_left():
    position = drawn("square8", 2, "11 . 212 \n . \n . . . . . . . 2")
    position = play(position, Move((0, 0), (3, 0)))
    assert (position.stacks[3, 0], position.stacks[2, 0]) == ((2, 1, 1), (2, 1))
    assert Move((3, 0), (0, 0)) in legal(position)
    position = play(position, Move((3, 0), (0, 0)))  # onto the own marker, over an own stack
    assert "capture_of_own" in position.events
    assert position.stacks[0, 0] == (1, 2, 1)
    assert position.markers == {(3, 0): 1}
    position = play(position, Move((0, 0), (4, 0)))  # past the own marker
    assert position.collapsed == {(3, 0): 1}
    assert position.stacks[4, 0] == (2, 1, 2, 1)
    assert position.eliminated[1] == 1


def test_a_longer_line_collapses_whole_for_a_ring_or_in_part_for_nothing():
    position = drawn("square8", 2, "m1 m1 m1 m1 m1 \n . \n 11 . 2", phase=Phase.LINE)
    cells = tuple((x, 0) for x in range(5))
    assert legal(position) == [Line(cells), Segment(cells[:4]), Segment(cells[1:])]
    part = play(position, Segment(cells[1:]))
    assert (part.markers, part.territory[1], part.eliminated[1]) == ({(0, 0): 1}, 4, 0)
    assert part.player == 2
    whole = play(position, Line(cells))
    assert (whole.phase, legal(whole)) == (Phase.LINE_PAYMENT, [Pay((0, 2))])
    paid = play(whole, Pay((0, 2)))
    assert (paid.stacks[0, 2], paid.territory[1], paid.eliminated[1]) == ((1,), 5, 1)


def test_three_markers_make_a_line_of_three_players_on_a_small_board():
    drawing = "m1 m1 m1 \n . \n 1 2 3"
    assert legal(drawn("square8", 3, drawing, phase=Phase.LINE)) == [Line(((0, 0), (1, 0), (2, 0)))]
    assert drawn("square19", 3, drawing, phase=Phase.LINE).player == 2


def test_one_of_two_crossing_lines_breaks_the_other():
    position = drawn("square8", 2, "m1 m1 m1 m1 \n m1 \n m1 \n m1 \n 11 . 2", phase=Phase.LINE)
    row, column = (Line(tuple((x, 0) for x in range(4))), Line(tuple((0, y) for y in range(4))))
    assert legal(position) == [row, column]
    assert played(position, column, Pay((0, 4))).player == 2


def test_lines_of_a_hexagon_run_along_three_axes():
    position = drawn("hex8", 2, "m1 . . 1 2 \n m1 . \n m1 \n m1", phase=Phase.LINE)
    assert legal(position) == [Line(((0, -4, 4), (-1, -3, 4), (-2, -2, 4), (-3, -1, 4)))]


def test_a_line_is_free_for_who_controls_no_stack():
    position = drawn("square8", 2, "m1 m1 m1 1 \n . \n . \n . . . m2 . 2")
    position = play(position, Move((3, 0), (3, 3)))
    assert position.phase is Phase.LINE
    after = play(position, legal(position)[0])
    assert "line_payment_waived" in after.events
    assert (after.territory[1], after.eliminated[1]) == (4, 1)


CORNER = frozenset({(0, 0), (1, 0), (0, 1)})


def test_a_region_takes_the_markers_of_its_colour_that_touch_it_and_no_others():
    """At (2, 1) and (1, 2) markers of the colour touch the border alone."""
    drawing = "2 m2 m1 \n . m1 m1 \n m1 m2 \n . \n . . . 11 . 1"
    position = drawn("square8", 2, drawing, phase=Phase.TERRITORY)
    assert legal(position) == [Region(1, CORNER), Skip()]
    claimed = play(position, Region(1, CORNER))
    assert set(claimed.collapsed) == CORNER | {(2, 0), (1, 1), (0, 2)}
    assert set(claimed.collapsed.values()) == {1}
    assert claimed.markers == {(2, 1): 1, (1, 2): 2}
    assert (claimed.territory[1], claimed.eliminated[1]) == (6, 1)
    assert legal(claimed) == [Pay((3, 4)), Pay((5, 4))]
    assert play(claimed, Pay((3, 4))).eliminated[1] == 3  # the whole cap


def test_regions_of_different_colours_may_nest_and_share_their_lowest_cell():
    drawing = ". m2 . m1 \n m2 . m1 \n . m1 \n m1 \n . \n . . . 1 . 2"
    position = drawn("square8", 2, drawing, phase=Phase.TERRITORY)
    outer = Region(1, CORNER | {(2, 0), (1, 1), (0, 2)})
    inner = Region(2, frozenset({(0, 0)}))
    assert legal(position) == [outer, inner, Skip()]
    assert set(play(position, inner).collapsed) == CORNER
    assert set(play(position, outer).markers) == set()


def test_after_a_payment_the_regions_are_found_anew():
    drawing = ". m2 . m1 \n m2 . m1 \n . m1 \n m1 \n . \n . . . 1 . 2 . 1"
    position = drawn("square8", 2, drawing, phase=Phase.TERRITORY)
    position = played(position, Region(2, frozenset({(0, 0)})), Pay((3, 5)))
    single = [Region(1, frozenset({cell})) for cell in [(2, 0), (1, 1), (0, 2)]]
    assert legal(position) == [*single, Skip()]


def test_a_region_without_markers_and_stacks_may_be_claimed():
    position = drawn("square8", 2, ". c2 \n c2 \n . \n . . 1 . 2", phase=Phase.TERRITORY)
    assert legal(position) == [Region(0, frozenset({(0, 0)})), Skip()]


@pytest.mark.parametrize(("other_stack", "is_claimable"), [("21", True), ("11", False)])
def test_a_region_with_an_own_stack_may_be_claimed_while_another_player_is_on_the_board(other_stack, is_claimable):
    """A buried ring is enough to be on the board, rings in hand are not."""
    position = drawn("square8", 2, f"1 m1 \n m1 \n . \n . . {other_stack}", phase=Phase.TERRITORY, hand={1: 0, 2: 9})
    regions = {region.cells for region in legal(position) if type(region) is Region}
    assert (frozenset({(0, 0)}) in regions) == is_claimable


def test_the_whole_open_board_is_never_a_region_to_claim():
    assert drawn("square8", 2, "m1 . m2 \n . 1 . 21", phase=Phase.TERRITORY).player == 2


TWO_BLOCKED = """ . c2  .  .  .  . c2  {first}
                 c2  .  .  .  .  . c2 c2
                  .  .  .  .  .  .  .  .
                  .  .  .  {middle}  .  .  .  .
                  .  .  .  .  .  .  .  .
                  .  .  .  .  .  .  .  .
                  .  .  .  .  .  . c2 c2
                  .  .  .  .  .  . c2 {second}"""


def test_forced_elimination_comes_after_a_declined_region_and_not_after_a_claim():
    position = drawn("square8", 2, TWO_BLOCKED.format(first="1", middle="2", second="11"))
    assert position.phase is Phase.TERRITORY
    declined = play(position, Skip())
    assert (declined.phase, legal(declined)) == (Phase.FORCED_ELIMINATION, [Pay((7, 0)), Pay((7, 7))])
    after = play(declined, Pay((7, 7)))
    assert (after.player, after.eliminated[1]) == (2, 2)
    claimed = played(position, Region(0, frozenset({(0, 0)})), Pay((7, 7)), Skip())
    assert (claimed.player, claimed.eliminated[1]) == (2, 2)
    assert (7, 0) in claimed.stacks


def test_measures_of_progress_count_territory_twice_or_once():
    position = drawn("square8", 2, "m1 c1 c2 1 2", eliminated={1: 3, 2: 1})
    assert (progress(position), potential(position)) == (7, 9)
