"""Scripts in this process, in a folder of the test's own, and what a refusal must look like."""

import pytest
from support.paths import all_below, load_script

from stoix_like.commands.entry import exit_code


@pytest.fixture
def inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "")  # set: the user's own cache is left alone


@pytest.fixture
def refused(inside, capfd):
    """Runs a script that must fail with this code; gives its error lines, after checking that it changed no file."""

    def run(code, script, *argv):
        before = all_below()
        result = exit_code(load_script(script).main, [str(word) for word in argv])
        captured = capfd.readouterr()
        lines = captured.err.splitlines()
        assert (result, captured.out) == (code, ""), captured.err
        assert [line.partition(":")[0] for line in lines] == ["error"] * (len(lines) - 1) + ["hint"], captured.err
        assert all_below() == before
        return lines

    return run
