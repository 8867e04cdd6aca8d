"""Rules that random games seldom meet: the package follows the plain rules, from positions that make them frequent."""

import itertools
from collections import Counter

import numpy as np
import pytest
from envs.ringrift import rare_positions, rare_recoveries
from envs.ringrift.against_plain import compiled
from envs.ringrift.plain import game
from envs.ringrift.rare_events import make_watch, rare_rules
from envs.ringrift.rare_positions import drawn_positions, random_action
from envs.ringrift.states_from_plain import play_from

GAMES = list(itertools.product(("hex8", "square8"), (2, 3, 4)))
SIDE_BY_SIDE = 250  # games
#: Batches of games from each generator.
BATCHES = {
    rare_positions.anything: 1,
    rare_positions.crowded: 1,
    rare_positions.blocked: 2,
    rare_positions.closed: 1,
    rare_positions.lonely: 1,
    rare_positions.thin: 1,
    rare_positions.at_lines: 1,
    rare_positions.at_regions: 1,
    rare_recoveries.recovering: 1,
    rare_recoveries.almost_in_line: 8,
    rare_recoveries.barely_buried: 3,
    rare_recoveries.hemmed_in: 4,
    rare_positions.last_stack: 9,
}


def rules_met(found, positions, generator):
    """Counts of the rules met in games that both play from positions to their ends."""
    watch, counts = make_watch()
    play_from(found, positions, generator, random_action, watch)
    return counts


@pytest.mark.parametrize(("board_name", "num_players"), [("hex8", 2), ("square8", 3)])
def test_positions_with_rare_rules_go_on_as_by_plain_rules(board_name, num_players):
    found, generator, makers = compiled(board_name, num_players), np.random.default_rng(0), list(BATCHES)[-10:]
    for some in (makers[:5], makers[5:]):  # as many games side by side as elsewhere: nothing is compiled anew
        drawn = [drawn_positions(make, generator, board_name, num_players, 1)[0] for make in some]
        assert rules_met(found, drawn, generator).total() > 0


@pytest.mark.full
@pytest.mark.parametrize(("board_name", "num_players"), GAMES)
def test_every_rare_rule_goes_a_hundred_times_as_by_plain_rules(board_name, num_players):
    found, generator, counts = compiled(board_name, num_players), np.random.default_rng(1), Counter()
    for make, num_batches in BATCHES.items():
        for _ in range(num_batches):
            drawn = drawn_positions(make, generator, board_name, num_players, SIDE_BY_SIDE)
            counts += rules_met(found, drawn, generator)
    assert {name: counts[name] for name in rare_rules(num_players) if counts[name] < 100} == {}


@pytest.mark.full
@pytest.mark.parametrize("board_name", ["hex8", "square8"])
def test_games_with_the_swap_go_as_by_plain_rules(board_name):
    found, generator = compiled(board_name, 2, has_swap=True), np.random.default_rng(2)
    starts = [game.start(board_name, 2, swap=True)] * SIDE_BY_SIDE
    counts = rules_met(found, starts, generator) + rules_met(found, starts, generator)
    assert counts["swap"] > 100
