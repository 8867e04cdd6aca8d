"""Every game ply by ply against its rules written once more as plain loops, and against pgx's."""

import jax
import numpy as np
import pytest
from envs.boards.plain_rules import PLAIN_GAMES
from envs.boards.recorded_games import NAMES, played, recorded


def assert_same_as_plain(name, plies):
    """Replays recorded games by the plain rules; returns them as they ended."""
    ended = []
    for index in range(plies.action.shape[1]):
        plain = PLAIN_GAMES[name]()
        for time, over in enumerate(plies.is_over[:, index]):
            ply = jax.tree.map(lambda leaf: leaf[time, index], plies)  # noqa: B023 - called at once
            assert bool(over) == plain.is_over, (index, time)
            assert ply.outcome.tolist() == plain.outcome, (index, time)
            assert ply.cells.tolist() == plain.cells, (index, time)
            if over:
                break
            assert int(ply.player) == plain.player, (index, time)
            assert ply.mask.tolist() == ply.legal.tolist() == plain.legal(), (index, time)
            assert ply.planes.T.tolist() == plain.planes(), (index, time)
            plain.play(int(ply.action))
        assert plain.is_over
        ended.append(plain)
    return ended


@pytest.mark.parametrize("name", NAMES)
def test_random_games_go_as_by_plain_rules(name):
    assert_same_as_plain(name, recorded(name))


def test_the_rare_rules_come_up_in_the_recorded_games():
    othello, swapping, go = recorded("othello"), recorded("hex_11x11"), recorded("go_9x9")
    assert np.any((othello.action == 64) & ~othello.is_over)
    swaps = swapping.action[1] == 121
    assert 0 < swaps.sum() < len(swaps)
    is_free = (go.cells < 0) & ~go.is_over[..., None]
    assert np.any(is_free & ~go.mask[..., :81])  # suicide or ko
    stones = (go.cells >= 0).sum(axis=-1)  # [T + 1, N]
    assert np.any(stones[1:] < stones[:-1])  # capture


def end_of(name, actions):
    """The last of the states that actions lead to; the game goes on until then."""
    plies = played(name, actions)
    assert not plies.is_over[:-1].any()
    return jax.tree.map(lambda leaf: leaf[-1], plies)


@pytest.mark.parametrize(
    ("columns", "outcome"),
    [
        ("421127327363224366417626743773654415515515", [0, 0]),
        ("527321255352474421577234343376616576661114", [-1, 1]),  # the last stone wins
        ("1212121", [1, -1]),
        ("1223343444", [0, 0]),
    ],
)
def test_connect_four_by_hand(columns, outcome):
    last = end_of("connect_four", [int(column) - 1 for column in columns])
    assert last.outcome.tolist() == outcome
    assert bool(last.is_over) == (len(columns) == 42 or outcome != [0, 0])


def cells(names, columns):
    """Actions of names such as `a1`, the cell at the top left."""
    return [(int(name[1:]) - 1) * columns + ord(name[0]) - ord("a") for name in names.split()]


def test_the_shortest_game_of_othello_ends_without_a_white_stone():
    last = end_of("othello", cells("e6 f4 e3 f6 g5 d6 e7 f5 c5", 8))
    assert last.is_over
    assert last.outcome.tolist() == [1, -1]
    assert (last.cells == 0).sum() == 13
    assert (last.cells == 1).sum() == 0


#: Nobody can move after 63 plies of it, with one cell free: two passes end it, 31 stones to 32.
PASSED_OTHELLO = """19 34 45 20 12 29 43 4 37 38 25 41 21 11 39 16 10 30 42 54 44 31 18 9 1 26 3 50 33 52 47 22 61 24
    48 13 5 59 58 51 2 14 15 32 40 55 17 53 57 56 46 23 63 0 62 6 60 49 8 64 64"""


def test_two_passes_end_othello():
    last = end_of("othello", [int(action) for action in PASSED_OTHELLO.split()])
    assert last.is_over
    assert last.outcome.tolist() == [-1, 1]


