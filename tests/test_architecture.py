"""The house: imports point down, pillars never meet, every library has one door, only runtime touches the world, and
files and functions stay short.

The rules are read from the source with `ast`, so an import inside a function counts too. The last tests plant faults
in a copy and show that each rule sees them.
"""

import ast
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "stoix_like"

#: Rooms by floor. A file may import from its own room and from lower floors.
FLOORS = [
    {"types", "errors", "config", "config_checks", "config_replay", "config_values", "environment_checks"},
    {"ops"},
    {"envs", "networks", "search", "replay", "evaluation"},
    {"algorithms"},
    {"runtime"},
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
#: library -> the only places that may import it.
DOORS = {
    "jumanji": ("envs",),
    "flax": ("networks",),
    "distrax": ("ops/distributions.py",),
    "flashbax": ("replay.py",),
    "optax": ("algorithms/optimizer.py",),
    "scipy": ("evaluation/statistics.py",),
    "yaml": ("runtime/yaml_nodes.py", "runtime/config_yaml.py"),
    "orbax": ("runtime/checkpoint.py",),
    "rich": ("runtime/telemetry/terminal.py",),
    "mlflow": ("runtime/telemetry/mlflow_sink.py",),
    "opentelemetry": ("runtime/telemetry/otlp_sink.py",),
    "tensorboardX": ("runtime/telemetry/tensorboard_sink.py",),
    "wandb": ("runtime/telemetry/wandb_sink.py",),
    "matplotlib": ("runtime/media.py", "runtime/comparison_figures.py", "runtime/sweep_figures.py"),
    "PIL": ("runtime/media.py",),
    "optuna": ("runtime/sweep_study.py",),
    "sqlalchemy": ("runtime/sweep_study.py",),
    "safetensors": ("runtime/parameter_files.py",),
}
#: What the configuration may import, so that --help is instant.
STANDARD_ONLY = ("config.py", "config_checks.py", "config_replay.py", "config_values.py", "errors.py")
#: Only runtime may touch disk, clock, network, environment variables or the terminal.
OUTSIDE_WORLD = {"os", "sys", "time", "pathlib", "socket", "subprocess", "shutil", "logging", "signal", "tempfile"}
ALLOWED_OUTSIDE = {("envs", "pathlib")}  # a path given to `animate` is handed on, nothing is opened


MOST_LINES, MOST_LINES_OF_A_FUNCTION = 300, 40


def imports(path):
    """Every absolute module name that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(relative):
    return relative.parts[0].removesuffix(".py")


def room_imported(module):
    parts = module.split(".")
    return parts[1] if parts[0] == PACKAGE and len(parts) > 1 and parts[1] in FLOOR_OF else None


def files(root):
    package = root / PACKAGE
    return [(p, p.relative_to(package)) for p in sorted(package.rglob("*.py")) if p != package / "__init__.py"]


def upward_imports(root):
    """Imports that do not point down: to a higher floor, or to another room of the same one."""
    found = []
    for path, relative in files(root):
        room = room_of(relative)
        for module in imports(path):
            other = room_imported(module)
            if other is None or other == room:
                continue
            same_ground = FLOOR_OF[room] == 0 == FLOOR_OF[other]
            if FLOOR_OF[other] >= FLOOR_OF[room] and not same_ground:
                found.append(f"{relative} -> {module}")
    return found


def wrong_doors(root):
    """Imports of a library outside its door."""
    found = []
    for path, relative in files(root):
        for module in imports(path):
            doors = DOORS.get(module.split(".")[0], ())
            if doors and not any(relative.as_posix() == d or relative.as_posix().startswith(f"{d}/") for d in doors):
                found.append(f"{relative} -> {module}")
    return found


def outside_world(root):
    """Uses of disk, clock, network, environment or terminal below runtime."""
    found = []
    for path, relative in files(root):
        room = room_of(relative)
        if room == "runtime":
            continue
        names = {module.split(".")[0] for module in imports(path)} & OUTSIDE_WORLD
        found += [f"{relative} -> {name}" for name in names if (room, name) not in ALLOWED_OUTSIDE]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "open"):
                found.append(f"{relative}:{node.lineno} -> {node.func.id}()")
    return found


def heavy_configuration(root):
    """Imports of the configuration that are neither the standard library's nor the configuration's own."""
    import sys

    found = []
    for path, relative in files(root):
        if relative.as_posix() in STANDARD_ONLY:
            tops = {m.split(".")[0] for m in imports(path)} - {PACKAGE, "__future__"}
            found += [f"{relative} -> {top}" for top in tops if top not in sys.stdlib_module_names]
            found += [f"{relative} -> {m}" for m in imports(path) if m.startswith(f"{PACKAGE}.types")]
    return found


def too_long(root):
    """Files and functions that are more than a reader holds at once. Every line counts, those of docstrings too."""
    found = []
    for path, relative in files(root):
        text = path.read_text()
        if (num_lines := len(text.splitlines())) > MOST_LINES:
            found.append(f"{relative}: {num_lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                num_lines = node.end_lineno - node.lineno + 1
                if num_lines > MOST_LINES_OF_A_FUNCTION:
                    found.append(f"{relative}: {node.name} has {num_lines} lines")
    return found


RULES = [upward_imports, wrong_doors, outside_world, heavy_configuration, too_long]


@pytest.mark.parametrize("rule", RULES)
def test_the_house_stands(rule):
    assert rule(ROOT) == []


def test_every_file_stands_in_a_known_room():
    assert {room_of(relative) for _, relative in files(ROOT)} == set(FLOOR_OF)


def test_scripts_are_thin_and_import_only_runtime_and_configuration():
    for script in sorted((ROOT / "scripts").glob("*.py")):
        assert len(script.read_text().splitlines()) <= 40, script
        rooms = {room_imported(module) for module in imports(script)} - {None}
        assert rooms <= {"runtime", "config"}, script


def test_modules_say_why_they_exist():
    modules = [(path, relative) for path, relative in files(ROOT) if relative.name != "__init__.py"]
    assert [str(relative) for path, relative in modules if not ast.get_docstring(ast.parse(path.read_text()))] == []


@pytest.mark.parametrize(
    ("rule", "file", "planted", "seen"),
    [
        (upward_imports, "ops/returns.py", "from stoix_like.algorithms import ppo", "stoix_like.algorithms"),
        (upward_imports, "networks/build.py", "import stoix_like.envs.registry", "stoix_like.envs.registry"),
        (upward_imports, "envs/auto_reset.py", "def f():\n    from stoix_like.evaluation import levels", "evaluation"),
        (upward_imports, "algorithms/ppo.py", "from stoix_like import runtime", "stoix_like.runtime"),
        (wrong_doors, "algorithms/ppo.py", "import jumanji.wrappers", "jumanji"),
        (wrong_doors, "runtime/train.py", "def f():\n    import optax", "optax"),
        (wrong_doors, "ops/losses.py", "from distrax import Categorical", "distrax"),
        (outside_world, "algorithms/ppo.py", "import time", "time"),
        (outside_world, "networks/grid.py", "print('here')", "print()"),
        (heavy_configuration, "config.py", "import numpy", "numpy"),
        (too_long, "ops/returns.py", "\n" * 300, " lines"),
        (too_long, "types.py", "def long():\n" + "    pass\n" * 40, "long has 41 lines"),
    ],
)
def test_each_rule_sees_a_planted_fault(rule, file, planted, seen, tmp_path):
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path / PACKAGE / file
    target.write_text(target.read_text() + "\n" + planted + "\n")
    found = [line for line in rule(tmp_path) if line not in rule(ROOT)]
    assert any(seen in line for line in found)
    assert all(file in line for line in found)
