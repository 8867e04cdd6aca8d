"""The written states of text worlds against `render`, the spelling of their actions, and what agents are told."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import yaml
from support.paths import ROOT

from stoix_like.envs.text.frozen_lake import FrozenLakeState, make_frozen_lake
from stoix_like.envs.text.grids import Lake, Position, Room
from stoix_like.envs.text.sokoban import SokobanState, make_sokoban
from stoix_like.envs.text.sudoku import SudokuState, make_sudoku
from stoix_like.envs.text.worlds import TEXT_WORLDS, marks, sizes, text_world
from stoix_like.envs.text.writing import lake_pieces, sudoku_pieces
from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.prompts import read_prompts
from stoix_like.types import Prompt

ENVS = {
    "lake 4": make_frozen_lake(size=4, intended_p=1.0),
    "lake 6": make_frozen_lake(size=6, frozen_p=0.9),
    "room 6": make_sokoban(num_pulls=4),
    "room 8": make_sokoban(num_rows=8, num_cols=8, num_boxes=2, num_pulls=6),
    "sudoku": make_sudoku(num_empty=6),
    "sudoku 1": make_sudoku(num_empty=1),
}
LENGTHS = {  # {environment: pieces of the grid, pieces of the coordinates}
    "lake 4": (16, 41),
    "lake 6": (36, 81),
    "room 6": (36, 10),
    "room 8": (64, 14),
    "sudoku": (28, 35),
    "sudoku 1": (28, 35),
}
FILES = {"frozen_lake": "lake 4", "sokoban": "room 6", "sudoku": "sudoku"}  # {file of prompts: an environment}
NUMBERS = {"num_turns": 5, "actions_per_turn": 5, "max_actions": 10, "intended_p": 1 / 3}
GRIDS = {"frozen_lake": 4, "sokoban": 6, "sudoku": 4}  # lines of the grid of an example


@functools.cache
def world_of(name):
    return text_world(ENVS[name], {})


def places(cells, otherwise="", first=0):
    return "".join(f" ({row + first},{column + first})" for row, column in cells) or otherwise


def sentence(state):
    """What is said of the cells of a state, with arrays of NumPy."""
    if isinstance(state, SudokuState):
        return f"Empty cells:{places(np.argwhere(state.cells == 0), ' none', first=1)} .\n"
    if isinstance(state, FrozenLakeState):
        holes, goal = places(np.argwhere(state.lake.holes), " no cell"), places([state.lake.goal])
        return f"Player (P) is at{places([state.position])} ; holes (O) are at{holes} ; goal (G) is at{goal} .\n"
    boxes, targets = (places(np.argwhere(cells)) for cells in (state.room.boxes, state.room.targets))
    return f"Player (P) is at{places([state.room.player])} ; box (X) is at{boxes} ; target (O) is at{targets} .\n"


def spaced(drawn, state):
    """The grid that `render` draws, with a blank before each symbol."""
    rows = drawn.splitlines()[:-1]
    if isinstance(state, SudokuState):
        return "".join(f" {row}\n" for row in rows)
    return "".join("".join(f" {symbol}" for symbol in row) + "\n" for row in rows)


def joined(pieces, written):
    return "".join(pieces.texts[index] for index in written if index >= 0)


def random_states(env, key, num_envs=64, num_steps=6):
    """States [num_envs * num_steps] of random play, which goes on after an end."""

    def step(state, key):
        action = jax.random.randint(key, (num_envs,), 0, env.action_spec.num_values)
        after, _ = jax.vmap(env.step)(state, action)
        return after, state

    reset_key, play_key = jax.random.split(key)
    start, _ = jax.vmap(env.reset)(jax.random.split(reset_key, num_envs))
    _, states = jax.lax.scan(step, start, jax.random.split(play_key, num_steps))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), states)


def without_holes(grid, sentence):
    """The sentence of a lake with the player's symbol in place of P, and without the clause of its holes."""
    (player,) = set(grid) & set("PX√")
    first, *_, last = sentence.split(" ;")
    return f"{first.replace('(P)', f'({player})')} ;{last}"


@functools.cache
def written(name):
    """(states of an environment above, {rendering: their pieces [384, M]})."""
    world = world_of(name)
    further = {"lake": ["positions", "grid_positions"], "room": ["grid_positions"]}
    assert list(world.pieces) == ["grid", "coordinates", "both", *further.get(name.split()[0], [])]

    @jax.jit
    def play(key):
        states = random_states(world.env, key)
        return states, {rendering: jax.vmap(pieces.write)(states) for rendering, pieces in world.pieces.items()}

    return jax.device_get(play(jax.random.key(3)))


