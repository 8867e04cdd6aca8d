"""Text streams whose reader may go away."""

from __future__ import annotations

import os
import sys
from typing import TextIO


class SafeStream:
    """A text stream whose writes never fail. Once the reader is gone, `is_lost` is True and writes are ignored.

    rich exits the process on a broken pipe, but a training must outlive its terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_lost = False

    @property
    def encoding(self) -> str:
        return self._stream.encoding or "utf-8"

    def isatty(self) -> bool:
        return is_terminal(self._stream)

    def fileno(self) -> int:
        return self._stream.fileno()

    def write(self, text: str) -> int:
        if not self.is_lost:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:  # a terminal without · and –
                self.write(text.encode(self.encoding, "replace").decode(self.encoding))
            except (OSError, ValueError) as error:  # ValueError: the stream is closed
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        if not self.is_lost:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def _lose(self, error: Exception) -> None:
        self.is_lost = True
        if isinstance(error, OSError) and self._stream in (sys.__stdout__, sys.__stderr__):
            # Flushing the buffer at exit would fail again and turn exit code 0 into 120.
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self._stream.fileno())
            os.close(null)


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is an open terminal."""
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False
