"""The plain rules by hand: recovery, the last player standing, the ends of the game and the ranks."""

import pytest
from envs.ringrift.drawings import drawn
from envs.ringrift.plain import endings
from envs.ringrift.plain.actions import Line, Move, Pay, Place, Region, Segment, Skip, Slide, Strike
from envs.ringrift.plain.game import legal, outcomes, play
from envs.ringrift.plain.position import Phase, make_position, potential, progress
from envs.ringrift.test_plain_rules import CORNER, TWO_BLOCKED, played


def test_a_recovery_by_a_line_is_paid_with_a_buried_ring():
    position = drawn("square8", 2, "m1 m1 m1 \n . . . m1 \n . \n . . . . . 1212")
    slide = Slide((3, 1), (3, 0))
    assert legal(position) == [slide, Skip()]
    position = play(position, slide)
    line = Line(tuple((x, 0) for x in range(4)))
    assert (position.phase, legal(position)) == (Phase.LINE, [line])
    position = play(position, line)
    assert legal(position) == [Pay((5, 3))]
    position = play(position, Pay((5, 3)))
    assert position.stacks == {(5, 3): (2, 1, 2)}
    assert (position.territory[1], position.eliminated[1]) == (4, 1)


def test_a_recovery_by_part_of_a_longer_line_is_free():
    position = drawn("square8", 2, "m1 m1 . m1 m1 \n . . m1 \n . \n . . . . . 12")
    at_line = play(position, Slide((2, 1), (2, 0)))
    cells = tuple((x, 0) for x in range(5))
    assert legal(at_line) == [Line(cells), Segment(cells[:4]), Segment(cells[1:])]
    free = play(at_line, Segment(cells[:4]))
    assert (free.player, free.eliminated[1], free.stacks) == (2, 0, position.stacks)
    assert progress(free) == progress(position)
    assert potential(free) == potential(position) + 4


def test_without_a_slide_into_a_line_any_slide_and_any_strike_will_do():
    position = drawn("square8", 2, "m1 \n . 12 \n . \n . . . . . 2")
    slides = [Slide((0, 0), (1, 0)), Slide((0, 0), (0, 1))]
    assert legal(position) == [*slides, Strike((0, 0), (1, 1)), Skip()]
    slid = play(position, slides[0])
    assert legal(slid) == [Pay((1, 1))]
    assert play(slid, Pay((1, 1))).stacks[1, 1] == (2,)
    skipped = play(position, Skip())
    assert (skipped.player, skipped.stacks) == (2, position.stacks)


def test_a_strike_that_bares_the_only_ring_left_is_paid_with_it():
    position = drawn("square8", 2, "m1 \n . 12 \n . \n . . . . . 2")
    struck = play(position, Strike((0, 0), (1, 1)))
    assert (struck.stacks[1, 1], struck.markers, legal(struck)) == ((1,), {}, [Pay((1, 1))])
    paid = play(struck, Pay((1, 1)))
    assert (paid.eliminated[1], paid.ending, paid.winner) == (2, "only_owner", 2)
    assert potential(paid) == potential(position) + 1


def test_a_strike_is_paid_with_a_buried_ring_while_there_is_one():
    position = drawn("square8", 2, "m1 \n . 12 \n . \n . . . . . 12")
    struck = play(position, Strike((0, 0), (1, 1)))
    assert legal(struck) == [Pay((5, 3))]
    after = play(struck, Pay((5, 3)))
    assert after.stacks == {(1, 1): (1,), (5, 3): (2,)}
    assert after.player == 2  # the bared stack could move, and has not: that is no forced elimination


@pytest.mark.parametrize(("drawing", "count"), [("m1 . . 1 \n . 12", 0), (". . . . \n . 12", 0), ("m1 \n . 22", 0)])
def test_recovery_needs_a_marker_a_buried_ring_and_no_stack(drawing, count):
    position = drawn("square8", 2, drawing, hand={1: 0, 2: 1})
    assert sum(type(action) in (Slide, Strike) for action in legal(position)) == count


CUT_BY_SLIDE = ". . m1 \n . m1 \n . \n m1 \n . . . . 12 {other}"