@pytest.mark.parametrize("name", ENVS)
def test_pieces_are_the_grid_of_render_and_a_sentence_of_cells(name):
    world, (states, indices) = world_of(name), written(name)
    in_grid, in_coordinates = LENGTHS[name]
    in_positions = 7 if name.startswith("lake") else in_coordinates
    lengths = {"grid": in_grid, "coordinates": in_coordinates, "both": in_grid + in_coordinates}
    lengths |= {"positions": in_positions, "grid_positions": in_grid + in_positions}
    for rendering, length in ((name, lengths[name]) for name in world.pieces):
        assert (indices[rendering].shape, indices[rendering].dtype) == ((384, length), np.int32)
        assert (indices[rendering] >= 0).sum(axis=1).max() <= world.pieces[rendering].longest <= length
    for n in range(384):
        state = jax.tree.map(lambda x, n=n: x[n], states)
        grid, cells = spaced(world.env.render(state), state), sentence(state)
        texts = {"grid": grid, "coordinates": cells, "both": grid + cells}
        texts["positions"] = without_holes(grid, cells) if name.startswith("lake") else cells
        texts["grid_positions"] = grid + texts["positions"]
        for rendering, expected in ((name, texts[name]) for name in world.pieces):
            assert joined(world.pieces[rendering], indices[rendering][n]) == expected


@pytest.mark.parametrize("names", [["lake 4"], ["lake 6"], ["room 6"], ["room 8"], ["sudoku", "sudoku 1"]])
def test_every_text_is_written_in_some_state_and_none_is_there_twice(names):
    """Of Sudoku, " none" is written where a puzzle with one empty cell was solved."""
    for rendering, pieces in world_of(names[0]).pieces.items():
        used = set().union(*(np.unique(written(name)[1][rendering]).tolist() for name in names))
        assert used - {-1} == set(range(len(pieces.texts)))
        assert len(set(pieces.texts)) == len(pieces.texts)


@pytest.mark.parametrize("name", ENVS)
def test_the_most_tokens_of_a_state_are_at_least_those_that_are_written_and_not_many_more(name):
    """Where every byte is a token; where every text is one, they are the most pieces."""
    _, indices = written(name)
    for rendering, pieces in world_of(name).pieces.items():
        lengths = np.array([len(text) for text in pieces.texts])
        longest = np.where(indices[rendering] >= 0, lengths[indices[rendering]], 0).sum(axis=1).max()
        find = pieces.most_tokens or (lambda lengths, pieces=pieces: pieces.longest * max(lengths))
        assert longest <= find(lengths.tolist()) <= 3 * longest
        assert find([1] * len(lengths)) == pieces.longest


def test_hand_written_pieces():
    zero, one = jnp.int32(0), jnp.int32(1)
    lake = Lake(jnp.array([[False, True], [False, False]]), Position(zero, zero), Position(one, one))
    pieces = lake_pieces(2)["both"]
    indices = jax.jit(pieces.write)(FrozenLakeState(lake, lake.goal, zero, jax.random.key(0)))
    assert [pieces.texts[index] if index >= 0 else "" for index in indices] == [
        *(" _", " O\n", " _", " √\n", "Player (P) is at", " (1,", "1)", " ; holes (O) are at"),
        *("", "", " (0,", "1)", "", "", "", "", ""),  # two for each cell, and one for "no cell"
        *(" ; goal (G) is at", " (1,", "1)", " .\n"),
    ]
    cells = jnp.array([[0, 2, 3, 4], [3, 4, 1, 2], [2, 1, 4, 3], [4, 3, 2, 0]], jnp.int8)
    pieces = sudoku_pieces(2)["both"]
    assert joined(pieces, jax.jit(pieces.write)(SudokuState(cells > 0, cells, zero))) == (
        " | . 2 | 3 4 |\n | 3 4 | 1 2 |\n | 2 1 | 4 3 |\n | 4 3 | 2 . |\nEmpty cells: (1,1) (4,4) .\n"
    )


def read_grid(lines):
    """The state whose grid is written so, at the start of an episode."""
    rows = [line.split() for line in lines]
    if rows[0][0] == "|":
        numbers = [[int(symbol.replace(".", "0")) for symbol in row if symbol != "|"] for row in rows]
        cells = jnp.array(numbers, jnp.int8)
        return SudokuState(cells > 0, cells, jnp.int32(0))
    symbols = np.array(rows)
    where = lambda wanted: jnp.asarray(np.isin(symbols, list(wanted)))
    place = lambda wanted: Position(*(jnp.int32(x) for x in np.argwhere(np.isin(symbols, list(wanted)))[0]))
    if any("G" in row for row in rows):
        return FrozenLakeState(
            Lake(where("OX"), place("PX√"), place("G√")), place("PX√"), jnp.int32(0), jax.random.key(0)
        )
    return SokobanState(Room(where("#"), where("O√S"), where("X√"), place("PS")), jnp.int32(0))


def told(name, mode, order="obs_pred_answer"):
    """(system, instructions) of a file of prompts, with all numbers."""
    texts = yaml.safe_load((ROOT / "configs" / "prompts" / f"{name}.yaml").read_text(encoding="utf-8"))
    assert set(texts) == {"base", "worldmodel"}
    return read_prompts(name, NUMBERS | sizes(ENVS[FILES[name]]), order)[mode]


