"""Who plays in a contest: texts, what is refused with which words, and runs that were trained."""

import json

import jax
import numpy as np
import pytest
from support.asserts import refused
from support.configs import SMALL_ALPHAZERO, SMALL_PPO
from support.scripted_runs import command

from stoix_like.envs.boards.registry import make_game
from stoix_like.errors import CheckpointError, ConfigError, UnsupportedEnvironmentError
from stoix_like.runtime.arena.analysis import analyzer
from stoix_like.runtime.arena.contestants import ContestantSpec, load_contestants, parse_contestant
from stoix_like.runtime.runs.saved import load_run


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("random", (None, None)),
        ("mcts-64", (None, None)),
        ("runs/a", ("runs/a", None)),
        ("policy:runs/a", ("runs/a", 0)),
        ("gumbel-mcts:runs/a", ("runs/a", None)),
        ("gumbel-mcts-32:latest", ("latest", 32)),
    ],
)
def test_texts_of_contestants(text, spec):
    assert parse_contestant(text) == ContestantSpec(text, *spec)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("heuristc", "no engine is called 'heuristc'; did you mean 'heuristic'"),
        ("mcts-0", "mcts is followed by its number of simulations"),
        ("gumbel-mcts-8", "it plays with a network, and an engine has none"),
        ("gumbel-mcts-0:runs/a", "a search has 1 to 100,000 simulations"),
    ],
)
def test_texts_that_name_nobody(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_contestant(text)


def test_a_folder_named_as_an_engine_is_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "random").mkdir()
    assert parse_contestant("random").run == "random"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with runs of two games, and one of PPO."""
    folder = tmp_path_factory.mktemp("arena")
    small = {"save_dir": folder, "num_updates": 1, "eval_interval": 0, "num_eval_episodes": 2, "progress": "false"}
    boards = SMALL_ALPHAZERO | small
    assert command("train-alphazero", task_id="tic_tac_toe", run_name="three", **boards) == 0
    ppo = SMALL_PPO | small | {"opponent": "random"}
    assert command("train-ppo", task_id="tic_tac_toe", run_name="ppo_three", **ppo) == 0
    assert command("train-ppo", task_id="probe/action_reward", run_name="probe", **SMALL_PPO | small) == 0
    return folder


def test_runs_play_by_search_or_network_and_the_game_is_theirs(trained):
    run = str(trained / "three")
    texts = [run, f"policy:{run}", f"gumbel-mcts-5:{run}", str(trained / "ppo_three"), "random"]
    game, contestants = load_contestants(texts, None, "latest")
    assert game.name == "tic_tac_toe"
    names = ["three 3 sims", "three network", "three 5 sims", "ppo_three", "random"]
    assert [contestant.name for contestant in contestants] == names
    states = jax.tree.map(lambda x: np.asarray(x)[None], game.step(game.init(), 4))
    for contestant in contestants:
        action = contestant.player(contestant.params, states, jax.random.key(0))
        assert action.shape == (1,)
        assert 0 <= int(action[0]) < 9
        assert int(action[0]) != 4


def test_contests_that_cannot_be(trained):
    run = str(trained / "three")
    with refused(ConfigError, hint="name runs of one game"):
        load_contestants([run, "random"], "connect_four")
    with refused(ConfigError, hint="--game connect_four, or name a run"):
        load_contestants(["heuristic", "random"], None)
    with pytest.raises(ConfigError, match="probe is a run of probe/action_reward, which is no board game"):
        load_contestants([str(trained / "probe"), "random"], None)
    with pytest.raises(ConfigError, match="a run of ppo has no values of outcomes to search with"):
        load_contestants([f"gumbel-mcts-4:{trained / 'ppo_three'}", "random"], None)
    with pytest.raises(CheckpointError, match="no run at nothing"):
        load_contestants(["nothing", "random"], None)
    with pytest.raises(UnsupportedEnvironmentError, match="hex8 is not available yet"):
        load_contestants(["heuristic", "random"], "hex8")
    with pytest.raises(UnsupportedEnvironmentError, match="unknown game 'conect_four'; did you mean 'connect_four'"):
        load_contestants(["heuristic", "random"], "conect_four")
    assert make_game("tic_tac_toe").name == "tic_tac_toe"


def test_the_command_prints_scores_and_writes_them(trained, tmp_path, capsys):
    argv = [trained / "three", "random", "--simulations", "0,2", "--json", tmp_path / "match.json"]
    assert command("arena", *argv) == 0
    out = capsys.readouterr().out
    assert "tic_tac_toe: 12 openings of 2 plies" in out
    assert "against random" in out
    assert f"{trained / 'three'} at update 1" in out
    rows = [line.split("  ")[0] for line in out.splitlines()[3:]]
    assert rows == ["three network", "three 2 sims"]
    again = (tmp_path / "match.json").read_text()
    assert command("arena", *argv) == 0
    assert (tmp_path / "match.json").read_text() == again  # the same seed, the same match
    found = json.loads(again)
    assert (found["game"], found["opening_plies"], found["seed"]) == ("tic_tac_toe", 2, 0)
    assert found["opponent"] == {"name": "random"}
    match = found["matches"]["three 2 sims"]
    assert (match["run"], match["update"], match["seed"]) == (str(trained / "three"), 1, 0)
    assert match["num_games"] == match["wins"] + match["draws"] + match["losses"] == 24
    assert match["score"][0] == pytest.approx((match["wins"] + match["draws"] / 2) / 24)


def test_of_two_engines_no_origin_is_printed(capsys):
    assert command("arena", "random", "heuristic", "--game", "tic_tac_toe", "--openings", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3  # what is played, the head, the score
    assert all(lines)


@pytest.mark.parametrize("text", ["heuristic-ppo", "random2", "mcts-test"])
def test_a_run_may_be_named_like_an_engine(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        parse_contestant(text)
    (tmp_path / "runs" / text).mkdir(parents=True)
    assert parse_contestant(text).run == text


def test_the_analysis_is_of_the_search_that_plays(trained):
    run = load_run(str(trained / "three"), "latest")
    spec = parse_contestant(f"policy:{trained / 'three'}")
    assert analyzer(spec, run.env.game, run) is None
    assert analyzer(spec._replace(num_simulations=None), run.env.game, run) is not None


@pytest.mark.full
def test_ratings_rank_checkpoints_and_draw_them(trained, tmp_path, capsys):
    figure, numbers = tmp_path / "ratings.png", tmp_path / "ratings.json"
    options = ["--anchors", "random, heuristic", "--openings", "4", "--out", figure, "--json", numbers]
    assert command("ratings", trained / "three", *options) == 0
    out = capsys.readouterr().out
    assert "4 players" in out  # two anchors, the checkpoints of updates 0 and 1
    lines = {line.rpartition("  ")[0].split("  ")[0]: line for line in out.splitlines()}
    assert "fixed" in lines["random"]
    assert "1000" in lines["random"]
    assert {"three @ 0", "three @ 1", "heuristic"} <= lines.keys()
    assert figure.stat().st_size > 10_000
    assert command("ratings", trained / "three", "--anchors", "nobody") == 2
