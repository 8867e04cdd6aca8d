"""The command `doctor.py`: what is installed, which devices there are, and what can be written. Changes nothing.

What would keep a training from running is a problem and makes the exit code 1; a missing extra is none.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from stoix_like.config.sections import HardwareConfig
from stoix_like.errors import StoixError
from stoix_like.runtime.console.arguments import ArgumentParser, add_device_flag
from stoix_like.runtime.console.installation import installed_version, is_installed, versions
from stoix_like.runtime.console.spelling import command_line, pip_command, prog
from stoix_like.runtime.hardware import devices

#: Extras of pyproject.toml and the modules by which they are known; those of CUDA show as devices.
EXTRAS = {
    "telemetry": ("opentelemetry.exporter", "tensorboardX"),
    "mlflow": ("mlflow", "sqlalchemy", "alembic"),
    "wandb": ("wandb",),
    "sweep": ("optuna",),
    "notebooks": ("jupytext", "ipykernel", "nbclient", "nbconvert"),
    "docs": ("material", "mkdocstrings"),
}
_NAME = re.compile(r"[\w.-]+")  # of the package in a requirement


class Finding(NamedTuple):
    """One line: what was looked at, what was found, and what to do about it if it is a problem."""

    name: str
    found: str
    problem: str | None = None


def main(argv: list[str]) -> int:
    """Prints; returns the exit code: 1 if something would keep a training from running."""
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
    """What the command takes."""
    parser = ArgumentParser(prog("doctor"), "Says what is installed, which devices there are, what can be written.")
    parser.add_argument("--save-dir", default="runs", help="where runs are to be written (default: runs)")
    add_device_flag(parser)
    return parser


def findings(save_dir: Path, device_type: str) -> Iterator[Finding]:
    """Everything that is looked at, in order; the devices are started last."""
    for name, version in versions().items():
        missing = "install it: pip install stoix_like" if version == "not installed" else None
        yield Finding(name, version, missing)
    yield _others()
    for extra, modules in EXTRAS.items():
        missing_modules = [module for module in modules if not is_installed(module)]
        hint = f"not installed: {pip_command(f'stoix_like[{extra}]')}"
        yield Finding(f"extra {extra}", hint if missing_modules else "installed")
    yield _writable("runs", save_dir)
    yield from _device_findings(device_type)


def _others() -> Finding:
    """The dependencies whose versions decide no numbers."""
    needed = [_NAME.match(text)[0] for text in _requirements() if "extra ==" not in text]  # type: ignore[index]
    absent = [name for name in needed if installed_version(name) is None]
    hint = f"install them: pip install {' '.join(absent)}" if absent else None
    return Finding("other dependencies", f"{', '.join(absent)} not installed" if absent else "installed", hint)


def _requirements() -> list[str]:
    try:
        return metadata.requires("stoix_like") or []
    except metadata.PackageNotFoundError:  # told among the versions
        return []


def _writable(name: str, folder: Path) -> Finding:
    """Whether files can be made in the folder, or in the nearest one above it that is there."""
    there = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Finding(name, str(folder), f"{there} cannot be written: {error.strerror}; choose another --save-dir")
    free = os.statvfs(there)
    told = f"{folder} · writable, {free.f_bavail * free.f_frsize / 1e9:,.1f} GB free"
    return Finding(name, told, None if free.f_bavail else f"the disk of {there} is full")


def _device_findings(device_type: str) -> Iterator[Finding]:
    import jax

    try:
        found = devices.select(HardwareConfig(device_type=device_type))  # type: ignore[arg-type]  # argparse checked it
    except StoixError as error:
        yield Finding("devices", error.what, error.hint)
        return
    yield Finding("devices", f"{devices.describe_devices(found)}; {len(jax.devices())} of this kind")
    stats = found[0].memory_stats()  # None where the backend does not count
    if stats and "bytes_limit" in stats:
        yield Finding("device memory", f"{stats['bytes_limit'] / 2**30:,.1f} GiB")
    yield _compile_cache(jax.config.jax_compilation_cache_dir)  # type: ignore[attr-defined]  # made at run time


def _compile_cache(folder: str | None) -> Finding:
    if folder is None:
        return Finding("compile cache", "off: there is no home folder; set JAX_COMPILATION_CACHE_DIR to keep one")
    path = Path(folder)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) if path.exists() else 0
    found = _writable("compile cache", path)
    if found.problem is not None:  # programs are compiled at every start, and that is all
        instead = "set JAX_COMPILATION_CACHE_DIR to keep one, or use --no-compile-cache"
        return Finding("compile cache", f"{path} cannot be written; {instead}")
    return found._replace(found=f"{found.found}, {size / 1e6:,.0f} MB used")