def between(text, tag):
    assert text.count(f"<{tag}>") == text.count(f"</{tag}>") == 1
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]


ORDERS = {
    "obs_pred_answer": ["<think><observation>", "</observation>", "<prediction>", "</prediction></think><answer>"],
    "obs_answer_pred": ["<think><observation>", "</observation>", "</think><answer>", "</answer><prediction>"],
    "answer_obs_pred": ["<think>", "</think><answer>", "</answer><observation>", "</observation><prediction>"],
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", FILES)
def test_the_example_of_a_world_model_is_true(name, order):
    world, (_, text) = world_of(FILES[name]), told(name, "worldmodel", order)
    pieces, step = world.pieces["both"], jax.jit(world.env.step)
    write = jax.jit(pieces.write)
    state = read_grid(between(text, "observation").splitlines()[: GRIDS[name]])
    assert joined(pieces, write(state)) == between(text, "observation")
    for spelling in between(text, "answer").split(" || "):
        before, (state, _) = state, step(state, jnp.int32(world.grammar.index(spelling)))
        assert joined(pieces, write(state)) != joined(pieces, write(before))
    assert joined(pieces, write(state)) == between(text, "prediction")
    assert sorted(ORDERS[order], key=text.index) == ORDERS[order]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mode", ["base", "worldmodel"])
def test_prompts_name_all_actions_symbols_and_numbers(name, mode):
    world, (system, text) = world_of(FILES[name]), told(name, mode)
    assert system.startswith("You are a helpful assistant.")
    assert all(spelling in world.grammar for spelling in between(text, "answer").split(" || "))
    assert "</think><answer>" in text
    assert "5 turns, with up to 5 actions in each and 10 in all" in text
    legend = text.partition("Symbols:\n")[2].partition("Cells")[0].replace("1, 2, 3, 4:", "1: 2: 3: 4:")
    symbols = {piece.strip() for piece in world.pieces["grid"].texts}
    assert symbols == {word[0] for word in legend.split() if len(word) == 2 and word[1] == ":"}
    if name == "sudoku":
        assert "1,2,3 writes a 3 into row 1 and column 2" in text
    else:
        assert f"Actions: {', '.join(world.grammar)}." in text


def place_of_player(state):
    return np.stack(state.position if isinstance(state, FrozenLakeState) else state.room.player, axis=-1)


def test_moves_are_spelled_as_they_go():
    ways = {"Left": (0, -1), "Down": (1, 0), "Right": (0, 1), "Up": (-1, 0)}
    lake = read_grid(["_ _ _ G", "_ _ _ _", "_ _ P _", "_ _ _ _"])
    room = read_grid(["# # # # # #", "# _ _ _ X #", "# _ _ _ _ #", "# _ P _ _ #", "# _ _ _ _ #", "# # # # # #"])
    for name, state in {"lake 4": lake, "room 6": room}.items():
        world = world_of(name)
        after, _ = jax.jit(jax.vmap(world.env.step, in_axes=(None, 0)))(state, jnp.arange(4))
        for moved, spelling in zip(place_of_player(after) - place_of_player(state), world.grammar, strict=True):
            assert tuple(moved) == ways[spelling]


def test_numbers_are_spelled_by_row_column_and_number_from_1():
    world, nothing = world_of("sudoku"), jnp.zeros((4, 4), jnp.int8)
    empty = SudokuState(nothing > 0, nothing, jnp.int32(0))
    after, _ = jax.jit(jax.vmap(world.env.step, in_axes=(None, 0)))(empty, jnp.arange(64))
    for cells, spelling in zip(np.asarray(after.cells), world.grammar, strict=True):
        row, column, number = map(int, spelling.split(","))
        assert cells[row - 1, column - 1] == number
        assert (cells > 0).sum() == 1


def test_marks_and_prompts_and_other_environments():
    assert {name: marks(env) for name, env in ENVS.items()} == {
        "lake 4": ("<frozen_lake>", "4"),
        "lake 6": ("<frozen_lake>", "6"),
        "room 6": ("<sokoban>", "6", "6", "1"),
        "room 8": ("<sokoban>", "8", "8", "2"),
        "sudoku": ("<sudoku>", "6"),
        "sudoku 1": ("<sudoku>", "1"),
    }
    assert {maker.name for maker in TEXT_WORLDS.values()} == set(FILES)
    prompts = {"base": Prompt((*marks(ENVS["lake 4"]), "<base>"))}
    world = text_world(ENVS["lake 4"], prompts)
    assert (world.env, world.prompts) == (ENVS["lake 4"], prompts)
    with pytest.raises(ConfigError, match="'Maze-v0' is no world of text") as error:
        text_world(ENVS["lake 4"]._replace(task_id="Maze-v0"), {})
    assert error.value.hint == "worlds of text: FrozenLake-text-v0, Sokoban-text-v0, Sudoku-text-v0"
