"""Fixtures of the integration tests: processes, the run that others are compared with, training in this process."""

import functools
import os
from pathlib import Path

import pytest
from support.paths import load_script
from support.scripted_runs import SIZES_OF, Scripts, flags

from stoix_like.commands.entry import exit_code


def pytest_collection_modifyitems(items):
    """Everything in this folder is an integration test."""
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.integration)


@pytest.fixture(scope="session")
def compile_cache(tmp_path_factory):
    """One for all workers of pytest-xdist: most runs of these tests are the same few programs."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "xdg_cache"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def scripts(tmp_path, compile_cache, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Scripts(tmp_path, compile_cache)


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory, compile_cache):
    """(algorithm) -> the run that was never stopped, with which others are compared. Only read it."""

    @functools.cache
    def trained(algorithm):
        folder = tmp_path_factory.mktemp(algorithm)
        Scripts(folder, compile_cache).run(f"train_{algorithm}", *flags(**SIZES_OF[algorithm], run_name="reference"))
        return folder / "reference"

    return trained


@pytest.fixture
def reference(uninterrupted):
    """That of PPO."""
    return uninterrupted("ppo")


@pytest.fixture(scope="session")
def train_here(compile_cache):
    """Trains in this process, for variations that need no new one: (leaves) -> exit code."""

    def train(*argv, algorithm="ppo", **leaves):
        script = load_script(f"train_{algorithm}")
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
            patch.setenv("XDG_CACHE_HOME", str(compile_cache))
            return exit_code(script.main, [*argv, *flags(**leaves)])

    return train
