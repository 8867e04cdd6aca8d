"""What RingRift says to people: what is decided now, and why an action is not legal, in positions laid out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from envs.ringrift.test_game import game_of

from stoix_like.envs.ringrift import state as phases
from stoix_like.envs.ringrift.state import make_rules
from stoix_like.runtime.arena.board_text import status_text


def nearly_won(game):
    """Player 1 has eliminated 17 rings of the 18 that win, and its stack at e5 can land on a marker at g5."""
    state = game.init()
    board = make_rules("hex8", 2).board
    e5, g5 = board.cell_at(4, 4), board.cell_at(6, 4)
    rings, markers = np.array(state.rings), np.array(state.markers)
    set_bit(rings[0, 0], board.bits[e5])
    set_bit(rings[1, 0], board.bits[e5])
    set_bit(rings[0, 1], board.bits[0])
    set_bit(markers[1], board.bits[g5])
    return state._replace(
        rings=jnp.asarray(rings),
        markers=jnp.asarray(markers),
        places=jnp.zeros_like(state.places),
        hand=jnp.array([0, 17], jnp.int8),
        eliminated=jnp.array([17, 0], jnp.int8),
        phase=jnp.int8(1),
        turn=jnp.int16(40),
    )


def set_bit(words, bit):
    words[bit // 32] |= np.uint32(1) << np.uint32(bit % 32)


def assert_told(game, state, reasons):
    """Of actions by name, none of which is legal."""
    names, legal = list(game.layout.action_names), np.asarray(game.legal_actions(state))
    for name, reason in reasons.items():
        assert not legal[names.index(name)], name
        assert game.wording.why_illegal(state, names.index(name)) == reason, name


def test_a_person_is_told_why_a_move_is_not_legal():
    game = game_of("hex8")
    state = jax.tree.map(np.asarray, nearly_won(game))
    reasons = {
        "place 1 a5": "a stack is moved now",
        "e5 to e6": "the stack at e5 has height 2 and must move at least 2",
        "a5 to b5": "no stack of the mover stands at a5",
        "e5 to e1": "a stack stands at e1",
        "skip": "a stack must be moved",
        "line d5 right": "a stack is moved now",
    }
    assert_told(game, state, reasons)
    said = game.wording.status(state, "XO")
    assert said.splitlines()[0] == "a stack is moved now"
    assert said.splitlines()[1] == "X: 0 in hand, 17 of 18 eliminated, 0 of 31 territory"


def without_a_stack(game):
    """Player 1 has markers at c5, a7, b7, c7 and d6, which completes a line at d7; player 2 has a stack on a ring of
    player 1 at e5, a marker at d5 and territory at c4."""
    state = nearly_won(game)
    board = make_rules("hex8", 2).board
    rings, markers, collapsed = np.zeros_like(state.rings), np.zeros_like(state.markers), np.array(state.collapsed)
    e5, d5, c4 = (board.bits[board.cell_at(*place)] for place in ((4, 4), (3, 4), (2, 3)))
    set_bit(rings[0, 1], e5)
    set_bit(rings[1, 0], e5)
    for place in ((2, 4), (0, 6), (1, 6), (2, 6), (3, 5)):
        set_bit(markers[0], board.bits[board.cell_at(*place)])
    set_bit(markers[1], d5)
    set_bit(collapsed[1], c4)
    return jax.tree.map(np.asarray, state)._replace(rings=rings, markers=markers, collapsed=collapsed)


def test_a_person_without_a_stack_is_told_of_recoveries():
    game = game_of("hex8")
    state = without_a_stack(game)
    reasons = {
        "place 1 a5": "a marker slides now, to recover a ring",
        "e5 to e6": "no marker of the mover lies at e5",
        "c5 to c7": "a marker slides to a cell beside it",
        "c5 to c4": "c4 is collapsed",
        "c5 to d5": "a marker lies at d5",
        "c5 to b5": "it completes no line there, and another slide does",
    }
    assert_told(game, state, reasons)
    assert game.wording.status(state, "XO").startswith("a marker slides now, to recover a ring\nX: 0 in hand")


@pytest.mark.parametrize(
    ("phase", "reason"),
    [(1, "must be moved: a ring was placed on it"), (2, "has moved, and may capture now"), (3, "must capture on")],
)
def test_a_person_is_told_which_stack_alone_may_act(phase, reason):
    game = game_of("hex8")
    state = jax.tree.map(np.asarray, nearly_won(game))
    focus = np.zeros_like(state.focus)
    board = make_rules("hex8", 2).board
    set_bit(focus, board.bits[board.cell_at(4, 4)])
    action = list(game.layout.action_names).index("a5 to b5")
    state = state._replace(focus=focus, phase=np.int8(phase))
    assert game.wording.why_illegal(state, action) == f"the stack at e5 {reason}"


MUSTS = {
    phases.PLACEMENT: "rings must be placed: no stack of the mover could move, and it may not recover",
    phases.LINE: "a line must be collapsed",
    phases.LINE_PAYMENT: "a ring must be paid for the line",
    phases.TERRITORY_PAYMENT: "a cap must be paid for the region",
    phases.FORCED_ELIMINATION: "a cap must be given up, as nothing else could be done",
    phases.OVER: "the game is over",
}


def test_who_cannot_skip_is_told_what_must_be_done():
    game = game_of("hex8")
    skip = list(game.layout.action_names).index("skip")
    state = jax.tree.map(np.asarray, nearly_won(game))
    for phase, reason in MUSTS.items():
        assert game.wording.why_illegal(state._replace(phase=np.int8(phase)), skip) == reason
    set_bit(focus := np.zeros_like(state.focus), make_rules("hex8", 2).board.bits[0])
    for phase, reason in {
        phases.MOVEMENT: "must be moved: a ring was placed on it",
        phases.CHAIN: "must capture on",
    }.items():
        said = game.wording.why_illegal(state._replace(focus=focus, phase=np.int8(phase)), skip)
        assert said == f"the stack at e1 {reason}"


def ended(name, ending, **changes):
    """A game that is over, of its first position but for the changes; player 1's colour has won."""
    state = jax.tree.map(np.asarray, game_of(name).init())
    values = {"phase": np.int8(phases.OVER), "ending": np.int8(ending), "winner": np.int8(0)}
    return state._replace(**values | changes)


