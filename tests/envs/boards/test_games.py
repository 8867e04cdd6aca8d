"""What holds for every board game in recorded random games; types and tables: tests/ops/test_game_contract.py."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.boards.recorded_games import NAMES, first_states, game_of, played, recorded, replayed


@pytest.mark.parametrize("name", NAMES)
def test_every_state_of_random_games_keeps_the_contract(name):
    plies = recorded(name)
    assert_games_end_in_time_with_an_outcome_that_sums_to_zero(game_of(name), plies)
    assert_planes_show_the_board_from_the_view_of_the_player_to_move(plies)
    assert_preferences_are_finite_and_a_pass_comes_last(name, plies)


def assert_games_end_in_time_with_an_outcome_that_sums_to_zero(game, plies):
    assert plies.is_over[-1].all()  # after max_plies actions
    assert plies.mask.any(axis=-1)[~plies.is_over].all()
    assert np.array_equal(plies.mask, plies.legal)
    assert set(np.unique(plies.player)) == set(range(game.num_players))
    assert not plies.outcome.sum(axis=-1).any()
    assert not plies.outcome[~plies.is_over].any()
    assert len(np.unique(plies.outcome[-1], axis=0)) > 1  # not always the same player


def assert_planes_show_the_board_from_the_view_of_the_player_to_move(plies):
    mine = plies.cells == plies.player[..., None]
    theirs = (plies.cells >= 0) & ~mine
    shown = plies.planes[~plies.is_over]
    assert np.array_equal(shown[..., 0], mine[~plies.is_over])
    assert np.array_equal(shown[..., 1], theirs[~plies.is_over])


def assert_preferences_are_finite_and_a_pass_comes_last(name, plies):
    assert np.isfinite(plies.preference).all()
    if name in ("othello", "go_9x9"):
        others = np.where(plies.mask[..., :-1], plies.preference[..., :-1], np.inf)
        worst = np.where(others > -1500, others, np.inf).min(axis=-1)  # but for own eyes of go
        assert (plies.preference[..., -1] < worst).all()


def symmetric_first_states(name, symmetry):
    """The first position as one symmetry shows it: only othello's is not the same."""
    states = first_states(game_of(name))
    if name != "othello":
        return states
    cells = game_of(name).symmetries.cells[symmetry]

    def moved(words):
        bits = (np.asarray(words)[..., None] >> np.arange(32, dtype=np.uint32)) & 1  # [..., 2, 32]
        bits = bits.reshape(*words.shape[:-1], 64)[..., cells].reshape(*words.shape, 32)
        return jnp.asarray((bits << np.arange(32, dtype=np.uint32)).sum(axis=-1).astype(np.uint32))

    return states._replace(stones=moved(states.stones), legal=moved(states.legal))


def assert_symmetry_holds(name, symmetry):
    game, plies = game_of(name), recorded(name)
    cells, actions = (table[symmetry] for table in game.symmetries[:2])
    there = np.argsort(actions)  # [A], what each action becomes
    moved = replayed(name, there[plies.action], symmetric_first_states(name, symmetry))
    running = ~plies.is_over
    assert np.array_equal(moved.is_over, plies.is_over)
    assert np.array_equal(moved.outcome, plies.outcome)
    assert np.array_equal(moved.player, plies.player)
    assert np.array_equal(moved.cells, plies.cells[..., cells])
    assert np.array_equal(moved.planes, plies.planes[:, :, cells])
    assert np.array_equal(moved.mask[running], plies.mask[..., actions][running])


@pytest.mark.parametrize("name", NAMES)
def test_a_symmetry_keeps_legality_planes_and_outcome(name):
    assert_symmetry_holds(name, 1)  # a quarter turn; connect four's mirror, hex's half turn


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_every_symmetry_keeps_legality_planes_and_outcome(name):
    for symmetry in range(len(game_of(name).symmetries.cells)):
        assert_symmetry_holds(name, symmetry)


@pytest.mark.parametrize(("name", "number"), dict(zip(NAMES, (8, 2, 8, 2, 8), strict=True)).items())
def test_symmetries_are_different_permutations_with_the_identity_first(name, number):
    cells, actions, _ = game_of(name).symmetries
    assert len(np.unique(cells, axis=0)) == len(cells) == len(actions) == number
    assert np.array_equal(cells[0], np.arange(cells.shape[1]))
    assert np.array_equal(actions[0], np.arange(game_of(name).num_actions))
    for table in (cells, actions):
        assert table.dtype == np.int32
        assert np.array_equal(np.sort(table, axis=1), np.broadcast_to(table[0], table.shape))


def preferred(name, actions):
    """The names of the legal actions after `actions`, the most preferred first."""
    ply = jax.tree.map(lambda leaf: leaf[-1], played(name, actions))
    order = np.argsort(-ply.preference, kind="stable")
    return [game_of(name).layout.action_names[action] for action in order if ply.mask[action]]


def test_preferences_by_hand():
    assert preferred("tic_tac_toe", [])[0] == "b2"
    assert preferred("connect_four", [])[0] == "4"
    # Player 1 has 1, 2 and 3 of the lowest row; player 0 is to block it.
    assert preferred("connect_four", [5, 0, 5, 1, 6, 2])[0] == "4"
    # Player 1 has 1, 2 and 3 of the second row: a stone on 4 would let it win on top.
    assert preferred("connect_four", [0, 0, 2, 2, 6, 1, 6, 1])[-1] == "4"


def test_preferences_of_go_by_hand():
    assert preferred("go_9x9", [])[-1] == "pass"
    assert preferred("go_9x9", [1, 0])[0] == "a2"  # black b1, white a1: a2 takes it
    assert preferred("go_9x9", [1, 80, 9, 79])[-2:] == ["pass", "a1"]  # black b1 and a2: a1 is its eye
    assert preferred("go_9x9", [1, 80, 9])[-1] == "pass"  # for white it is none, and no legal point


def test_preferences_of_othello_by_hand():
    worth = played("othello", [19]).preference
    assert worth[0][[19, 26, 37, 44]].tolist() == [1.0 - 8.0 * 3] * 4  # each leaves three replies
    assert preferred("othello", [19])[0] == "c3"  # it leaves four replies, e3 and c5 leave five


def test_preferences_of_hex_by_hand():
    assert preferred("hex_11x11", [])[0] == "f6"
    assert preferred("hex_11x11", [60])[0] == "swap"
    assert preferred("hex_11x11", [0])[-1] == "swap"
    # Player 0 lacks one stone, f11 or e11: it completes them, and player 1 would block there.
    nearly = [action for row in range(10) for action in (row * 11 + 5, row * 11)]
    assert set(preferred("hex_11x11", nearly)[:2]) == {"e11", "f11"}
    assert preferred("hex_11x11", [*nearly, 10])[0] in {"e11", "f11"}
    # The same for player 1, who connects left and right.
    across = [action for column in range(10) for action in (column, 55 + column)]
    assert preferred("hex_11x11", across)[0] in {"k5", "k6"}
    assert set(preferred("hex_11x11", [*across, 120])[:2]) == {"k5", "k6"}


def test_the_layout_of_connect_four_has_its_lines_and_what_lies_below():
    lines, below = game_of("connect_four").layout.lines
    assert lines.shape == (69, 4)
    assert len({frozenset(line) for line in lines.tolist()}) == 69
    assert [0, 8, 16, 24] in lines.tolist()
    assert below[0] == 7
    assert below[35:].tolist() == [-1] * 7