def test_a_region_on_a_turn_of_recovery_is_paid_with_a_buried_ring():
    position = drawn("square8", 2, CUT_BY_SLIDE.format(other="12"))
    position = played(position, Slide((0, 3), (0, 2)), Pay((4, 4)))
    assert legal(position) == [Region(1, CORNER), Skip()]
    claimed = play(position, Region(1, CORNER))
    assert legal(claimed) == [Pay((5, 4))]
    assert play(claimed, Pay((5, 4))).stacks == {(4, 4): (2,), (5, 4): (2,)}


def test_a_region_on_a_turn_of_recovery_needs_a_second_buried_ring():
    position = drawn("square8", 2, CUT_BY_SLIDE.format(other="2"), hand={1: 1, 2: 0})
    after = played(position, Slide((0, 3), (0, 2)), Pay((4, 4)))
    assert after.player == 2


def test_thresholds_are_looked_at_when_the_turn_ends():
    drawing = ". m1 m2 m1 m1 m1 m1 \n m1 \n . \n . \n . . 1 . 11 . 2"
    position = drawn("square8", 2, drawing, phase=Phase.LINE, eliminated={1: 17, 2: 0})
    position = played(position, legal(position)[0], Pay((4, 4)))
    assert position.eliminated[1] == 18
    assert position.phase is Phase.TERRITORY
    after = play(position, Skip())
    assert (after.ending, after.winner, outcomes(after)) == ("rings", 1, (1.0, -1.0))


def test_the_last_player_standing_wins_after_three_rounds_alone():
    position = drawn("square8", 2, "21", candidate=1)
    for landing, num_rounds in [((2, 0), 1), ((4, 0), 2)]:
        (start,) = position.stacks
        position = play(position, Move(start, landing))
        assert (position.player, position.num_rounds) == (1, num_rounds)
        assert "passed_seat" in position.events
    after = play(position, Move((4, 0), (6, 0)))
    assert (after.ending, after.winner, outcomes(after)) == ("last_player", 1, (1.0, -1.0))


def test_another_player_who_can_act_is_the_new_candidate():
    position = drawn("square8", 2, "1 . 2", candidate=1, num_rounds=2)
    after = played(position, Move((0, 0), (0, 1)))
    assert (after.player, after.candidate, after.num_rounds) == (2, 2, 0)


def test_a_candidate_who_cannot_act_is_none_any_more():
    drawing = TWO_BLOCKED.format(first="1", middle=".", second="21")
    position = drawn("square8", 2, drawing, candidate=2, num_rounds=2)
    after = played(position, Skip(), Pay((7, 0)))
    assert "passed_seat" in after.events
    assert (after.player, after.candidate, after.num_rounds) == (1, None, 0)


BLOCKED_STACK = "m1 \n . \n . \n . \n . \n . \n . . . . . . c2 c2 \n . . . . . . c2 12"


@pytest.mark.parametrize(
    ("actions", "is_candidate"),
    [
        ([Skip(), Slide((0, 0), (1, 0)), Pay((7, 7))], False),
        ([Skip(), Skip()], False),
        ([Place((3, 3), 1), Move((3, 3), (4, 3)), Skip()], True),
    ],
)
def test_a_candidate_who_does_not_place_move_or_capture_is_none_any_more(actions, is_candidate):
    """Player 2 can only eliminate; player 1 could place and has two rounds of three."""
    fields = {"hand": {1: 1, 2: 0}, "candidate": 1, "num_rounds": 2}
    position = played(drawn("square8", 2, BLOCKED_STACK, phase=Phase.PLACEMENT, **fields), *actions)
    assert position.player == 2
    assert (position.candidate, position.num_rounds) == ((1, 2) if is_candidate else (None, 0))


def test_who_has_no_ring_is_left_out_and_who_has_only_buried_ones_passes():
    position = drawn("square8", 4, "1 . 31 . . 4", hand={1: 0, 2: 0, 3: 0, 4: 0})
    after = play(position, Move((0, 0), (0, 1)))
    assert after.player == 4
    assert after.num_turns == 2  # of players 1 and 3
    assert after.last_ring_turn == {2: 1}


def test_territory_wins_only_if_it_is_more_than_all_others():
    fields = {"stacks": {(0, 0): (1,), (1, 0): (2,)}}
    assert endings.territory_winner(make_position("square8", 3, territory={1: 22, 2: 22, 3: 0}, **fields)) is None
    assert endings.territory_winner(make_position("square8", 3, territory={1: 22, 2: 11, 3: 10}, **fields)) == 1
    assert endings.territory_winner(make_position("square8", 3, territory={1: 21, 2: 0, 3: 0}, **fields)) is None