def test_hex_is_won_by_connecting_the_own_sides_alone():
    down_the_left = [action for row in range(11) for action in (row * 11, row * 11 + 10)][:-1]
    assert end_of("hex_11x11", down_the_left).outcome.tolist() == [1, -1]
    across_the_top = [action for column in range(11) for action in (column, 110 + column)]
    assert end_of("hex_11x11", across_the_top[:21]).outcome.tolist() == [0, 0]  # player 0 has row 1: not its sides
    assert end_of("hex_11x11", across_the_top).outcome.tolist() == [-1, 1]


def test_the_swap_of_hex_takes_the_mirrored_stone_and_comes_once():
    plies = played("hex_11x11", [*cells("d1", 11), 121, *cells("k11", 11)])
    assert plies.mask[:, 121].tolist() == [False, True, False, False]
    assert np.flatnonzero(plies.cells[2] == 1).tolist() == cells("a4", 11)
    assert not (plies.cells[2] == 0).any()
    assert plies.player.tolist() == [0, 1, 0, 1]


def test_a_ko_may_not_be_retaken_at_once():
    shape = "b1 c1 a2 d2 b3 c3 i9 b2"
    (b2,) = cells("b2", 9)
    plies = played("go_9x9", cells(f"{shape} c2 i1 h9 b2", 9))
    assert plies.cells[9][b2] == -1  # taken by c2
    assert not plies.mask[9][b2]
    assert plies.mask[11][b2]
    assert plies.cells[12][cells("c2", 9)[0]] == -1


def test_who_repeats_a_position_of_go_loses():
    """Sending two, returning one: white b1 gets a1 beside it, black takes both at c1, white takes that one at b1."""
    last = end_of("go_9x9", cells("a2 b1 i9 c2 i8 d1 b2 a1 c1 b1", 9))
    assert last.is_over
    assert last.outcome.tolist() == [1, -1]


@pytest.mark.parametrize(
    ("actions", "outcome"),
    [
        ([81, 81], [-1, 1]),  # nobody has a point more, and white has komi
        ([40, 81, 81], [1, -1]),
        ([40, 0, 81, 81], [-1, 1]),  # the free points touch both
        ([*cells("a2 i1 b2 i2 b1 i3", 9), 81, 81], [-1, 1]),  # black owns a1 and three stones
    ],
)
def test_two_passes_end_go_and_area_counts(actions, outcome):
    assert end_of("go_9x9", actions).outcome.tolist() == outcome


PGX_NAMES = {"hex_11x11": "hex"}


@pytest.mark.parametrize(
    "name",
    ["tic_tac_toe", "connect_four", *(pytest.param(name, marks=pytest.mark.full) for name in NAMES[2:])],
)
def test_random_games_go_as_in_pgx(name):
    import pgx

    plies = recorded(name)
    env = pgx.make(PGX_NAMES.get(name, name))

    @jax.jit
    def play(key, actions):
        def step(state, action):
            shown = (state.observation, state.legal_action_mask, state.current_player, state.rewards, state.terminated)
            return env.step(state, action), shown

        return jax.lax.scan(step, env.init(key), actions)[1]

    for index in range(plies.action.shape[1]):
        with jax.numpy_rank_promotion("allow"):
            shown = play(jax.random.key(index), plies.action[:, index])
        views, masks, players, rewards, ended = (np.asarray(leaf) for leaf in shown)
        num_states = int(np.argmax(plies.is_over[:, index])) + 1
        running = slice(0, num_states - 1)
        assert np.array_equal(
            views[running].reshape(num_states - 1, *plies.planes.shape[2:]), plies.planes[running, index]
        )
        assert np.array_equal(masks[running], plies.mask[running, index])
        assert np.array_equal((players ^ players[0])[running], plies.player[running, index])
        assert np.array_equal(ended[:num_states], plies.is_over[:num_states, index])
        ours = plies.outcome[:num_states, index]
        assert np.array_equal(rewards[:num_states], ours if players[0] == 0 else ours[:, ::-1])
