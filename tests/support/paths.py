"""Where things of the clone are, its scripts as modules, and what a folder holds."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def contents(folder, *left_out):
    """{path: bytes} of every file below a folder, but for those names."""
    files = [path for path in Path(folder).rglob("*") if path.is_file() and path.name not in left_out]
    return {path.relative_to(folder): path.read_bytes() for path in files}


def all_below():
    """Every file below the working folder with its bytes, and every folder; of locks only that they are there."""
    is_read = lambda path: path.is_file() and path.name != ".lock"
    return {str(path): path.read_bytes() if is_read(path) else None for path in Path().rglob("*")}


def load_script(name):
    """The script of that name, as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
