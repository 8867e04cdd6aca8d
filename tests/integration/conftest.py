"""Fixtures of the integration tests: processes, the run that others are compared with, training in this process."""

import os
from pathlib import Path

import pytest
from support.paths import load_script
from support.scripted_runs import BASE, SPO_BASE, Scripts, flags

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
def reference(tmp_path_factory, compile_cache):
    """The uninterrupted run. Only read it."""
    folder = tmp_path_factory.mktemp("reference")
    Scripts(folder, compile_cache).run("train_ppo", *flags(**BASE, run_name="reference"))
    return folder / "reference"


@pytest.fixture(scope="session")
def spo_reference(tmp_path_factory, compile_cache):
    """The same of SPO. Only read it."""
    folder = tmp_path_factory.mktemp("reference")
    Scripts(folder, compile_cache).run("train_spo", *flags(**SPO_BASE, run_name="reference"))
    return folder / "reference"


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
