"""Names of games in every spelling, what is refused with which words, and a game without its library."""

import subprocess
import sys

import pytest
from support.asserts import refused

from stoix_like.commands.machine.envs import list_games
from stoix_like.config.checks import board_games as names
from stoix_like.envs.boards.registry import make_game
from stoix_like.errors import ConfigError, UnsupportedEnvironmentError


@pytest.mark.parametrize("text", ["connect_four", "connect_four:2", "connect_four_2p"])
def test_three_spellings_are_one_game(text):
    assert names.parse_game(text) == ("connect_four", 2)
    assert names.game_key(*names.parse_game(text)) == "connect_four_2p"
    assert names.is_game(text)
    assert make_game(text).name == "connect_four"


@pytest.mark.parametrize("name", names.GAMES)
def test_every_game_can_be_made(name):
    assert make_game(name).name == name
    assert make_game(name).num_players in names.GAMES[name]


def test_a_game_of_any_number_of_players_is_found_by_its_name():
    """Its folder is that of its name and its players, once."""
    for name, numbers in names.GAMES.items():
        for number in numbers:
            assert names.parse_game(make_game(f"{name}:{number}").name) == (name, number)


@pytest.mark.parametrize("text", ["square19", "square19_4p", "hexagonal:2"])
def test_known_games_that_are_not_there_yet(text):
    assert names.is_game(text)
    with pytest.raises(UnsupportedEnvironmentError, match="not available yet") as caught:
        names.parse_game(text)
    assert caught.value.exit_code == 3
    assert "connect_four" in caught.value.hint


def test_an_unknown_game_names_the_nearest():
    assert not names.is_game("conect_four:2")
    with pytest.raises(UnsupportedEnvironmentError, match="unknown game 'conect_four:2'; did you mean 'connect_four'"):
        make_game("conect_four:2")
    with pytest.raises(UnsupportedEnvironmentError, match="unknown game ''"):
        make_game("")


@pytest.mark.parametrize("text", ["Maze-v0", "probe/constant_reward", "BinPack-v0", "", ":2", "_2p", "hex"])
def test_other_tasks_are_no_games(text):
    assert not names.is_game(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [("connect_four:3", "is a game of 2 players"), ("square8_5p", "2 to 4 players"), ("othello:0", "of 2 players")],
)
def test_players_that_a_game_does_not_have(text, said):
    with pytest.raises(ConfigError, match=said):
        names.parse_game(text)


def test_the_hint_writes_a_game_as_it_may_be_written():
    with refused(ConfigError, hint="write hex8, hex8:3 or hex8:4"):
        names.parse_game("hex8:5")
    with refused(ConfigError, hint="write othello or othello_2p"):
        names.parse_game("othello:3")


def test_the_list_of_tasks_says_how_many_can_play():
    found = list_games()
    assert found["hex8"].startswith("board game of 2 to 4 players (hex8:3), ")
    assert found["hex8"].endswith(" plies for 2")
    assert found["connect_four"] == "board game of 2 players, 7 actions, at most 42 plies"


def test_the_nearest_game_is_found_by_its_name_alone():
    assert names.nearest_game("hex9:3") == "hex8"
    assert names.nearest_game("something") is None


def test_a_maker_of_another_number_of_players_is_refused(monkeypatch):
    monkeypatch.setitem(names.GAMES, "tic_tac_toe", (2, 3))
    assert make_game("tic_tac_toe:2").num_players == 2
    with pytest.raises(ConfigError, match="'tic_tac_toe:3': the maker of tic_tac_toe makes a game of 2 players"):
        make_game("tic_tac_toe:3")


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_names_are_read_without_jax_and_games_made_without_pgx_before_the_backend_starts():
    read = (
        "import sys, stoix_like.config.checks.board_games as names;"
        "names.parse_game('go_9x9:2'); print('jax' in sys.modules)"
    )
    make = (
        "from stoix_like.envs.boards.registry import make_game; [make_game(name) for name in names.GAMES];"
        " from jax._src import xla_bridge; print(bool(xla_bridge._backends), 'pgx' in sys.modules)"
    )
    assert run_python(f"{read}; {make}") == ["False", "False", "False"]
