"""What the log levels let through, in a process of its own: logging is set up for a whole process."""

import subprocess
import sys
import threading

import pytest

from stoix_like.runtime.console.messages import reported_if_slow

SPEAK = """
import logging, sys
from stoix_like.config.sections.runs import LoggingConfig
from stoix_like.runtime.console import messages
messages.mark_cli()
logging.basicConfig()  # what a library's call of logging.warning does
messages.configure_logging(LoggingConfig(log_level=sys.argv[1], backend_logs_visible=sys.argv[2] == "yes"))
messages.configure_logging(LoggingConfig(log_level=sys.argv[1], backend_logs_visible=sys.argv[2] == "yes"))
for name in ("stoix_like.runtime.training.driver", "matplotlib.animation", "absl", "asyncio"):
    for level in ("debug", "info", "warning", "error"):
        getattr(logging.getLogger(name), level)("%s", level[0])
"""


@pytest.mark.parametrize(
    ("level", "backend", "ours", "library", "orbax"),
    [
        ("info", "no", "iwe", "we", ""),
        ("debug", "no", "diwe", "we", ""),
        ("error", "no", "e", "e", ""),
        ("debug", "yes", "diwe", "diwe", "diwe"),
        ("warning", "yes", "we", "we", "we"),
    ],
)
def test_each_message_is_shown_once_from_its_level_on(level, backend, ours, library, orbax):
    result = subprocess.run([sys.executable, "-c", SPEAK, level, backend], check=True, capture_output=True, text=True)
    levels = {"d": "DEBUG", "i": "INFO", "w": "WARNING", "e": "ERROR"}
    shown = {
        "stoix_like.runtime.training.driver": ours,
        "matplotlib.animation": library,
        "absl": orbax,
        "asyncio": orbax,
    }
    expected = [f"{levels[letter]} {name}: {letter}" for name, letters in shown.items() for letter in letters]
    assert (result.stdout, result.stderr.splitlines()) == ("", expected)


def test_a_reader_that_went_away_ends_nothing():
    command = f"{SPEAK}\nprint('done')"
    with subprocess.Popen(
        [sys.executable, "-c", command, "debug", "yes"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        process.stderr.close()
        assert process.stdout.read() == "done\n"
    assert process.returncode == 0


def test_a_program_that_trains_keeps_its_own_logging():
    """Its handler, its format and the root's level stay; only our own level is set."""
    program = """
import logging
from stoix_like.config.sections.runs import LoggingConfig
from stoix_like.runtime.console import messages
logging.basicConfig(format="mine %(message)s", level="INFO")
messages.configure_logging(LoggingConfig(log_level="debug"))
logging.getLogger("other").info("a")
logging.getLogger("stoix_like.x").debug("b")
"""
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert result.stderr.splitlines() == ["mine a", "mine b"]


def test_a_slow_block_is_reported_once_and_a_quick_one_is_not():
    lines, said = [], threading.Event()

    def report(line):
        lines.append(line)
        said.set()

    with reported_if_slow("never", report, seconds=600.0):
        pass
    with reported_if_slow("building hex8", report, seconds=0.0):
        assert said.wait(600)
    assert lines == ["building hex8"]
