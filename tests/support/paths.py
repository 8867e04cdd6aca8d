"""Where things of the clone are, and its scripts as modules."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def load_script(name):
    """The script of that name, as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_script", ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
