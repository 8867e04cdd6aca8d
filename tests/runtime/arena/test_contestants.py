"""Who plays in a contest: texts, what is refused with which words, and saved runs."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from support.asserts import refused
from support.exports import make_saved, written_run
from support.marks import full
from support.scripted_runs import command
from support.transcripts import rows

from stoix_like.errors import CheckpointError, ConfigError, UnsupportedEnvironmentError
from stoix_like.runtime.arena import contest
from stoix_like.runtime.arena.analysis import analyzer
from stoix_like.runtime.arena.contestants import ContestantSpec, load_contestants, parse_contestant
from stoix_like.runtime.arena.league import members_of
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
    rows("""
heuristc => no engine is called 'heuristc'; did you mean 'heuristic'
mcts-0 => mcts is followed by its number of simulations
gumbel-mcts-8 => it plays with a network, and an engine has none
gumbel-mcts-0:runs/a => a search has 1 to 100,000 simulations
heuristic-ppo => 'heuristic-ppo'
random2 => 'random2'
mcts-test => mcts is followed by its number of simulations
"""),
)
def test_texts_that_name_nobody_unless_a_run_has_the_name(text, message, inside):
    with pytest.raises(ConfigError, match=message):
        parse_contestant(text)
    Path("random").mkdir()
    assert parse_contestant("random").run == "random"
    if ":" not in text:
        Path("runs", text).mkdir(parents=True)
        assert parse_contestant(text).run == text


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with runs of tic-tac-toe and of a probe, of random parameters."""
    folder = tmp_path_factory.mktemp("arena")
    board = {"task_id": "tic_tac_toe", "opponent": "random", "num_layers": 1}
    search = {"num_simulations": 3, "replay_buffer_size": 128, "batch_size": 8}
    written_run(folder / "three", make_saved("alphazero", board | search), 0, 1)
    written_run(folder / "ppo_three", make_saved("ppo", board), 1)
    written_run(folder / "probe", make_saved("ppo", {"task_id": "probe/action_reward"}), 1)
    return folder


def test_runs_play_by_search_or_network_and_the_game_is_theirs(saved):
    run = str(saved / "three")
    texts = [run, f"policy:{run}", f"gumbel-mcts-5:{run}", str(saved / "ppo_three"), "random"]
    game, contestants = load_contestants(texts, None, "latest")
    assert game.name == "tic_tac_toe"
    names = ["three 3 sims", "three network", "three 5 sims", "ppo_three", "random"]
    assert [contestant.name for contestant in contestants] == names
    states = jax.tree.map(lambda x: np.asarray(x)[None], game.step(game.init(), 4))
    for contestant in contestants:
        action = jax.jit(contestant.player)(contestant.params, states, jax.random.key(0))
        assert action.shape == (1,)
        assert 0 <= int(action[0]) < 9
        assert int(action[0]) != 4


def test_contests_that_cannot_be(saved):
    run = str(saved / "three")
    with refused(ConfigError, hint="leave out --game: a run plays tic_tac_toe"):
        load_contestants([run, "random"], "connect_four")
    with refused(ConfigError, hint="--game connect_four, or name a run"):
        load_contestants(["heuristic", "random"], None)
    with pytest.raises(ConfigError, match="probe is a run of probe/action_reward, which is no board game"):
        load_contestants([str(saved / "probe"), "random"], None)
    with pytest.raises(ConfigError, match="a run of ppo has no values of outcomes to search with"):
        load_contestants([f"gumbel-mcts-4:{saved / 'ppo_three'}", "random"], None)
    with pytest.raises(CheckpointError, match="no run at nothing"):
        load_contestants(["nothing", "random"], None)
    with pytest.raises(UnsupportedEnvironmentError, match="unknown game 'conect_four'; did you mean 'connect_four'"):
        load_contestants(["heuristic", "random"], "conect_four")


@pytest.mark.parametrize(
    ("text", "what", "parts"),
    [
        ("hex9", "no run at hex9, and no game has this name; did you mean 'hex8'?", ["play_board.py hex8", "d hex8"]),
        ("nobody", "no run at nobody, and no game has this name", ["play_board.py connect_four", "d connect_four"]),
        ("runs/a", "no run at runs/a", ["train_alphazero.py"]),
        ("hex8:3", "hex8:3 is a game, and no run has this name", ["--task-id hex8:3", "--game hex8:3"]),
    ],
)
def test_who_is_no_run_may_be_meant_as_a_game(text, what, parts, inside):
    for load in (lambda: load_contestants([text, "random"], None), lambda: members_of([text], ["random"], None)):
        with refused(CheckpointError, what) as caught:
            load()
        assert all(part in caught.value.hint for part in parts), caught.value.hint
        assert "train_ppo" not in caught.value.hint


