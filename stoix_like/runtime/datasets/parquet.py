"""Rows of written turns as parquet: `wm_train.parquet` and `wm_val.parquet`, with the columns of SPA's release.

A row of the release is an answer (`response`) and all messages before it (`prompt`). Ours have their token arrays
beside. Both can be learned from; without token arrays the texts are encoded, and rows that do not fit are left out.

Source: github.com/shiqichen17/SPA, generate_sft_data.py, and the data that it was published with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from stoix_like.algorithms.text.world_rows import WrittenTurns
from stoix_like.config.checks.agent import TEXT_WORLDS
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.language.templates import ASSISTANT, THINK, USER
from stoix_like.language.tokenizers import TURN_END, Tokenizer
from stoix_like.runtime.datasets.row_files import RowFile
from stoix_like.runtime.datasets.row_form import RowForm, check_form
from stoix_like.runtime.storage.atomic import atomic_write
from stoix_like.types import Prompt

if TYPE_CHECKING:
    import pyarrow

TRAINING, VALIDATION = "wm_train.parquet", "wm_val.parquet"
MISSING = "pip install 'stoix_like[language]'"
_FORM = b"stoix_like.form"  # key of the file's metadata


class Texts(NamedTuple):
    """How texts become tokens."""

    tokenizer: Tokenizer
    prompt: Prompt  # what stands before the first turn


def is_installed() -> bool:
    """Whether there is a library for parquet."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError:
        return False
    return True


def write_parquet(path: Path, rows: RowFile, texts: Texts) -> None:
    """Writes the rows, whole or not at all."""
    import pyarrow
    from pyarrow import parquet

    num_state = rows.form.slots[0]
    written = [_messages(tokens, valid, num_state, texts) for tokens, valid in zip(*rows.turns, strict=True)]
    count = len(written)
    columns: dict[str, Any] = {
        "data_source": [rows.form.task_id] * count,
        "prompt": [messages[:-1] for messages in written],
        "response": [messages[-1]["content"] for messages in written],
        "ability": [rows.form.mode] * count,
        "reward_model": [json.dumps({"style": "rule"})] * count,
        "extra_info": [json.dumps({"trajectory": int(number)}) for number in rows.trajectory],
        "tokens": list(rows.turns.tokens.reshape(count, -1)),
        "is_valid": list(rows.turns.is_valid.reshape(count, -1)),
        "trajectory": rows.trajectory,
    }
    table = pyarrow.table(columns)
    table = table.replace_schema_metadata({_FORM: json.dumps(rows.form._asdict()).encode()})
    with atomic_write(path) as temporary:
        parquet.write_table(table, temporary)


def _messages(tokens: np.ndarray, is_valid: np.ndarray, num_state: int, texts: Texts) -> list[dict[str, str]]:
    """The messages of a row [T, S + G]: the system's, then in turn the user's and the assistant's."""
    found = [{"role": "system", "content": texts.prompt.system}]
    for turn in np.flatnonzero(is_valid.any(axis=1)):
        told, answer = (
            texts.tokenizer.to_text(tokens[turn, slots][is_valid[turn, slots]])
            for slots in (slice(None, num_state), slice(num_state, None))
        )
        before = texts.prompt.instructions if turn == 0 else ""
        told = told.removeprefix(TURN_END).removeprefix(USER).removesuffix(f"{ASSISTANT}{THINK}")
        found.append({"role": "user", "content": before + told})
        found.append({"role": "assistant", "content": THINK + answer.removesuffix(TURN_END)})
    return found


def has_parquet(folder: Path) -> bool:
    """Whether there are rows as parquet."""
    return any((folder / name).is_file() for name in (TRAINING, VALIDATION))


def read_folder(folder: Path, form: RowForm, texts: Texts) -> tuple[WrittenTurns, WrittenTurns]:
    """(rows to learn from, rows of validation) of a folder. Raises CheckpointError as `read_parquet`."""
    training, validation = (read_parquet(folder / name, form, texts) for name in (TRAINING, VALIDATION))
    return training, validation


