"""What a user sees: `error:` and `hint:` lines, exit codes, and no JAX before there is something to compute."""

import errno
import functools
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.paths import ROOT

from stoix_like.commands import entry
from stoix_like.commands.entry import exit_code
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, PretrainConfig
from stoix_like.config.sections.runs import AlphaZeroConfig, PPOConfig
from stoix_like.errors import CheckpointError, ConfigError, MissingExtraError, RunError, UnsupportedEnvironmentError
from stoix_like.runtime.loading.presets import preset_paths
from stoix_like.runtime.runs.build import ALGORITHMS
from stoix_like.runtime.runs.sources import load_config

HINT = "hint: --help lists every flag, and docs/configuration.md every leaf, with its type, default and range"
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
#: Says on stderr what a program has imported when it is done.
WATCHED = """
    import atexit, sys

    def tell():
        heavy = sorted({"jax", "jumanji", "flax", "numpy", "orbax"} & set(sys.modules))
        if heavy:
            print("imported", heavy, file=sys.stderr)

    atexit.register(tell)
"""
TRAIN = """
    from stoix_like.commands.entry import run_main

    def main(argv):
        from stoix_like.config.sections.runs import PPOConfig
        from stoix_like.runtime.loading.documents import to_yaml
        from stoix_like.runtime.runs.sources import load_config

        loaded = load_config(PPOConfig, "ppo", argv, default_config="ppo/quick")
        if loaded.options.print_config:
            print(to_yaml(loaded.given), end="")
            return 0
        raise RuntimeError("a bug of ours")

    run_main(main)
"""
TRAIN_SPO = """
    import runpy

    script, *sys.argv[1:] = sys.argv[1:]
    sys.argv[0] = script
    runpy.run_path(script, run_name="__main__")
"""


@pytest.fixture
def started(tmp_path):
    """Runs a program in an empty folder."""
    script = tmp_path / "train.py"

    def run(program, *argv, **options):
        script.write_text(textwrap.dedent(WATCHED) + textwrap.dedent(program))
        command = [sys.executable, script, *argv]
        return subprocess.run(command, check=False, text=True, timeout=60, cwd=tmp_path, **(PIPES | options))

    return run


@pytest.fixture
def command(started):
    return functools.partial(started, TRAIN)


@pytest.fixture
def train_spo(started):
    """The script itself."""
    return functools.partial(started, TRAIN_SPO, ROOT / "scripts" / "train_spo.py")


@pytest.mark.parametrize("flag", ["--help", "-h", "--version", "--print-config", "--nonsense --help"])
def test_questions_are_answered_without_jax(command, flag):
    """Help wins over mistakes."""
    result = command(*flag.split())
    assert (result.returncode, result.stderr) == (0, "")
    starts = {"--version": "stoix_like ", "--print-config": "# The task and its environments."}
    beginning = starts.get(flag, "usage: python scripts/")
    assert result.stdout.startswith(beginning)


def test_help_pages_of_runs_and_figures_need_no_jax(started):
    program = """
        import contextlib
        from stoix_like.commands.table import COMMANDS
        for words in ("train-ppo", "train-spo", "train-agent", "spa", "spa pretrain", "plot", "compare", "sweep"):
            name, *stage = words.split()
            with contextlib.suppress(SystemExit):
                COMMANDS[name].run([*stage, "--help"])
        """
    result = started(program)
    assert (result.returncode, "jax" in result.stderr, result.stdout.count("usage: ")) == (0, False, 8)


def test_spos_help_configuration_and_mistakes_are_printed_at_once_without_jax(train_spo, tmp_path):
    shown = train_spo("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"usage: python {ROOT}/scripts/train_spo.py [--config FILE|PRESET]")
    assert "--num-particles INT" in shown.stdout
    processes = ("--coordinator-address", "host:1234", "--num-processes", "2", "--process-id", "1")
    first = train_spo(
        "--num-particles", "7", "--search-depth", "full", "--hidden-dim", "1e2", *processes, "--print-config"
    )
    assert (first.returncode, first.stderr) == (0, "")
    assert "  num_particles: 7 " in first.stdout
    assert "  hidden_dim: 100 " in first.stdout
    assert "  process_id: 1 " in first.stdout  # a run does not store it
    (tmp_path / "again.yaml").write_text(first.stdout)
    again = train_spo("--config", "again.yaml", "--print-config")
    assert (again.returncode, again.stdout) == (0, first.stdout)
    (tmp_path / "run.yaml").write_text("spo:\n  num_particle: 4\n  adaptive_temperature: maybe\n")
    result = train_spo("--config", "run.yaml", "--epsilon", "0", "--clip", "1", "--num-envs", "lots")
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "error: run.yaml:2: unknown key 'spo.num_particle'; did you mean 'num_particles'?",
        "error: run.yaml:3: spo.adaptive_temperature: expected bool, got 'maybe' (str)",
        "error: unknown flag '--clip'; did you mean '--clip-eps'?",
        "error: --epsilon: must be greater than 0, got 0.0",
        "error: --num-envs: expected int, got 'lots' (str)",
        HINT,
    ]


def test_tracebacks_are_shown_of_our_own_bugs_and_with_debug_before_the_error_lines(command):
    result = command("--seed", "-1", "--debug")
    assert result.returncode == 2
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert result.stderr.splitlines()[-2:] == ["error: --seed: must lie in [0, 2147483647], got -1", HINT]
    result = command()
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1] == "RuntimeError: a bug of ours"


