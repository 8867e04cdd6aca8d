"""A person's game, line by line: drawings, illegal moves, undo, analysis; on squares, columns and hexagons."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.paths import ROOT
from support.scripted_runs import command

from stoix_like.envs.boards.registry import make_game
from stoix_like.runtime.arena.analysis import analyzer
from stoix_like.runtime.arena.board_text import board_text, help_lines, parse_move, status_text
from stoix_like.runtime.arena.contestants import Contestant, ContestantSpec
from stoix_like.runtime.arena.session import BoardSession

GAME = make_game("tic_tac_toe")


def lowest_legal(_params, states, _key):
    """Takes the first free cell."""
    return jnp.argmax(jax.vmap(GAME.legal_actions)(states), axis=1)


def session(seat=0, analyze=None):
    return BoardSession(GAME, Contestant("lowest", lowest_legal, None), seat, analyze)


def test_a_game_is_played_to_its_end():
    game = session()
    (first,) = game.begin()
    assert first.splitlines()[0].split() == ["a", "b", "c"]
    assert first.endswith("X to move (you are X)")
    answer, drawing = game.enter("B2")
    assert answer == "lowest plays a1"
    assert drawing.splitlines()[1:4] == [" 1 O . .", " 2 . X .", " 3 . . ."]
    assert drawing.endswith("X to move, last move a1 (you are X)")
    game.enter("c1")
    lines = game.enter("a3")
    assert lines[-1].endswith("X has won, last move a3")
    assert game.enter("b1") == ["the game is over: X has won; undo, or quit"]
    assert "X to move" in game.enter("undo")[0]


def test_who_sits_second_is_answered_first():
    game = session(seat=1)
    answer, drawing = game.begin()
    assert answer == "lowest plays a1"
    assert drawing.endswith("O to move, last move a1 (you are O)")
    assert game.enter("undo") == ["there is no move of yours to take back"]
    game.enter("b2")
    (drawing,) = game.enter("undo")
    assert drawing.endswith("O to move, last move a1 (you are O)")


def test_what_cannot_be_played_is_explained():
    game = session()
    game.begin()
    game.enter("b2")
    assert game.enter("b2") == ["b2 is not legal: X is there; legal moves: b1 c1 a2 c2 a3 b3 c3"]
    assert game.enter("b9")[0].startswith("no move is called 'b9'")
    assert game.enter("moves") == ["legal moves: b1 c1 a2 c2 a3 b3 c3"]
    assert "undo, moves, analyze, quit" in game.enter("help")[0]
    assert game.enter("analyze") == ["lowest does not search, so it has no analysis"]
    with pytest.raises(ValueError, match="move 2: b1 is not legal: X is there"):
        session().set_up(["b1", "b1"])


def test_of_many_moves_the_first_are_shown_and_moves_lists_all():
    """Those without a cell come first, or nobody would see them."""
    go = make_game("go_9x9")
    game = BoardSession(go, Contestant("lowest", lowest_legal, None), 0)
    _, why = parse_move(go, game.state, "x9")
    assert why.startswith("no move is called 'x9'")
    assert ": pass a1 b1" in why
    assert why.endswith(" and 62 more")
    assert len(game.enter("moves")[0].split()) == 2 + 82
    ring = BoardSession(make_game("hex8"), Contestant("lowest", lowest_legal, None), 0)
    example = ring.enter("help")[0].removeprefix("a move such as ").partition(", or: ")[0]
    assert parse_move(ring.game, ring.state, example)[0] is not None


def test_help_tells_how_moves_of_ringrift_are_written_and_what_is_drawn():
    lines = BoardSession(make_game("hex8_swap"), Contestant("lowest", lowest_legal, None), 0).enter("help")
    for word in ("place 2 c3", "line c3 right", "region c3 of 1", "pay e4", "skip", "swap", "O4:1", "=O="):
        assert any(word in line for line in lines), word
    assert not any(line.lstrip().startswith("swap") for line in help_lines(make_game("hex8")))
    assert session().enter("help") == ["a move such as b2, or: undo, moves, analyze, quit"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (
            "place 2 c3 c3 to c5",
            "'place 2 c3 c3 to c5' is 2 moves; write commas between moves of hex8: 'place 2 c3, c3 to c5'",
        ),
        ("place 2 c3 c3 to e5", "is 2 moves; write commas between moves of hex8: 'place 2 c3, c3 to e5'"),
        ("region c3 of 9", "no move is called 'region c3 of 9'"),
        ("place 2 c33", "no move is called 'place 2 c33'; did you mean 'place 2 c3'? legal moves: place"),
    ],
)
def test_a_forgotten_comma_is_named(text, parts):
    game = make_game("hex8")
    action, why = parse_move(game, game.init(), text)
    assert action is None
    assert parts in why


def test_spaces_within_a_move_are_read_as_one():
    game = make_game("hex8")
    assert parse_move(game, game.init(), "place  2   c3")[0] == game.layout.action_names.index("place 2 c3")


def test_moves_with_spaces_may_be_entered_with_commas():
    names = tuple(f"put {name}" for name in GAME.layout.action_names)
    spaced = GAME._replace(layout=GAME.layout._replace(action_names=names))
    game = BoardSession(spaced, Contestant("lowest", lowest_legal, None), 0)
    *answers, drawing = game.enter("put b2, put c1")
    assert answers == ["lowest plays put a1", "lowest plays put b1"]
    assert drawing.endswith("X to move, last move put b1 (you are X)")
    *_, drawing, why = game.enter("put c3, put c3")
    assert drawing.splitlines()[3].split()[1:] == [".", ".", "X"]
    assert why.startswith("put c3 is not legal: X is there; legal moves: put ")
    *_, drawing = game.enter("put a3, put c2")  # the second is left out
    assert drawing.endswith("X has won, last move put a3")


def test_after_the_end_no_move_is_proposed():
    game = session()
    game.set_up(["a1", "b1", "a2", "b2", "a3"])
    assert game.enter("help") == ["the game is over; write undo or quit"]
    assert game.enter("moves") == ["no move is legal: the game is over"]


def test_of_several_opponents_each_is_named():
    game = make_game("hex8:3")

    def last_legal(_params, states, _key):
        legal = jax.vmap(game.legal_actions)(states)
        return game.num_actions - 1 - jnp.argmax(legal[:, ::-1], axis=1)

    lines = BoardSession(game, Contestant("last", last_legal, None), 2).begin()
    assert lines[0].startswith("last (X) plays place")
    assert lines[2].startswith("last (O) plays place")


def test_columns_and_hexagons():
    game = make_game("connect_four")
    state = game.init()
    for _ in range(6):
        state = game.step(state, 3)
    assert parse_move(game, state, "4")[1].startswith("4 is not legal: the column is full; legal moves: 1 2 3 5 6 7")
    lines = board_text(game, state, 3).splitlines()
    assert lines[0].split() == list("1234567")
    assert [line.split()[3] for line in lines[1:7]] == list("OXOXOX")
    game = make_game("hex_11x11")
    lines = board_text(game, game.init()).splitlines()
    assert [len(line) - len(line.lstrip()) for line in lines[1:4]] == [1, 2, 3]  # each row further right
    assert status_text(game, game.init()) == "X to move"


def test_an_engine_that_searches_shows_what_it_thinks():
    spec = ContestantSpec("mcts-64", None)
    game = session(analyze=analyzer(spec, GAME, None))
    game.set_up(["a1", "b1", "a2", "b2"])  # X wins at a3
    head, table, best, *_ = game.analysis()
    assert "expected outcome +" in head
    assert table.split() == ["move", "visits"]
    assert best.split()[0] == "a3"
    assert analyzer(ContestantSpec("random", None), GAME, None) is None


def test_the_command_prints_an_analysis_and_refuses_what_cannot_be(capsys):
    argv = ["mcts-16", "--game", "tic_tac_toe", "--moves", "b2 a1"]
    assert command("play-board", *argv, "--analyze") == 0
    out = capsys.readouterr().out
    assert " 2 . X ." in out
    assert "mcts-16: expected outcome" in out
    assert command("play-board", "mcts-16", "--game", "tic_tac_toe", "--moves", "b2 b2", "--analyze") == 2
    assert "--moves: move 2: b2 is not legal: X is there" in capsys.readouterr().err
    assert command("play-board", "random", "--game", "tic_tac_toe", "--seat", "3") == 2
    assert command("play-board", "random", "--game", "tic_tac_toe", "--simulations", "4") == 2


def test_positions_are_not_changed_by_looking_at_them():
    game = session(analyze=analyzer(ContestantSpec("mcts-8", None), GAME, None))
    game.begin()
    before = jax.tree.map(np.asarray, game.state)
    game.analysis()
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.asarray, game.state))


@pytest.mark.full
def test_the_command_analyzes_a_position_of_ringrift():
    """That of docs/ringrift.md, where a stack has moved and may capture: each simulation begins with a legal move. In a
    process of its own: XLA crashed once when a process that had compiled hundreds of programs saved these."""
    moves = "place 3 e5, e5 to e8, place 1 e8, e8 to e2, place 2 c4, c4 to f4, place 2 b4, b4 to e4"
    script = [sys.executable, str(ROOT / "scripts" / "play_board.py"), "mcts-8", "--game", "hex8"]
    line = [*script, "--moves", moves, "--analyze"]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=1800)
    drawing, _, analysis = done.stdout.partition("mcts-8: expected outcome ")
    assert "O to move, last move b4 to e4 (you are X)" in drawing
    head, titles, *rows = analysis.splitlines()
    assert abs(float(head.split()[0])) <= 1.0
    assert titles.split() == ["move", "visits"]
    names, visits = zip(*(row.strip().rsplit(maxsplit=1) for row in rows), strict=True)
    assert set(names) <= {"e4 to g4", "e4 to h4", "e4 to i4", "skip"}
    assert sum(map(int, visits)) == 8
