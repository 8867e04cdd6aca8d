"""The end of a process in the middle of its work, as an exception that nothing of ours catches.

It stands for a kill where many places are tried; tests/integration kills real processes at one place of each stage.
"""

import contextlib

import pytest


class Killed(BaseException):
    """The process ends here."""


@contextlib.contextmanager
def killed_in(owner, name, passes=0, *, after=False, counts=lambda: True):
    """The process of the block ends in a function, before its work or after it, when it was called `passes` times.

    Calls for which `counts()` is false are none of these.
    """
    original, calls = getattr(owner, name), []

    def dying(*arguments, **options):
        calls.extend([name] if counts() else [])
        is_last = len(calls) > passes
        if is_last and not after:
            raise Killed
        found = original(*arguments, **options)
        if is_last:
            raise Killed
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, dying)
        with pytest.raises(Killed):
            yield
