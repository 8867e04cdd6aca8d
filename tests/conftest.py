"""One CPU platform, strict shapes, quick compilation, and the fixtures every test shares.

XLA's optimisations are off: they change no result that a test looks at, and compiling takes a quarter of the time.
"""

import os
import signal

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def not_under_nohup():
    """SIGHUP as on a terminal, for this process and those it starts: where tests run under nohup, it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