def test_runs_that_exist_are_named_beside_games(inside):
    Path("runs", "ring").mkdir(parents=True)
    Path("runs", "ring", "config.yaml").write_text("")
    with refused(CheckpointError, "no run at rnig, and no game has this name; did you mean 'ring'?") as caught:
        load_contestants(["rnig", "random"], None)
    assert caught.value.hint.endswith("; existing runs: runs/ring")


@pytest.mark.full
def test_the_command_prints_scores_and_writes_them(saved, tmp_path, capsys):
    argv = [saved / "three", "random", "--simulations", "0,2", "--json", tmp_path / "match.json"]
    assert command("arena", *argv) == 0
    out = capsys.readouterr().out
    assert "tic_tac_toe: 12 openings of 2 plies" in out
    assert "against random" in out
    assert f"{saved / 'three'} at update 1" in out
    names = [line.split("  ")[0] for line in out.splitlines()[3:]]
    assert names == ["three network", "three 2 sims"]
    found = json.loads((tmp_path / "match.json").read_text())
    assert (found["game"], found["opening_plies"], found["seed"]) == ("tic_tac_toe", 2, 0)
    assert found["opponent"] == {"name": "random"}
    match = found["matches"]["three 2 sims"]
    assert (match["run"], match["update"], match["seed"]) == (str(saved / "three"), 1, 0)
    assert match["num_games"] == match["wins"] + match["draws"] + match["losses"] == 24
    assert match["score"][0] == pytest.approx((match["wins"] + match["draws"] / 2) / 24)


def test_of_two_engines_no_origin_is_printed_and_the_same_seed_is_the_same_match(inside, capsys):
    argv = ["random", "heuristic", "--game", "tic_tac_toe", "--openings", "2", "--json"]
    for name in ("one", "other"):
        assert command("arena", *argv, name) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 3  # what is played, the head, the score
        assert all(lines)
    assert Path("one").read_text() == Path("other").read_text()


def test_several_contestants_play_in_every_order_and_are_ranked(inside, capsys, monkeypatch):
    monkeypatch.setattr(contest, "GAMES_AT_ONCE", 12)  # two openings at a time: the second batch is filled up
    argv = ["random", "heuristic", "mcts-2", "--game", "tic_tac_toe", "--openings", "3", "--json", "out.json"]
    assert command("arena", *argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("tic_tac_toe: 3 openings of 2 plies")
    assert lines[0].endswith("each in every order of seats")
    assert lines[1].split()[-4:] == ["seat", "1", "seat", "2"]
    names = [line.split()[0] for line in lines[2:]]
    assert sorted(names) == ["heuristic", "mcts-2", "random"]
    found = json.loads(Path("out.json").read_text())["players"]
    assert {name: found[name]["games"] for name in names} == dict.fromkeys(names, 12)
    assert sum(found[name]["score"][0] for name in names) == pytest.approx(1.5)
    assert [found[name]["rating"] for name in names] == sorted((found[name]["rating"] for name in names), reverse=True)


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["random", "heuristic", "random", "--game", "tic_tac_toe"], "random stands there twice"),
        full(["random", "heuristic", "mcts-2", "--game", "hex8:4"], "3 contestants, and hex8_4p has 4 seats"),
        (["random", "heuristic", "mcts-2", "--simulations", "2"], "random is an engine"),
    ],
)
def test_contests_that_cannot_be_seated_are_refused(argv, what, inside, capsys):
    assert command("arena", *argv) == 2
    assert what in capsys.readouterr().err


def test_the_analysis_is_of_the_search_that_plays(saved):
    run = load_run(str(saved / "three"), "latest")
    spec = parse_contestant(f"policy:{saved / 'three'}")
    assert analyzer(spec, run.env.game, run) is None
    assert analyzer(spec._replace(num_simulations=None), run.env.game, run) is not None


@pytest.mark.full
def test_ratings_rank_checkpoints_and_draw_them(saved, tmp_path, capsys):
    figure, numbers = tmp_path / "ratings.png", tmp_path / "ratings.json"
    options = ["--anchors", "random, heuristic", "--openings", "4", "--out", figure, "--json", numbers]
    assert command("ratings", saved / "three", *options) == 0
    out = capsys.readouterr().out
    assert "4 players" in out  # two anchors, the checkpoints of updates 0 and 1
    lines = {line.rpartition("  ")[0].split("  ")[0]: line for line in out.splitlines()}
    assert "fixed" in lines["random"]
    assert "1000" in lines["random"]
    assert {"three @ 0", "three @ 1", "heuristic"} <= lines.keys()
    assert figure.stat().st_size > 10_000
    assert command("ratings", saved / "three", "--anchors", "nobody") == 2
