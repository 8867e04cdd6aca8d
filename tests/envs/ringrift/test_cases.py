"""The plain rules against what RingRift recorded: states, refusals, effects of single rules, and whole games."""

import dataclasses
from collections import Counter

import pytest
from envs.ringrift.cases import action_of, cell_of, load_cases, position_of
from envs.ringrift.exceptions import EXCEPTIONS, GAMES, Departures
from envs.ringrift.plain import captures, endings, lines, payments, placement, territory
from envs.ringrift.plain.actions import Skip
from envs.ringrift.plain.game import legal, play, settled, start
from envs.ringrift.plain.position import Phase, copied
from envs.ringrift.recorded_states import differences, facts_of, is_refused

CASES = load_cases()


def kind_of(name):
    if name in EXCEPTIONS:
        return EXCEPTIONS[name][0]
    if CASES[name]["set"] == "golden":
        return "game"
    return "refused" if is_refused(CASES[name]["steps"][0]["expect"]) else "whole"


def names_of(*kinds):
    return [name for name in CASES if kind_of(name) in kinds]


def read(name):
    """The one step of a case: the position before, the recorded move and what is recorded after it."""
    (step,) = CASES[name]["steps"]
    return position_of(CASES[name], step["move"]), step["move"], step["expect"]


def is_legal(before, move):
    """Whether the recorded move is legal for the recorded player, without a phase that passes first."""
    ready = settled(before)
    is_due = ready.phase is before.phase and ready.player == move["player"] and ready.num_turns == before.num_turns
    return is_due and action_of(move, before) in legal(ready)


def test_every_case_is_compared_in_one_way():
    assert Counter(map(kind_of, CASES)) == {
        "whole": 20,
        "refused": 8,
        "effects": 21,
        "contradicted": 2,
        "a turn fits": 4,
        "no turn fits": 2,
        "game": 5,
    }
    assert set(EXCEPTIONS) | set(GAMES) <= set(CASES)


@pytest.mark.parametrize("name", names_of("whole"))
def test_the_move_is_legal_and_gives_the_recorded_state(name):
    before, move, expect = read(name)
    assert is_legal(before, move)
    after = play(settled(before), action_of(move, before))
    assert differences(expect, after, before) == {}


@pytest.mark.parametrize("name", names_of("refused"))
def test_a_refused_move_is_not_legal(name):
    before, move, _ = read(name)
    assert not is_legal(before, move)


def apply_segment(position, action):
    position.phase = Phase.CHAIN
    captures.capture(position, action)


EFFECTS = {
    "continue_capture_segment": apply_segment,
    "choose_line_option": lambda position, action: lines.collapse_all(position, action.cells),
    "choose_territory_option": territory.take,
    "eliminate_rings_from_stack": lambda position, action: payments.eliminate_cap(position, action.cell),
    "swap_sides": placement.swap,
}


@pytest.mark.parametrize("name", names_of("effects"))
def test_the_rule_has_the_recorded_effects_where_the_move_is_not_legal(name):
    """The end of the game is tested at once, as RingRift does; whose decision comes next is left out."""
    before, move, expect = read(name)
    assert not is_legal(before, move)
    after = copied(dataclasses.replace(before, player=move["player"]))
    EFFECTS[move["type"]](after, action_of(move, after))
    endings.end_if_won(after)
    assert differences(expect, after, before, ("currentPlayer", "currentPhase", "head")) == {}


@pytest.mark.parametrize(("name", "num_passed"), list(zip(names_of("contradicted"), (2, 3), strict=True)))
def test_passed_markers_make_no_line(name, num_passed):
    before, move, expect = read(name)
    assert is_legal(before, move)
    after = play(settled(before), action_of(move, before))
    assert set(differences(expect, after, before)) == {"currentPlayer", "currentPhase", "pendingDecisionType"}
    assert len(after.collapsed) == num_passed
    assert after.markers == {cell_of(move["from"], "square8"): 1}


def positions_in_turn(position, num_turns, actions=()):
    """Every position after the first action of a turn up to its end, with the actions that led there."""
    if actions:
        yield position, actions
    if position.num_turns == num_turns:
        for action in legal(position):
            yield from positions_in_turn(play(position, action), num_turns, (*actions, action))


def ends_as_recorded(position, actions, before, expect):
    facts = expect["assertions"]
    if "finalState" not in expect:
        return differences(expect, position, before) == {}
    final = cell_of(expect["finalState"]["finalStackPosition"], "square8")
    stack = position.stacks.get(final, ())
    return (
        len(actions) == facts["totalCapturesInChain"]
        and len(stack) == facts["finalStackHeight"]
        and stack[-1] == facts["finalStackController"]
        and len(position.stacks) - 1 == facts["targetStacksRemaining"]
        and set(position.markers) == {cell_of(cell, "square8") for cell in expect["finalState"]["markerPositions"]}
        and len(position.markers) == facts["markersCreated"]
        and facts_of(position, before)["sInvariantDelta"] == facts["sInvariantDelta"]
    )


@pytest.mark.parametrize("name", names_of("a turn fits", "no turn fits"))
def test_a_record_without_a_move_is_searched_for_in_all_turns(name):
    before, _, expect = read(name)
    found = any(ends_as_recorded(*end, before, expect) for end in positions_in_turn(settled(before), before.num_turns))
    assert found == (kind_of(name) == "a turn fits")


PASSING = {
    "no_placement_action": Phase.PLACEMENT,
    "no_movement_action": Phase.MOVEMENT,
    "no_line_action": Phase.LINE,
    "skip_capture": Phase.CAPTURE,
    "skip_recovery": Phase.MOVEMENT,
}


def is_past_territory(move, position):
    """Whether a record shows that the player to move claims no region."""
    is_denial = move["type"] == "no_territory_action" and move["player"] == position.player
    return is_denial or not move["type"].startswith("no_")


def replay(name, moves):
    """The last position of a recorded game, and where the record departed from the rules on the way."""
    position = start(name.split("_")[1], 2)
    other_stack, declined = [], []
    for place, move in enumerate(moves):
        if position.phase is Phase.TERRITORY and is_past_territory(move, position):
            declined.append(place)
            position = play(position, Skip())
        if move["type"].startswith("no_"):
            assert (position.player, position.phase) != (move["player"], PASSING.get(move["type"]))
            continue
        action = action_of(move, position)
        assert position.player == move["player"]
        assert position.phase is PASSING.get(move["type"], position.phase)
        if position.must_move is not None and position.phase is Phase.MOVEMENT and action.start != position.must_move:
            other_stack.append(place)
            position = settled(dataclasses.replace(position, must_move=None))
        position = play(position, action)
    return position, Departures(tuple(other_stack), tuple(declined))


@pytest.mark.parametrize("name", names_of("game"))
def test_the_moves_of_recorded_games_are_legal(name):
    _, departures = replay(name, CASES[name]["moves"])
    assert departures == GAMES[name]


def test_the_only_recorded_game_that_was_played_out_ends_with_its_last_move():
    """Player 1 could not act on three turns: player 2 is the last one standing, with 3 of the 18 rings that win."""
    moves = CASES["fullgame_hex8_2p_f6bb4e8e"]["moves"]
    position, _ = replay("fullgame_hex8_2p_f6bb4e8e", moves[:-3])
    assert position.phase is not Phase.OVER
    position, _ = replay("fullgame_hex8_2p_f6bb4e8e", moves)
    assert (position.ending, position.winner) == ("last_player", 2)
    assert position.eliminated == {1: 8, 2: 3}
