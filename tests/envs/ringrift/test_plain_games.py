"""Random games by the plain rules: what never fails in them, and how often each rule comes up."""

import functools
import random
from collections import Counter
from typing import NamedTuple

import pytest
from envs.ringrift.plain.actions import Region
from envs.ringrift.plain.game import legal, outcomes, play, start
from envs.ringrift.plain.position import Phase, num_rings, potential, progress

NUM_GAMES = 20
#: Actions that leave the potential as it is; a slide and a strike raise it with the payment that follows.
WITHOUT_PROGRESS = ("Place", "Skip", "Swap", "Slide", "Strike")
RULES = """placement placement_on_stack placement_skipped dead_placement_refused move marker_landing control_lost
    control_lost_in_chain capture_first capture_after_move capture_skipped chain capture_of_own line_exact
    line_longer_segment line_payment region_none region_coloured region_empty territory_payment territory_skip
    forced_elimination recovery_fallback recovery_strike recovery_skip extraction passed_seat ending_rings
    ending_territory ending_only_owner ending_last_player ending_stalemate"""
HIGHEST = {"square8": 8, "hex8": 9}  # the most cells in a row: a higher stack could not have moved


class RandomGames(NamedTuple):
    """Decisions and events of random games, and how each ended."""

    num_decisions: list[int]
    events: Counter
    last_positions: list


def play_at_random(board_name, num_players, seed):
    """Yields the name of each action and the positions before and after it."""
    generator = random.Random(seed)
    position = start(board_name, num_players, swap=num_players == 2)
    while position.phase is not Phase.OVER:
        action = generator.choice(legal(position))
        before, position = position, play(position, action)
        yield type(action).__name__, before, position


def most_plies(position):
    """Every action of progress raises a bounded measure; this many decisions can lie between two."""
    num_players, num_cells = position.num_players, len(position.board.cells)
    num_free = num_cells // position.line_length  # recoveries that raise the potential alone
    bound = num_cells + num_rings(position)
    return (bound + num_free) * (2 * num_players + 2) + num_free + 1


def assert_invariants(name, before, after):
    assert num_rings(after) == num_rings(before)
    assert progress(before) <= progress(after) <= len(after.board.cells) + num_rings(after)
    assert potential(after) - potential(before) >= (name not in WITHOUT_PROGRESS)
    assert all(len(stack) <= HIGHEST[after.board.name] for stack in after.stacks.values())
    assert after.territory == {player: list(after.collapsed.values()).count(player) for player in after.players}
    assert not after.stacks.keys() & after.markers.keys()
    assert not (after.stacks.keys() | after.markers.keys()) & after.collapsed.keys()
    assert bool(legal(after)) == (after.phase is not Phase.OVER)
    regions = [action for action in legal(after) if type(action) is Region]
    assert len({region.cells for region in regions}) == len(regions)


@functools.cache
def random_games(board_name, num_players):
    games = RandomGames([], Counter(), [])
    for seed in range(NUM_GAMES):
        num_decisions = 0
        for name, before, after in play_at_random(board_name, num_players, seed):
            assert_invariants(name, before, after)
            games.events.update(after.events)
            num_decisions += 1
        assert num_decisions <= most_plies(after)
        games.num_decisions.append(num_decisions)
        games.last_positions.append(after)
    return games


GAMES = [(board_name, num_players) for board_name in ("square8", "hex8") for num_players in (2, 3, 4)]


@pytest.mark.parametrize(("board_name", "num_players"), GAMES)
def test_random_games_keep_the_invariants_and_end(board_name, num_players):
    games = random_games(board_name, num_players)
    for position in games.last_positions:
        assert position.ending in ("rings", "territory", "only_owner", "last_player", "stalemate")
        assert sum(outcomes(position)) == pytest.approx(0)
        assert position.winner is None or outcomes(position)[position.winner - 1] == 1
        assert position.num_turns > num_players


@pytest.mark.parametrize(
    ("board_name", "num_players", "mean"),
    [("square8", 2, 74), ("square8", 3, 91), ("square8", 4, 95), ("hex8", 2, 78)],
)
def test_random_games_are_as_long_as_by_another_program(board_name, num_players, mean):
    """Means of 1,000 games. One game deviates by 10 (2 players) to 29 decisions (4), the mean of 20 by at most 6.5."""
    counts = random_games(board_name, num_players).num_decisions
    assert abs(sum(counts) / len(counts) - mean) < 18


def test_most_rules_come_up_in_random_games():
    events = sum((random_games(*game).events for game in GAMES), Counter())
    assert [name for name in RULES.split() if events[name] == 0] == []


def test_random_games_on_the_large_boards_end():
    for board_name in ("square19", "hexagonal"):
        *_, (_, _, last) = play_at_random(board_name, 2, seed=0)
        assert last.phase is Phase.OVER
