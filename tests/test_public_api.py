"""The public face: every name is there, has a docstring, and the example of the package runs as written."""

import subprocess
import sys
import traceback

import pytest

import stoix_like as sl
from stoix_like.errors import ConfigError


def test_every_public_name_is_there_and_documented_and_importing_them_imports_nothing_heavy():
    for name in sl.__all__:
        assert getattr(sl, name).__doc__, name
        assert name in dir(sl)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = sl.nothing
    code = "import sys, stoix_like; print([m for m in ('jax', 'jumanji', 'flax', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_traceback_ends_with_the_hint():
    """An error that a notebook does not catch."""
    with pytest.raises(ConfigError) as caught:
        sl.ppo_config(num_envs=0)
    assert traceback.format_exception(caught.value)[-1] == f"hint: {caught.value.hint}\n"