def test_a_reader_that_left_is_no_traceback(command):
    read, write = os.pipe()
    os.close(read)
    for flag in ("--print-config", "--help"):
        result = command(flag, stdout=write, stderr=subprocess.PIPE)
        assert (result.returncode, result.stderr) == (1, "")
    os.close(write)


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (RunError("what", "do"), 1, "what\nhint: do"),
        (ConfigError("what", "do"), 2, "what\nhint: do"),
        (UnsupportedEnvironmentError("what", "do"), 3, "what\nhint: do"),
        (CheckpointError("what", "do"), 4, "what\nhint: do"),
        (CheckpointError("what", "do\nmore"), 4, "what\nhint: do more"),
        (MissingExtraError("wandb", "wandb", "pip i x"), 5, "wandb needs the 'wandb' extra\nhint: pip i x"),
    ],
)
def test_exit_codes_of_errors(error, code, shown, capsys):
    def main(argv):
        raise error

    assert exit_code(main, []) == code
    assert capsys.readouterr().err == f"error: {shown}\n"


@pytest.mark.parametrize(
    ("number", "path", "what", "hint"),
    [
        (errno.ENOSPC, "runs/a/metrics.jsonl", "No space left on device: runs/a/metrics.jsonl", "free some space"),
        (errno.EACCES, "runs", "Permission denied: runs", "change its permissions"),
        (errno.ENAMETOOLONG, b"xyz", "File name too long: xyz", "give a shorter name"),
        (errno.ENOENT, Path("there"), "No such file or directory: there", "see that it is there"),
        (errno.EIO, None, "Input/output error", "see that its disk works"),
        (errno.EMLINK, "x", "Too many links: x", "see that the path can be read and written"),
    ],
)
def test_storage_failures_are_plain(number, path, what, hint, capsys):
    def main(argv):
        raise OSError(number, os.strerror(number), path)

    assert exit_code(main, []) == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"error: {what}"
    assert lines[1].startswith(f"hint: {hint}")


def test_a_missing_file_of_the_installation_is_a_bug_and_a_removed_folder_is_said(capsys, tmp_path, monkeypatch):
    def missing(argv):
        (Path(entry.__file__).parent / "nothing.yaml").read_text()

    def refused(argv):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")  # of no file

    for main in (missing, refused):
        with pytest.raises(OSError, match=r"nothing\.yaml|refused"):
            exit_code(main, [])
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert exit_code(lambda argv: Path.cwd() and 0, []) == 1
    assert capsys.readouterr().err == "error: the current folder was removed\nhint: go to another one: cd\n"


def test_interruption_is_130(capsys):
    def interrupted(argv):
        raise KeyboardInterrupt

    assert exit_code(interrupted, []) == 130
    assert capsys.readouterr().err == "interrupted\n"


DOCUMENT = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("line", "output"), re.findall(r"```console\n\$ python (.*?)\n(.*?)```", DOCUMENT, re.DOTALL))
def test_documented_errors_are_real(line, output, tmp_path):
    mine = re.search(r"Take this `mine.yaml`:\n\n```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(mine[1])
    script, *argv = shlex.split(line)
    result = subprocess.run(
        [sys.executable, ROOT / script, *argv], check=False, text=True, timeout=60, cwd=tmp_path, **PIPES
    )
    assert (result.returncode, result.stdout, result.stderr) == (2, "", output)


def test_documented_file_is_read_as_described(tmp_path):
    example = re.search(r"## Files\n\n```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    (tmp_path / "mine.yaml").write_text(example[1])
    config = load_config(PPOConfig, "ppo", ["--config", str(tmp_path / "mine.yaml")], default_config="ppo/quick").config
    assert config.environment.kwargs == {"num_rows": 6, "num_cols": 6}
    assert (config.training_core.num_updates, config.optimization.actor_lr) == (1000, 0.0003)


#: The configurations of algorithms whose presets are not read as PPO's.
CONFIG_TYPES = {"alphazero": AlphaZeroConfig, "agent": AgentConfig, "pretrain": PretrainConfig, "sft": FineTuneConfig}
UNITS = {"agent": "episodes", "pretrain": "episodes", "sft": "rows"}


@pytest.mark.parametrize("name", [name for name in preset_paths() if not name.startswith(("selfplay/", "spa/"))])
def test_documented_step_counts_of_presets(name):
    """A step of an agent that writes is an episode, and of fine-tuning a row."""
    algorithm = name.partition("/")[0]
    config = load_config(
        CONFIG_TYPES.get(algorithm, PPOConfig), algorithm, ["--config", name], default_config=""
    ).config
    per_update = ALGORITHMS[algorithm].steps_per_update(config)
    steps = f"{per_update * config.training_core.num_updates:,}"
    in_file = UNITS.get(algorithm, "environment steps")
    in_row = f" {in_file}" if algorithm in UNITS else ""
    assert f" = {steps} {in_file}" in preset_paths()[name].read_text(encoding="utf-8")
    (row,) = [line for line in DOCUMENT.splitlines() if line.startswith(f"| `{name}` |")]
    assert row.endswith(f"| {steps}{in_row} |")