def test_rings_are_looked_at_before_territory():
    position = make_position("square8", 2, eliminated={1: 0, 2: 18}, territory={1: 33, 2: 0})
    endings.end_if_won(position)
    assert (position.ending, position.winner) == ("rings", 2)


def test_the_only_owner_wins_while_there_is_a_stack():
    position = make_position("square8", 2, hand={1: 3, 2: 0})
    endings.end_if_won(position)
    assert position.ending is None
    position.stacks[0, 0] = (1,)
    endings.end_if_won(position)
    assert (position.ending, position.winner) == ("only_owner", 1)
    buried = make_position("square8", 2, hand={1: 3, 2: 0}, stacks={(0, 0): (2, 1)})
    endings.end_if_won(buried)
    assert buried.ending is None


def full_board(num_players, **fields):
    """A board on which nothing can be placed: every cell is collapsed, owned as `territory` says and not as drawn."""
    board = make_position("square8", num_players).board
    position = make_position("square8", num_players, collapsed=dict.fromkeys(board.cells, 1), **fields)
    endings.end_if_won(position)
    assert position.ending == "stalemate"
    return position


def test_a_stalemate_goes_by_territory_rings_and_the_last_actor():
    even = {1: 20, 2: 20}
    by_territory = full_board(2, territory={1: 20, 2: 21}, eliminated={1: 9, 2: 0}, hand={1: 9, 2: 0})
    assert (by_territory.winner, outcomes(by_territory)) == (2, (-1.0, 1.0))
    by_rings = full_board(2, territory=even, eliminated={1: 5, 2: 0}, hand={1: 0, 2: 6})
    assert by_rings.winner == 2
    by_actor = full_board(2, territory=even, player=2)
    assert (by_actor.winner, outcomes(by_actor)) == (2, (-1.0, 1.0))


@pytest.mark.parametrize(("hand", "winner"), [({1: 0, 2: 0}, 2), ({1: 1, 2: 0}, 1)])
def test_a_stalemate_goes_by_markers_after_rings_and_before_the_last_actor(hand, winner):
    first, *others = make_position("square8", 2).board.cells
    fields = {"markers": {first: 2}, "collapsed": dict.fromkeys(others, 1), "territory": {1: 20, 2: 20}}
    position = make_position("square8", 2, hand=hand, **fields)
    endings.end_if_won(position)
    assert (position.ending, position.winner) == ("stalemate", winner)


def test_rings_in_hand_count_for_the_other_ranks_of_a_stalemate():
    position = full_board(3, territory={1: 0, 2: 0, 3: 20}, hand={1: 2, 2: 1, 3: 0}, eliminated={1: 0, 2: 0, 3: 0})
    assert outcomes(position) == (0.0, -1.0, 1.0)


def test_a_tie_without_the_last_actor_is_shared():
    position = full_board(3, territory={1: 20, 2: 20, 3: 10}, player=3)
    assert (position.winner, outcomes(position)) == (None, (0.5, 0.5, -1.0))


def over(num_players, winner, **fields):
    usual = {"phase": Phase.OVER, "ending": "last_player", "winner": winner}
    return make_position("square8", num_players, **(usual | fields))


def test_the_others_rank_by_territory_rings_markers_and_how_long_they_had_rings():
    by_territory = over(4, 3, territory={1: 5, 2: 9, 3: 0, 4: 2})
    assert outcomes(by_territory) == pytest.approx((-1 / 3, 1 / 3, 1.0, -1.0))
    by_rings = over(3, 3, eliminated={1: 1, 2: 2, 3: 0})
    assert outcomes(by_rings) == (-1.0, 0.0, 1.0)
    by_markers = over(3, 3, markers={(0, 0): 1})
    assert outcomes(by_markers) == (0.0, -1.0, 1.0)
    by_turn = over(3, 3, last_ring_turn={1: 25, 2: 40})
    assert outcomes(by_turn) == (-1.0, 0.0, 1.0)


def test_equal_players_share_their_places():
    assert outcomes(over(4, 3, last_ring_turn={1: 25})) == (-1.0, 0.0, 1.0, 0.0)
    assert outcomes(over(3, 1)) == (1.0, -0.5, -0.5)
    assert outcomes(make_position("square8", 3)) == (0.0, 0.0, 0.0)
