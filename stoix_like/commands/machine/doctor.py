"""The command `doctor.py`: lists installed packages, devices and writable folders. Changes nothing.

Anything that would prevent training is a problem and makes the exit code 1. A missing extra is not a problem.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from stoix_like.config.sections.runs import HardwareConfig
from stoix_like.errors import StoixError
from stoix_like.runtime.console import jax_variables
from stoix_like.runtime.console.arguments import ArgumentParser, add_device_flag
from stoix_like.runtime.console.installation import installed_version, is_installed, versions
from stoix_like.runtime.console.spelling import command_line, pip_command, prog
from stoix_like.runtime.hardware import devices
from stoix_like.runtime.loading.presets import preset_paths

#: {extra of pyproject.toml: modules that it installs}. Those of CUDA are left out: they are listed as devices.
EXTRAS = {
    "telemetry": ("opentelemetry.exporter", "tensorboardX"),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
    "wandb": ("wandb",),
    "sweep": ("optuna", "cmaes"),
    "notebooks": ("jupytext", "ipykernel", "nbclient", "nbconvert"),
    "docs": ("material", "mkdocstrings"),
}
_PACKAGE = re.compile(r"[\w.-]+")  # the name of the package in a requirement


class Finding(NamedTuple):
    """One line: what was checked, the result, and if that is a problem, how to solve it."""

    name: str
    found: str
    problem: str | None = None


def main(argv: list[str]) -> int:
    """Prints the findings; returns the exit code: 1 if something would prevent training."""
    arguments = make_parser().parse_args(argv)
    problems = 0
    for finding in findings(Path(arguments.save_dir), arguments.device_type):
        print(f"{finding.name:<22}{finding.found}", flush=True)
        if finding.problem is not None:
            problems += 1
            print(f"{'':<22}problem: {finding.problem}", flush=True)
    verdict = f"{problems} problem{'s' if problems > 1 else ''}" if problems else f"ready: {command_line('train-ppo')}"
    print(verdict)
    return 1 if problems else 0


def make_parser() -> ArgumentParser:
    """The parser of the command's arguments."""
    parser = ArgumentParser(prog("doctor"), "Shows what is installed, which devices there are, what can be written.")
    parser.add_argument("--save-dir", default="runs", help="folder of runs (default: runs)")
    add_device_flag(parser)
    return parser


def findings(save_dir: Path, device_type: str) -> Iterator[Finding]:
    """All findings, in order. The devices are started last."""
    for name, version in versions().items():
        missing = "install it: pip install stoix_like" if version == "not installed" else None
        yield Finding(name, version, missing)
    yield _other_dependencies()
    for extra, modules in EXTRAS.items():
        missing_modules = [module for module in modules if not is_installed(module)]
        hint = f"not installed: {pip_command(f'stoix_like[{extra}]')}"
        yield Finding(f"extra {extra}", hint if missing_modules else "installed")
    yield from _variables()
    yield _writable("runs", save_dir)
    yield from _device_findings(device_type)


def _variables() -> Iterator[Finding]:
    """The variables that change what JAX does, and those that are ignored."""
    ignored = jax_variables.take_notes()
    names = sorted(name for name in os.environ if name.startswith(("JAX_", "XLA_")))
    for text in (*(f"{name}={os.environ[name]}" for name in names), *ignored):
        yield Finding("environment", text)


def _other_dependencies() -> Finding:
    """The dependencies whose versions cannot change results."""
    needed = [_PACKAGE.match(text)[0] for text in _requirements() if "extra ==" not in text]  # type: ignore[index]
    absent = [name for name in needed if installed_version(name) is None]
    hint = f"install them: pip install {' '.join(absent)}" if absent else None
    return Finding("other dependencies", f"{', '.join(absent)} not installed" if absent else "installed", hint)


def _requirements() -> list[str]:
    try:
        return metadata.requires("stoix_like") or []
    except metadata.PackageNotFoundError:  # listed among the versions
        return []


def _writable(name: str, folder: Path) -> Finding:
    """Whether files can be created in the folder, or in its nearest parent that exists."""
    existing = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Finding(name, str(folder), f"{existing} cannot be written: {error.strerror}; choose another --save-dir")
    free = os.statvfs(existing)
    result = f"{folder} · writable, {free.f_bavail * free.f_frsize / 1e9:,.1f} GB free"
    return Finding(name, result, None if free.f_bavail else f"the disk of {existing} is full")


def _device_findings(device_type: str) -> Iterator[Finding]:
    import jax

    try:
        found = devices.select(HardwareConfig(device_type=device_type))  # type: ignore[arg-type]  # argparse checked it
    except StoixError as error:
        yield Finding("devices", error.what, error.hint)
        return
    yield Finding("devices", f"{devices.describe_devices(found)}; {len(jax.devices())} of this kind")
    yield from _presets(found[0].platform)
    stats = found[0].memory_stats()  # None if the backend does not report it
    if stats and "bytes_limit" in stats:
        yield Finding("device memory", f"{stats['bytes_limit'] / 2**30:,.1f} GiB")
    yield _compile_cache(jax.config.jax_compilation_cache_dir)  # type: ignore[attr-defined]  # made at run time


def _presets(platform: str) -> Iterator[Finding]:
    """The shipped presets that fit the device: those named for a GPU, which fit a TPU too, or those for a few cores."""
    endings = ("/quick", "/maze") if platform == "cpu" else ("_gpu",)
    if names := [name for name in preset_paths() if name.endswith(endings)]:
        yield Finding("presets", f"{', '.join(names)} ({platform.upper()})")


def _compile_cache(folder: str | None) -> Finding:
    if folder is None:
        return Finding("compile cache", "off: there is no home folder; set JAX_COMPILATION_CACHE_DIR to keep one")
    path = Path(folder)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.exists() else 0
    found = _writable("compile cache", path)
    if found.problem is not None:  # not a problem: programs are only compiled at every start
        instead = "set JAX_COMPILATION_CACHE_DIR to keep one, or use --no-compile-cache"
        return Finding("compile cache", f"{path} cannot be written; {instead}")
    return found._replace(found=f"{found.found}, {size / 1e6:,.0f} MB used")
