"""A compile cache that a kill or a full disk has torn is mended by the next run, in one line."""

import pytest
from support.scripted_runs import BASE, KEPT_HOWEVER_FAST, Scripts, flags


@pytest.mark.full
def test_truncated_entries_are_noted_once_and_written_again(tmp_path):
    scripts = Scripts(tmp_path, tmp_path / "cache", (KEPT_HOWEVER_FAST,))

    def train(name):
        sizes = BASE | {"num_updates": 2, "run_name": name}
        return scripts.run("train_ppo", *flags(**sizes))[1].splitlines()

    assert train("first") == []
    entries = list((tmp_path / "cache" / "stoix_like" / "xla").glob("*-cache"))
    assert len(entries) > 3
    entries.sort(key=lambda path: path.stat().st_size, reverse=True)
    whole = {path: path.stat().st_size for path in entries}
    torn, empty, *untouched = entries
    torn.write_bytes(torn.read_bytes()[:-20])
    empty.write_bytes(b"")
    kept = {path: path.stat().st_mtime_ns for path in untouched}

    programs = [path.name.rsplit("-", 2)[0] for path in (torn, empty)]
    assert sorted(train("second")) == sorted(
        f"note: {program} is compiled again: its cache entry was truncated" for program in programs
    )
    assert {path: path.stat().st_mtime_ns for path in untouched} == kept
    assert all(0.9 < path.stat().st_size / whole[path] < 1.1 for path in (torn, empty))
    assert train("third") == []


@pytest.mark.full
def test_a_cache_that_cannot_be_kept_is_told_once(tmp_path):
    (tmp_path / "file").touch()
    scripts = Scripts(tmp_path, tmp_path / "file")
    _, err = scripts.run("train_ppo", *flags(**BASE | {"num_updates": 2, "run_name": "run"}))
    (note,) = err.splitlines()
    assert note.startswith(f"note: the compile cache {tmp_path / 'file' / 'stoix_like' / 'xla'} cannot be used (")
