"""Ctrl-C at moments at which Python cannot pass it on."""

import signal
import subprocess
import sys
import textwrap

import pytest

IN_AN_IMPORT = """
    import importlib.abc, importlib.machinery, os, signal, sys, time

    class Slow(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        '''A module whose import says that it has begun, waits, and turns KeyboardInterrupt into another error.'''
        def find_spec(self, name, path, target=None):
            return importlib.machinery.ModuleSpec(name, self) if name == "slow_extension" else None
        def create_module(self, spec):
            return None
        def exec_module(self, module):
            try:
                print("ready", flush=True)
                time.sleep(60)
            except KeyboardInterrupt:
                raise ImportError("Encountered an error while initializing the extension.")

    sys.meta_path.insert(0, Slow())

    def main(argv):
        import slow_extension
"""
IN_A_CALLBACK = """
    import gc, time

    def _xla_gc_callback(*_):
        print("ready", flush=True)
        time.sleep(60)

    def main(argv):
        gc.callbacks.append(_xla_gc_callback)
        gc.collect()
        gc.callbacks.clear()
        print("went on")
"""
ANYWHERE = """
    import time

    def main(argv):
        print("ready", flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("program", [IN_AN_IMPORT, IN_A_CALLBACK, ANYWHERE], ids=["import", "callback", "anywhere"])
def test_an_interrupt_ends_the_command(program):
    text = textwrap.dedent(program) + "\nfrom stoix_like.commands.entry import run_main\nrun_main(main)\n"
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")
