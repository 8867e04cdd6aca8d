"""The package's RingRift and the plain one agree, decision by decision: legal actions, state, player, outcome."""

import itertools

import pytest
from envs.ringrift.against_plain import play_random_games

SIDE_BY_SIDE = 250  # games
#: 10,000 games of two players on each board in parts that workers share, and 1,000 of more players: (.., part, games).
PARTS = [(board_name, 2, part, 1250) for board_name in ("hex8", "square8") for part in range(8)]
PARTS += [(*game, 0, 1000) for game in itertools.product(("hex8", "square8"), (3, 4))]


@pytest.mark.parametrize(("board_name", "num_players"), [("hex8", 2), ("square8", 3)])
def test_random_games_go_as_by_plain_rules(board_name, num_players):
    play_random_games(board_name, num_players, num_games=5, seed=0)


@pytest.mark.full
@pytest.mark.parametrize(("board_name", "num_players", "part", "num_games"), PARTS)
def test_thousands_of_random_games_go_as_by_plain_rules(board_name, num_players, part, num_games):
    for first in range(0, num_games, SIDE_BY_SIDE):
        play_random_games(board_name, num_players, SIDE_BY_SIDE, seed=1 + part * num_games + first)
