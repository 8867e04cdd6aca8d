"""Documentation that runs: the fenced blocks of a page, cut to a test's sizes, in a copy of the project.

Flags are appended and numbers made smaller, and nothing else: a wrong flag, preset or path of the page is wrong here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]  # not from support.paths: this file is run as a program, too
LEFT_OUT = shutil.ignore_patterns("*.egg-info", ".*_cache", "__pycache__", ".hypothesis")
LEFT_OUT_AT_THE_TOP = {".venv", ".git", "runs", "build", "mlruns"}
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page; `line` is the number of its first line of content."""

    language: str
    line: int
    code: str


def blocks(text, *languages):
    """The fenced blocks of a page, in order; of the languages named, or all."""
    found = [
        Block(fence["language"], text.count("\n", 0, fence.start("code")) + 1, textwrap.dedent(fence["code"]))
        for fence in FENCE.finditer(text)
    ]
    return [block for block in found if not languages or block.language in languages]


def commands(code):
    """Every command of a shell block, without its comment; what a backslash continues is one."""
    lines = [line.partition("  #")[0].strip() for line in code.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


class Cuts(NamedTuple):
    """How commands are shortened."""

    appended: list[tuple[str, str]]  # (pattern, flags): of the first that fits, those that the command has not
    replaced: list[tuple[str, str]]  # (text, text): numbers that make a command long, and smaller ones


def shortened(command, cuts):
    """The command, made short."""
    flags = next((flags for pattern, flags in cuts.appended if re.search(pattern, command)), "")
    for long, short in cuts.replaced:
        command = command.replace(long, short)
    new = [pair for pair in re.findall(r"-\S+(?: [^-]\S*)?", flags) if pair.split()[0] not in command.split()]
    begun = command.endswith(" &")
    return " ".join([command.removesuffix(" &"), *new, *["&"] * begun])


def _left_out(folder, names):
    """`runs` at the top holds runs; `stoix_like/runtime/runs` is a room."""
    return LEFT_OUT(folder, names) | (LEFT_OUT_AT_THE_TOP & set(names) if Path(folder) == ROOT else set())


class Clone:
    """A copy of the project, and a shell in it."""

    def __init__(self, folder, cache):
        self.path = folder / "stoix_like"
        shutil.copytree(ROOT, self.path, ignore=_left_out)
        self._link_environment(self.path / ".venv")
        kept = {name: value for name, value in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
        self.environment = kept | {
            "PYTHONPATH": str(self.path),  # before the project that is installed in this environment
            "XDG_CACHE_HOME": str(cache),
            "JAX_PLATFORMS": "cpu",
            "MPLBACKEND": "Agg",
        }

    @staticmethod
    def _link_environment(folder):
        folder.mkdir()
        for entry in Path(sys.prefix).iterdir():
            if not entry.name.startswith("."):
                (folder / entry.name).symlink_to(entry)
        for stamp in (".runtime", ".dev"):  # what the Makefile leaves when it has installed
            (folder / stamp).touch()

    def run(self, command):
        """What a shell command, which must succeed, prints."""
        line = ["bash", "-ec", f"source .venv/bin/activate; {command}"]
        options = {"cwd": self.path, "env": self.environment, "text": True, "timeout": 1800}
        done = subprocess.run(line, check=False, capture_output=True, **options)
        output = done.stdout[-3000:] + done.stderr[-3000:]
        assert done.returncode == 0, f"$ {command}\nexit code {done.returncode}\n{output}"
        return done.stdout

    def lines_of(self, command):
        """What a command comes down to: the lines of a make target, or itself."""
        if not command.startswith("make "):
            return [command]
        lines = self.run(f"{command} --dry-run").replace("\\\n", "").splitlines()
        return [line for line in lines if not line.startswith("make")]

    def play(self, page, played):
        """What the blocks of a page print, one after the other, in one Python and one working folder.

        Shell blocks end at their first failing command. Python blocks share their names; one whose first line is a
        comment that names a file is written there instead, for a later block to run. A page that ends while the device
        computes fails: Python, ending there, crashes now and then (docs/troubleshooting.md).
        """
        (self.path / "played.json").write_text(json.dumps([page, *played]))
        return self.run(f"python {Path(__file__).resolve()} played.json")


def _play(page, played):
    names = {"__name__": "__main__"}
    for language, line, code in played:
        print(f"--- {page}:{line}", flush=True)
        named = re.match(r"# (\w+\.py)\n", code)
        if language == "bash":
            subprocess.run(["bash", "-ec", code], check=True)
        elif named:
            Path(named[1]).write_text(code)
        else:
            padded = "\n" * (line - 1) + code  # a traceback names the line of the page
            exec(compile(padded, page, "exec"), names)
    jax = sys.modules.get("jax")
    if jax is not None and not all(array.is_ready() for array in jax.live_arrays()):
        raise SystemExit(f"{page} ends while the device computes, which can crash: print what it computes")


if __name__ == "__main__":
    name, *parts = json.loads(Path(sys.argv[1]).read_text())
    sys.path[0] = ""  # as where a reader types: modules are found in the working folder
    _play(name, parts)
