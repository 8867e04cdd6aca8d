"""Files that are written whole or not at all, one or several together."""

import json
import math
from pathlib import Path

import pytest

from stoix_like.errors import RunError
from stoix_like.runtime.storage import os_errors
from stoix_like.runtime.storage.atomic import (
    atomic_write,
    atomic_write_json,
    atomic_write_output,
    atomic_write_text,
    write_files,
    write_output_json,
    write_output_text,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_failure_leaves_the_old_file_and_nothing_else_and_json_is_strict(tmp_path):
    (tmp_path / "a.txt").write_text("old")

    def write_half():
        with atomic_write(tmp_path / "a.txt") as temporary:
            temporary.write_text("half")
            raise KeyError("the rest")

    with pytest.raises(KeyError):
        write_half()
    with pytest.raises(UnicodeEncodeError):
        atomic_write_text(tmp_path / "a.txt", "new \udc80")  # cannot be encoded
    assert (names(tmp_path), (tmp_path / "a.txt").read_text()) == (["a.txt"], "old")
    atomic_write_text(tmp_path / "a.txt", "new ä")
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "new ä"
    atomic_write_json(tmp_path / "a.json", {"a": [1.5, math.nan, (math.inf, "x")]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [1.5, None, [None, "x"]]}


def test_files_are_renamed_only_if_all_can_be_and_what_cannot_be_written_is_one_line_and_a_hint(tmp_path):
    write_files(tmp_path / "new", {"a": b"1", "b": b"2"})
    assert names(tmp_path / "new") == ["a", "b"]
    (tmp_path / "new" / "c").mkdir()
    with pytest.raises(IsADirectoryError):
        write_files(tmp_path / "new", {"a": b"3", "c": b"4"})
    assert ((tmp_path / "new" / "a").read_bytes(), names(tmp_path / "new")) == (b"1", ["a", "b", "c"])
    with pytest.raises(IsADirectoryError) as renaming:
        atomic_write_text(tmp_path / "new" / "c", "5")
    found = os_errors.storage_error(renaming.value)  # which names what was given, and not the temporary file
    assert (found.what, found.hint.split(", ")[0]) == (f"Is a directory: {tmp_path / 'new' / 'c'}", "name a file")
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="cannot be written") as caught, atomic_write_output(tmp_path / "file" / "a"):
        pass
    assert caught.value.hint == "something else has this name"
    for write, content in ((write_output_text, "x"), (write_output_json, {})):
        with pytest.raises(RunError, match=r"^/proc/x cannot be written: No such file"):
            write(Path("/proc/x"), content)
        write(tmp_path / "out", content)
    assert (tmp_path / "out").read_text() == "{}\n"
