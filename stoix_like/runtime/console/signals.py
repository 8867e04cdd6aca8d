"""The signals that end a command, SIGINT, SIGTERM and SIGHUP: one policy for all commands.

A signal ends the command with exit code 130. Inside `receiving`, a function decides instead: a training ends its chunk
and saves at the first signal, and leaves at the second.

Python runs a handler between two of its own instructions only, so not while XLA compiles or computes. Therefore a
thread of each command reads the signals' numbers from a pipe, into which Python's C handler writes them at once. A
KeyboardInterrupt unwinds the main thread. If that takes longer than GRACE_SECONDS, the thread prints the closing lines
and leaves. Files are written atomically, so this may happen at any time. The process leaves by `os._exit`: a normal
exit destroys XLA's client while its threads compute, which crashes.
"""

from __future__ import annotations

import _thread
import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import ClassVar, NoReturn

from stoix_like.errors import INTERRUPTED
from stoix_like.runtime.console.streams import is_terminal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GRACE_SECONDS = 1.0  # for a KeyboardInterrupt to unwind the main thread
_FLUSH_SECONDS = 0.5  # for a reader that does not read
_SHOW_CURSOR = "\x1b[?25h"  # a live view hides it

#: What to do at a signal: the number -> whether the command leaves at once.
Receiver = Callable[[int], bool]


class _Process:
    """The state of this process: a signal concerns all of it."""

    receivers: ClassVar[list[Receiver]] = []
    closing_lines: ClassVar[list[Callable[[], Sequence[str]]]] = []
    watcher: _Watcher | None = None


class _Watcher:
    """The thread of a command that reads signals, also while the main thread is inside XLA."""

    def __init__(self) -> None:
        self.is_leaving, self._is_raised, self._is_told = False, False, itertools.count()
        self._reads, writes = os.pipe()
        for end in (self._reads, writes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        """In a child of a fork, which shares the pipe: its signals are its own, as in a process without a watcher."""
        if _Process.watcher is self:
            signal.set_wakeup_fd(-1)
            for number in _not_ignored():
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            _Process.watcher = None
            _Process.receivers.clear()
            _Process.closing_lines.clear()

    def start(self) -> None:
        """Installs the handlers, from which on a signal may come, and starts the thread."""
        threading.Thread(target=self._watch, name="signal-watcher", daemon=True).start()
        for number in _not_ignored():
            signal.signal(number, self._handle)

    def _watch(self) -> None:
        import select  # needed here alone

        while True:
            select.select([self._reads], [], [])
            if self._take() and not self.is_leaving:
                self.leave()
                _thread.interrupt_main()

    def _handle(self, _number: int, frame: FrameType | None) -> None:
        """The handler in the main thread. Whichever of the two threads reads a number decides what it does."""
        if self._take():
            self.leave()
        if self.is_leaving and not self._is_raised:  # a second KeyboardInterrupt would hit what the first one closes
            self._is_raised = True
            interrupt(frame)

    def _take(self) -> bool:
        """Whether one of the signals that have come since the last call ends the command."""
        is_last = False
        with contextlib.suppress(BlockingIOError):  # no more
            while True:
                number = os.read(self._reads, 1)[0]
                if number in SIGNALS and not self.is_leaving:
                    decides = _Process.receivers[-1:]  # a copy: the main thread may leave the block now
                    is_last = not decides or decides[0](number) or is_last
        return is_last

    def leave(self) -> None:
        """Begins to leave: the main thread has GRACE_SECONDS to unwind."""
        self.is_leaving = True
        timer = threading.Timer(GRACE_SECONDS, leave)
        timer.daemon = True
        timer.start()

    def tell(self) -> None:
        """Prints the closing lines and `interrupted`, once."""
        if next(self._is_told):
            return
        for lines in reversed(_Process.closing_lines):
            with contextlib.suppress(Exception):  # the main thread may be in the midst of a change
                _print_lines(lines())
        print("interrupted", file=sys.stderr)


def watch() -> None:
    """Makes this process a command, which a signal ends whatever it does. Called once, in the main thread."""
    if _Process.watcher is None:
        _Process.watcher = _Watcher()
        _Process.watcher.start()


def tell() -> None:
    """Prints the closing lines and `interrupted`, once."""
    if _Process.watcher is not None:
        _Process.watcher.tell()
    else:
        print("interrupted", file=sys.stderr)


def is_interrupted() -> bool:
    """Whether a signal is ending this command."""
    return _Process.watcher is not None and _Process.watcher.is_leaving


def leave() -> NoReturn:
    """Prints the closing lines of an interrupted command and ends the process, without destroying XLA's client."""

    def finish() -> None:
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # a stream is closed, or is being written
            if is_terminal(sys.stdout):
                print(end=_SHOW_CURSOR)
            if is_interrupted():
                tell()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                stream.flush()

    thread = threading.Thread(target=finish, daemon=True)
    thread.start()
    thread.join(_FLUSH_SECONDS)
    os._exit(INTERRUPTED)


def end() -> None:
    """The command is done: what is left is the end of the interpreter, in which a signal ends the process at once."""

    def receive(_number: int) -> NoReturn:
        tell()
        leave()

    _Process.receivers.append(receive)


def interrupt(frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, except where Python cannot pass it on: there a command exits at once.

    A KeyboardInterrupt during the import of an extension causes a crash or another error, and one inside JAX's
    garbage-collection callback is lost.
    """
    while frame is not None and _is_watched():
        code = frame.f_code
        if code.co_filename.startswith("<frozen importlib") or code.co_name == "_xla_gc_callback":
            leave()
        frame = frame.f_back
    raise KeyboardInterrupt


@contextlib.contextmanager
def receiving(receive: Receiver) -> Iterator[None]:
    """Inside the block, `receive` decides what a signal does. Outside the main thread the block changes nothing.

    In a notebook or another program, whose signals are its own outside the block, it is called by Python's handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _Process.receivers.append(receive)
    previous = {number: signal.signal(number, _receive_here) for number in _not_ignored()} if not _is_watched() else {}
    try:
        yield
    finally:
        _Process.receivers.remove(receive)
        for number, handler in previous.items():
            if handler is not None:  # not installed from Python, which cannot install it again
                signal.signal(number, handler)


def _receive_here(number: int, frame: FrameType | None) -> None:
    """The handler where no watcher runs."""
    if _Process.receivers[-1](number):
        interrupt(frame)


def _is_watched() -> bool:
    return _Process.watcher is not None


def _not_ignored() -> list[int]:
    """The signals to handle: under nohup SIGHUP is ignored, and stays so."""
    return [n for n in SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]


@contextlib.contextmanager
def closing_lines(lines: Callable[[], Sequence[str]]) -> Iterator[None]:
    """If a signal ends the command inside the block, `lines` are printed: how to go on."""
    _Process.closing_lines.append(lines)
    try:
        yield
    except KeyboardInterrupt:
        if _Process.watcher is not None:
            _Process.watcher.tell()
        else:
            _print_lines(lines())
        raise
    finally:
        _Process.closing_lines.remove(lines)


def _print_lines(lines: Sequence[str]) -> None:
    for line in lines:
        print(line)