def cells(count):
    """[P, W] territory or markers of the first of three players, on the first cells of hex8."""
    words = np.zeros((3, make_rules("hex8", 3).board.num_words), np.uint32)
    for bit in make_rules("hex8", 3).board.bits[:count]:
        set_bit(words[0], bit)
    return words


STALEMATE = "by stalemate (there is no stack, nobody can place, and {})"


@pytest.mark.parametrize(
    ("ending", "changes", "said"),
    [
        (phases.BY_RINGS, {"eliminated": np.array([25, 0, 9], np.int8)}, "by rings (25 eliminated, 24 win)"),
        (phases.BY_TERRITORY, {"collapsed": cells(22)}, "by territory (22 cells, 21 win, and all others have 0)"),
        (phases.ONLY_OWNER, {}, "as the only owner (nobody else has a ring, in hand or on the board)"),
        (
            phases.LAST_PLAYER,
            {},
            "as the last player standing (for three rounds nobody else could place, move or capture)",
        ),
        (phases.STALEMATE, {"collapsed": cells(1)}, STALEMATE.format("territory decided")),
        (
            phases.STALEMATE,
            {"hand": np.array([3, 2, 2], np.int8), "eliminated": np.array([2, 2, 2], np.int8)},
            STALEMATE.format("rings, those in hand included, decided"),
        ),
        (phases.STALEMATE, {"markers": cells(1)}, STALEMATE.format("markers decided")),
        (phases.STALEMATE, {}, STALEMATE.format("the best are equal, so the turn that ended decided")),
        (phases.STALEMATE, {"winner": np.int8(-1)}, STALEMATE.format("the best are equal")),
    ],
)
def test_the_end_is_told_with_its_reason(ending, changes, said):
    assert game_of("hex8:3").wording.result(ended("hex8:3", ending, **changes)) == said


def test_the_end_names_who_has_won_and_all_places():
    state = ended("hex8:3", phases.BY_RINGS, eliminated=np.array([24, 0, 9], np.int8))
    said = status_text(game_of("hex8:3"), state)
    assert said == "X has won by rings (24 eliminated, 24 win); places: 1 X, 2 #, 3 O"
    state = ended("hex8:3", phases.ONLY_OWNER, winner=np.int8(2))
    assert status_text(game_of("hex8:3"), state).endswith("; places: 1 #, 2 X, 2 O")
    state = ended("hex8:3", phases.STALEMATE, winner=np.int8(-1))
    assert status_text(game_of("hex8:3"), state).startswith("draw by stalemate (")
    swapped = ended("hex8_swap", phases.BY_RINGS, eliminated=np.array([18, 3], np.int8), is_swapped=np.bool_(True))
    assert status_text(game_of("hex8_swap"), swapped) == "O has won by rings (18 eliminated, 18 win)"


@pytest.mark.parametrize("name", ["hex8", "square8:4", "hex8_swap"])
def test_the_kinds_of_moves_are_told_by_names_of_actions(name):
    game = game_of(name)
    examples = [example for example, _ in game.wording.moves]
    assert set(examples) <= set(game.layout.action_names)
    kinds = {example.split()[0] for example in examples if example[1].isalpha()}
    assert kinds == {action.split()[0] for action in game.layout.action_names if action[1].isalpha()}


def test_after_a_swap_the_players_stand_in_their_order():
    game = game_of("hex8_swap")
    state = jax.tree.map(np.asarray, game.init())._replace(is_swapped=np.bool_(True), hand=np.array([17, 18], np.int8))
    said = game.wording.status(state, "XO").splitlines()
    assert [line.partition(" in hand")[0] for line in said[1:]] == ["X: 18", "O: 17"]