def read_parquet(path: Path, form: RowForm, texts: Texts) -> WrittenTurns:
    """The rows of a file of ours, or of any with the columns `prompt` and `response`.

    Raises CheckpointError if it is missing, torn, lacks a column, is of another form, cannot be written in the tokens
    of the agent, or has no row that fits into its slots.
    """
    table = _read_table(path)
    given = (table.schema.metadata or {}).get(_FORM)
    names = ("prompt", "response") if given is None else ("tokens", "is_valid")
    if missing := [name for name in names if name not in table.column_names]:
        raise _no_rows(path, f"it lacks the column {missing[0]}, and has {', '.join(table.column_names)}")
    if given is not None:
        try:
            check_form(path, RowForm(**json.loads(given)), form)
            arrays = [np.array(table.column(name).to_pylist(), kind) for name, kind in zip(names, "i?", strict=True)]
            return WrittenTurns(*(x.reshape(len(x), -1, sum(form.slots)) for x in arrays))
        except (ValueError, TypeError) as error:
            raise _no_rows(path, "its token arrays cannot be read") from error
    if "data_source" in table.column_names:
        sources = set(table.column("data_source").to_pylist()) & set(TEXT_WORLDS)
        if sources - {form.task_id}:
            what = f"{path} cannot be learned from: it is of {', '.join(sorted(sources))}"
            raise CheckpointError(what, f"give rows of the agent's world, {form.task_id}")
    return _from_texts(path, table, form, texts)


def _from_texts(path: Path, table: pyarrow.Table, form: RowForm, texts: Texts) -> WrittenTurns:
    """The rows of texts. With a context of all turns, those that a longer conversation begins with are left out."""
    found = dict[tuple[str, ...], None]()
    for prompt, response in zip(table.column("prompt").to_pylist(), table.column("response").to_pylist(), strict=True):
        try:
            turns = tuple(str(message["content"]) for message in prompt if message["role"] != "system")
            found[(*turns[-1:], response) if form.context == "single_turn" else (*turns, response)] = None
        except (TypeError, KeyError) as error:
            raise _no_rows(path, "its column prompt has no messages with role and content") from error
        if len(turns) % 2 == 0 or not isinstance(response, str):
            raise _no_rows(path, "in a row of it, user and assistant do not take turns")
    begun = {turns[:end] for turns in found for end in range(2, len(turns), 2)}
    rows = []
    for turns in found if form.context == "single_turn" else [turns for turns in found if turns not in begun]:
        try:
            rows.append(_slotted(turns, form, texts))
        except ConfigError as error:
            what = f"the agent's tokens cannot write it, as it is of another world, mode or rendering: {error.what}"
            raise _no_rows(path, what) from error
    fitting = [row for row in rows if row is not None]
    if not fitting:
        raise _no_rows(path, f"of its {len(rows)} rows none fits into slots of {form.slots} tokens")
    most = max(len(tokens) for tokens, _ in fitting)
    padded = [[np.pad(x, ((0, most - len(x)), (0, 0))) for x in row] for row in fitting]
    return WrittenTurns(*(np.stack([row[n] for row in padded]) for n in (0, 1)))


def _slotted(turns: tuple[str, ...], form: RowForm, texts: Texts) -> tuple[np.ndarray, np.ndarray] | None:
    """(tokens, whether they are some) [T, S + G] of user and assistant in turn; None if they do not fit."""
    num_state, num_answer = form.slots
    tokens = np.zeros((len(turns) // 2, num_state + num_answer), np.int32)
    is_valid = np.zeros(tokens.shape, bool)
    for number, (told, answer) in enumerate(_pairs(turns, texts)):
        for start, size, text in ((0, num_state, told), (num_state, num_answer, answer)):
            ids = texts.tokenizer.encode(text)
            if len(ids) > size:
                return None
            first = start + (num_state - len(ids) if start == 0 else 0)  # the world's text ends where answers begin
            tokens[number, first : first + len(ids)], is_valid[number, first : first + len(ids)] = ids, True
    return tokens, is_valid


def _pairs(turns: tuple[str, ...], texts: Texts) -> Iterator[tuple[str, str]]:
    """(what the world says, what is answered), as the agent reads and writes them."""
    for number, told in enumerate(turns[::2]):
        before = "" if number == 0 else USER
        shown = told.removeprefix(texts.prompt.instructions) if number == 0 else told
        answer: str = turns[2 * number + 1]
        yield f"{before}{shown}{ASSISTANT}{THINK}", f"{answer.removeprefix(THINK)}{TURN_END}"


def _read_table(path: Path) -> pyarrow.Table:
    if not is_installed():
        raise CheckpointError(f"{path} cannot be read: there is no library for parquet", MISSING)
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.read_table(path)
    except FileNotFoundError as error:
        raise _no_rows(path, "there is no such file") from error
    except (OSError, pyarrow.ArrowException) as error:
        raise _no_rows(path, "it is torn, or no parquet file") from error


def _no_rows(path: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{path} has no rows of turns: {reason}", "give a folder that the stage generate has made")
