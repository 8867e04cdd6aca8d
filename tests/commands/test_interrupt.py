"""Ctrl-C at moments at which Python cannot pass it on."""

import signal
import subprocess
import sys
import textwrap

import pytest

from stoix_like.runtime.training.stopping import STOPPING

WAIT = 'print("ready", flush=True); time.sleep(60)'
IN_AN_IMPORT = f"""
    import importlib.abc, importlib.machinery, sys, time

    class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        '''A module whose import says that it has begun, waits, and turns KeyboardInterrupt into another error.'''
        def find_spec(self, name, path, target=None):
            return importlib.machinery.ModuleSpec(name, self) if name == "slow_extension" else None
        def create_module(self, spec):
            return None
        def exec_module(self, module):
            try:
                {WAIT}
            except KeyboardInterrupt:
                raise ImportError("Encountered an error while initializing the extension.")

    sys.meta_path.insert(0, Slow())

    def main(argv):
        import slow_extension
"""
IN_A_CALLBACK = f"""
    import gc, time

    def _xla_gc_callback(*_):
        {WAIT}

    def main(argv):
        gc.callbacks.append(_xla_gc_callback)
        gc.collect()
        gc.callbacks.clear()
        print("went on")
"""
ANYWHERE = f"""
    import time

    def main(argv):
        {WAIT}
"""
CONVERTED = f"""
    import time
    from stoix_like.errors import RunError

    def main(argv):
        try:
            {WAIT}
        except BaseException as error:
            raise RunError("the library failed", "none") from error
"""
SLOW_TO_UNWIND = f"""
    import time

    def main(argv):
        try:
            {WAIT}
        finally:
            time.sleep(60)
"""
DONE = f"""
    import atexit, time

    def finish():
        {WAIT}

    def main(argv):
        atexit.register(finish)
"""
#: Inside XLA, with a block around it.
IN_XLA = """
    import contextlib
    import jax
    from stoix_like.runtime.console import signals
    from stoix_like.runtime.training.stopping import stopping_on_signals

    def main(argv):
        endless = jax.jit(lambda x: jax.lax.while_loop(lambda x: x > 0, lambda x: x + 1, x))
        compiled = endless.lower(1).compile()
        with BLOCK:
            print("ready", flush=True)
            compiled(1).block_until_ready()
"""
PLAIN = IN_XLA.replace("BLOCK", "contextlib.nullcontext()")
WITH_LINES = IN_XLA.replace("BLOCK", 'signals.closing_lines(lambda: ["next: this"])')
STOPPABLE = IN_XLA.replace("BLOCK", "stopping_on_signals()")


def _started(program):
    text = textwrap.dedent(program) + "\nfrom stoix_like.commands.entry import run_main\nrun_main(main)\n"
    process = subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("program", "number", "expected"),
    [
        (IN_AN_IMPORT, signal.SIGINT, ("", "interrupted\n")),
        (IN_A_CALLBACK, signal.SIGINT, ("", "interrupted\n")),
        (ANYWHERE, signal.SIGINT, ("", "interrupted\n")),
        (ANYWHERE, signal.SIGTERM, ("", "interrupted\n")),
        (ANYWHERE, signal.SIGHUP, ("", "interrupted\n")),
        (CONVERTED, signal.SIGINT, ("", "interrupted\n")),
        (SLOW_TO_UNWIND, signal.SIGINT, ("", "interrupted\n")),
        (PLAIN, signal.SIGTERM, ("", "interrupted\n")),
        (WITH_LINES, signal.SIGINT, ("next: this\n", "interrupted\n")),
        (DONE, signal.SIGINT, ("", "interrupted\n")),
    ],
    ids=["import", "callback", "anywhere", "SIGTERM", "SIGHUP", "converted", "slow", "xla", "lines", "done"],
)
def test_a_signal_ends_the_command(program, number, expected, not_under_nohup):
    """Each program would go on for a minute, and the one in XLA for ever."""
    with _started(program) as process:
        process.send_signal(number)
        out, err = process.communicate(timeout=50)
    assert (process.returncode, out, err) == (130, *expected)


def test_the_first_signal_is_answered_inside_xla_and_the_second_leaves():
    with _started(STOPPABLE) as process:
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == STOPPING + "\n"
        process.send_signal(signal.SIGHUP)  # after the first signal it has no effect
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=50)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


FORKED = """
    import os, signal, time

    def main(argv):
        ready, is_ready = os.pipe()
        if (child := os.fork()) == 0:
            os.write(is_ready, b".")
            time.sleep(20)
            os._exit(1)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        time.sleep(0.2)  # a watcher that takes the child's signal for its own ends this process meanwhile
"""


def test_a_signal_of_a_forked_child_is_not_the_parents():
    text = textwrap.dedent(FORKED) + "\nfrom stoix_like.commands.entry import run_main\nrun_main(main)\n"
    result = subprocess.run([sys.executable, "-c", text], check=False, capture_output=True, text=True, timeout=50)
    assert (result.returncode, result.stdout, result.stderr) == (0, "-15\n", "")
