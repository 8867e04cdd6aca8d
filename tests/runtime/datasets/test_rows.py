"""Rows of written turns on disk: as arrays and as parquet, torn, foreign, and of another form."""

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet as library
from support.agents import TOKENIZER, tiny_world
from support.rows import LEAVES, row_file, write_folder

import stoix_like as sl
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.runtime.datasets import parquet, row_files
from stoix_like.runtime.datasets.parquet import Texts, read_parquet, write_parquet
from stoix_like.runtime.runs import agents
from stoix_like.runtime.stages.array_files import read_arrays, write_arrays

TEXTS = Texts(TOKENIZER, tiny_world().prompts["worldmodel"])
CONTEXTS = ("single_turn", "full")


def assert_same_rows(found, wanted):
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("context", CONTEXTS)
def test_rows_come_back_as_they_were_written(tmp_path, context):
    rows = row_file(context)
    first = row_files.write_rows(tmp_path / "a.npz", rows)
    found = row_files.read_rows(tmp_path / "a.npz", first)
    assert_same_rows(found.turns, rows.turns)
    np.testing.assert_array_equal(found.trajectory, rows.trajectory)
    assert found.form == rows.form
    assert len(rows.turns.tokens) > 3
    with pytest.raises(CheckpointError, match="its arrays have the hash"):
        row_files.read_rows(tmp_path / "a.npz", "0" * 64)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("tokens", None, "it lacks tokens"),
        ("trajectory", np.zeros(1, np.int32), "its arrays have other shapes or types"),
        ("is_valid", np.zeros((1, 1, 1), bool), "its arrays have other shapes or types"),
        ("description", np.frombuffer(b"{", np.uint8), "its description cannot be read"),
        ("description", np.frombuffer(b'{"a": 1}', np.uint8), "its description cannot be read"),
    ],
)
def test_a_file_that_has_no_rows_says_why(tmp_path, name, value, text):
    path = tmp_path / "a.npz"
    row_files.write_rows(path, row_file())
    arrays = read_arrays(path) | {name: value}
    write_arrays(path, {key: array for key, array in arrays.items() if array is not None})
    with pytest.raises(CheckpointError, match=f"has no rows of turns: {text}"):
        row_files.read_rows(path)


@pytest.mark.parametrize("kind", ["npz", "parquet"])
@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("task_id", "Sokoban-text-v0", "its task_id is Sokoban-text-v0, and the agent's FrozenLake-text-v0"),
        ("world", {"size": 9}, 'its world is {"size": 9}, and the agent\'s {'),
        ("rendering", "both", "its rendering is both, and the agent's grid"),
        ("tokenizer", "ab" * 32, "its tokenizer is abababababab, and the agent's "),
        ("slots", [3, 4], r"its slots is \[3, 4\], and the agent's \["),
    ],
)
def test_rows_of_another_world_tokenizer_or_rendering_are_refused(tmp_path, kind, name, value, text):
    rows, ours = row_file(), row_file().form._replace(rendering="grid")
    foreign = rows._replace(form=ours._replace(**{name: value}))
    for file in (row_files.TRAINING, row_files.VALIDATION):
        row_files.write_rows(tmp_path / file, foreign)
    write_parquet(tmp_path / parquet.TRAINING, foreign, TEXTS)
    with pytest.raises(CheckpointError, match=f"cannot be learned from: {text}"):
        row_files.read_folder(tmp_path, ours) if kind == "npz" else parquet.read_folder(tmp_path, ours, TEXTS)


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("has_arrays", [True, False])
def test_parquet_has_the_columns_of_the_release_and_comes_back(tmp_path, context, has_arrays):
    rows, path = row_file(context), tmp_path / "wm_train.parquet"
    write_parquet(path, rows, TEXTS)
    table = library.read_table(path)
    columns = ["data_source", "prompt", "response", "ability", "reward_model", "extra_info"]
    assert table.column_names == [*columns, "tokens", "is_valid", "trajectory"]
    prompt, response = (table.column(name).to_pylist()[0] for name in ("prompt", "response"))
    assert [message["role"] for message in prompt[:2]] == ["system", "user"]
    assert "frozen lake of 3 rows" in prompt[1]["content"]
    assert "Turn 1:\nState:\n" in prompt[1]["content"]
    assert response.startswith("<think><observation>")
    assert response.endswith("</answer>")
    if not has_arrays:  # as the release has it: an answer a row, with all messages before
        library.write_table(table.select(columns).replace_schema_metadata(None), path)
    found = read_parquet(path, rows.form, TEXTS)
    if has_arrays:
        assert_same_rows(found, rows.turns)
    by_row = [
        sorted(tokens[valid].tobytes() for tokens, valid in zip(*turns, strict=True)) for turns in (found, rows.turns)
    ]
    assert by_row[0] == by_row[1]
    num_state = rows.form.slots[0]
    assert found.is_valid[:, 0, num_state - 1].all()  # the world's text ends where the answer begins
    assert found.is_valid[:, 0, num_state].all()


