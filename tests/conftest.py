"""One CPU platform, strict shapes, quick compilation, and the fixtures every test shares.

XLA's optimisations are off: they change no result that a test looks at. So are its fusion emitters and the splitting of
a program for several threads, without which compiling takes less than half the time that is left. What one test or
worker has compiled, the others find: the workers of pytest-xdist inherit the folder, and the processes that tests start
inherit the flags. Tracing makes many objects and little garbage, so the collector looks for it seldom, and never among
what was imported; and no line of a compiled program says which lines called it.
"""

import atexit
import gc
import os
import shutil
import signal
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("MPLBACKEND", "Agg")
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE"
    " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    os.environ["JAX_COMPILATION_CACHE_DIR"] = tempfile.mkdtemp(prefix="stoix_like-tests-")
    atexit.register(shutil.rmtree, os.environ["JAX_COMPILATION_CACHE_DIR"], ignore_errors=True)

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_traceback_in_locations_limit", 0)


def pytest_collection_finish():
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture
def key():
    return jax.random.key(0)


@pytest.fixture
def not_under_nohup():
    """SIGHUP as on a terminal, for this process and those it starts: where tests run under nohup, it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
