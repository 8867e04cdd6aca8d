"""The compile cache: where it is, what it holds, and notes on entries that cannot be read."""

import types
import warnings
import zlib

import jax
import pytest

from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.runtime.console import messages
from stoix_like.runtime.hardware import compile_cache, devices

WHOLE = zlib.compress(b"program" * 1000)


@pytest.mark.parametrize("variable", [None, "XDG_CACHE_HOME"])
def test_without_a_home_nothing_is_cached_unless_it_is_said_where(variable, monkeypatch, tmp_path):
    """As in a container whose user id stands in no passwd."""

    def no_home():
        raise RuntimeError("Could not determine home directory.")

    for name in ("JAX_COMPILATION_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compile_cache.Path, "home", no_home)
    if variable:
        monkeypatch.setenv(variable, str(tmp_path))
    asked = {}
    monkeypatch.setattr(jax.config, "update", asked.__setitem__)
    devices.select(HardwareConfig())
    assert asked.get("jax_compilation_cache_dir") == (str(tmp_path / "stoix_like" / "xla") if variable else None)


def test_cached_is_what_takes_a_fifth_of_a_second_unless_jax_is_told_another_time(monkeypatch):
    asked, name = {}, "jax_persistent_cache_min_compile_time_secs"
    monkeypatch.setattr(jax.config, "update", asked.__setitem__)
    monkeypatch.delenv(name.upper())
    compile_cache.enable()
    assert asked.pop(name) == 0.2
    monkeypatch.setenv(name.upper(), "3")
    compile_cache.enable()
    assert name not in asked


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """An entry of `jit_chunk` to be, and what lets JAX's warning of it go through what the compile cache installs."""
    path = tmp_path / f"jit_chunk-{'0f' * 32}-cache"
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    config = types.SimpleNamespace(update=lambda *_: None, jax_compilation_cache_dir=str(tmp_path))
    monkeypatch.setattr(compile_cache, "jax", types.SimpleNamespace(config=config))
    monkeypatch.setattr(messages, "is_cli", lambda: True)
    compile_cache.enable()

    def warn(why="zlib.error: Error -5 while decompressing data: incomplete stream"):
        text = f"Error reading persistent compilation cache entry for 'jit_chunk': {why}"
        warnings.showwarning(UserWarning(text), UserWarning, "compiler.py", 1)

    return path, warn


def test_an_entry_that_another_process_is_writing_is_left_to_it(entry, capsys, monkeypatch):
    path, warn = entry
    path.write_bytes(WHOLE[:-8])
    monkeypatch.setattr(compile_cache.time, "sleep", lambda _: path.write_bytes(WHOLE))  # the other, meanwhile
    warn()
    assert (path.read_bytes(), capsys.readouterr().err) == (WHOLE, "")


def test_an_entry_that_is_truncated_is_removed_and_one_that_cannot_be_used_is_noted(entry, capsys, monkeypatch):
    monkeypatch.setattr(compile_cache.time, "sleep", lambda _: None)
    path, warn = entry
    path.write_bytes(WHOLE[:-8])
    warn()
    assert not path.exists()
    assert capsys.readouterr().err == "note: jit_chunk is compiled again: its cache entry was truncated\n"
    path, warn = entry
    path.write_bytes(WHOLE)
    warn("XlaRuntimeError: made for another machine")
    assert path.exists()
    why = "cannot be used (XlaRuntimeError: made for another machine); every start compiles"
    assert capsys.readouterr().err == f"note: the compile cache {path.parent} {why}\n"