def test_of_conversations_the_rows_that_longer_ones_begin_with_are_left_out(tmp_path):
    rows, path = row_file("full"), tmp_path / "a.parquet"
    write_parquet(path, rows, TEXTS)
    table = library.read_table(path).select(["prompt", "response"])
    prompts, responses = table.column("prompt").to_pylist(), table.column("response").to_pylist()
    longest = max(range(len(prompts)), key=lambda n: len(prompts[n]))
    whole = prompts[longest]
    assert len(whole) > 3
    grown = [(whole[:end], whole[end]["content"]) for end in range(2, len(whole), 2)] + [(whole, responses[longest])]
    columns = {"prompt": [prompt for prompt, _ in grown], "response": [response for _, response in grown]}
    library.write_table(pyarrow.table(columns), path)
    found = read_parquet(path, rows.form, TEXTS)
    assert found.tokens.shape[:2] == (1, len(grown))
    single = read_parquet(path, rows.form._replace(context="single_turn"), TEXTS)
    assert single.tokens.shape[:2] == (len(grown), 1)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"prompt": [[{"role": "user", "content": "a"}]]}, "it lacks the column response, and has prompt"),
        ({"prompt": ["a"], "response": ["b"]}, "its column prompt has no messages with role and content"),
        ({"prompt": [[{"role": "user", "content": "Zebra"}]], "response": ["b"]}, "the agent's tokens cannot write it"),
        ({"prompt": [[{"role": "user", "content": "Up" * 300}]], "response": ["Up"]}, "of its 1 rows none fits"),
        ({"prompt": [[{"role": "system", "content": "a"}]], "response": ["b"]}, "user and assistant do not take turns"),
        ({"prompt": [[{"role": "user", "content": "a"}]], "response": [None]}, "user and assistant do not take turns"),
        (
            {"prompt": [[{"role": "user", "content": "a"}]], "response": ["b"], "data_source": ["Sokoban-text-v0"]},
            "it is of Sokoban-text-v0",
        ),
        (None, "it is torn, or no parquet file"),
    ],
)
def test_foreign_parquet_that_cannot_be_learned_from_says_why(tmp_path, columns, text):
    path = tmp_path / "a.parquet"
    if columns is None:
        path.write_bytes(b"PAR1")
    else:
        library.write_table(pyarrow.table(columns), path)
    with pytest.raises(CheckpointError, match=text):
        read_parquet(path, row_file().form, TEXTS)
    with pytest.raises(CheckpointError, match="there is no such file"):
        read_parquet(tmp_path / "b.parquet", row_file().form, TEXTS)


def test_parquet_is_read_where_there_are_no_arrays(tmp_path):
    write_folder(tmp_path)
    config = sl.fine_tune_config(**LEAVES, data_path=str(tmp_path))
    arrays = agents.language_inputs(tiny_world(), config)["rows"]
    for of_arrays, of_texts in zip(
        (row_files.TRAINING, row_files.VALIDATION), (parquet.TRAINING, parquet.VALIDATION), strict=True
    ):
        write_parquet(tmp_path / of_texts, row_files.read_rows(tmp_path / of_arrays), TEXTS)
        (tmp_path / of_arrays).unlink()
    assert_same_rows(agents.language_inputs(tiny_world(), config)["rows"].packed, arrays.packed)


def test_without_a_library_for_parquet_its_name_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "is_installed", lambda: False)
    with pytest.raises(CheckpointError) as caught:
        read_parquet(tmp_path / "a.parquet", row_file().form, TEXTS)
    assert caught.value.hint == "pip install 'stoix_like[language]'"


def test_fine_tuning_without_rows_says_where_they_come_from(tmp_path):
    with pytest.raises(ConfigError, match=r"fine_tune.data_path: no rows are given"):
        agents.language_inputs(tiny_world(), sl.fine_tune_config(**LEAVES))
    with pytest.raises(CheckpointError, match="there is no such file"):
        agents.language_inputs(tiny_world(), sl.fine_tune_config(**LEAVES, data_path=str(tmp_path)))
