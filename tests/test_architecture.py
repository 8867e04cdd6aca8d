"""The house: imports point down, pillars never meet, rooms form no circle, every library has one door, only the upper
floors touch the world, files and functions stay short, and docs/architecture.md shows the rooms as they are.

The rules are read from the source with `ast`, so an import inside a function counts, and so does the name of a module
in a string. The last tests plant faults in a copy and show that each rule sees them.
`python tests/test_architecture.py` writes the picture into docs/architecture.md.
"""

import ast
import functools
import re
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = "stoix_like"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- rooms: written by python tests/test_architecture.py -->", "<!-- end of rooms -->"

#: Rooms by floor. A file may import from its own room and from lower floors.
FLOORS = [
    ("types", "errors", "config", "games"),
    ("ops",),
    ("envs", "networks", "search", "replay", "language", "evaluation"),
    ("algorithms",),
    ("runtime",),
    ("selfplay", "spa"),
    ("bench",),
    ("commands",),
]
#: What files of floor 0 may import from each other.
SHARED_WORDS = {("config", "errors"), ("types", "errors"), ("games", "types")}
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
#: {folder: its rooms from the bottom, with the rooms beside it that each may import: all of them stand before it}.
#: The files of the folder itself are the room ".".
ROOMS: dict[str, dict[str, tuple[str, ...]]] = {
    "config": {"checks": (), ".": ("checks",), "sections": ("checks", ".")},
    "envs": {"text": (), ".": ("text",), "ringrift": (), "boards": ("ringrift",)},
    "networks": {".": (), "transformer": ()},
    "evaluation": {".": (), "contests": (".",)},
    "algorithms": {".": (), "agent": (), "text": (".", "agent"), "alphazero": (".",)},
    "runtime": {
        "console": (),
        "storage": ("console",),
        "stages": ("console", "storage"),
        "datasets": ("storage", "stages"),
        "hardware": ("console",),
        "loading": ("console",),
        "weights": ("console", "storage"),
        "runs": ("console", "storage", "hardware", "loading", "stages", "datasets", "weights"),
        "telemetry": ("console", "storage", "runs"),
        "evaluators": ("console", "hardware", "runs", "telemetry"),
        "profiling": (),
        "results": ("console", "runs", "telemetry"),
        "figures": ("console", "storage", "results"),
        "reports": ("console", "evaluators", "results", "figures"),
        "training": (
            *("console", "storage", "hardware", "loading", "runs", "telemetry", "evaluators", "profiling"),
            "reports",
        ),
        "arena": ("console", "hardware", "runs", "evaluators", "figures"),
        "searches": ("console", "runs", "evaluators", "results", "figures"),
        "export": ("console", "weights", "runs", "results"),
        "sweeps": (
            *("console", "storage", "hardware", "loading", "runs", "telemetry", "evaluators", "training", "results"),
            "figures",
        ),
    },
    "selfplay": {
        "files": (),
        "pipeline": ("files",),
        "stages": ("files", "pipeline"),
        "iterations": ("files", "pipeline", "stages"),
        "events": ("files", "iterations"),
        "watch": ("files", "iterations", "events"),
        "tuning": ("files", "pipeline", "stages", "events"),
        "ratings": ("files", "pipeline", "stages"),
        "loops": ("files", "pipeline", "stages", "iterations", "events", "watch", "tuning", "ratings"),
    },
    "bench": {
        "timing": (),
        "speed": ("timing",),
        "learning": ("timing",),
        "alphazero": ("timing", "learning"),
        "loops": ("timing", "learning", "alphazero"),
        "gpu": ("timing", "speed", "alphazero"),
        "agents": ("timing",),
        ".": ("timing", "speed", "learning", "alphazero", "loops", "gpu", "agents"),
    },
    "commands": {
        "runs": (),
        "games": (),
        "selfplay": (),
        "machine": (),
        ".": ("runs", "games", "selfplay", "machine"),
    },
}
#: Folders without files of their own.
ONLY_ROOMS = {folder for folder, rooms in ROOMS.items() if "." not in rooms}
#: library -> the only places that may import it.
DOORS = {
    "jumanji": ("envs",),
    "pgx": ("bench/alphazero/pgx_example.py",),
    "flax": ("networks",),
    "distrax": ("ops/distributions.py",),
    "flashbax": ("replay/sequences.py",),
    "mctx": ("bench/alphazero/pgx_example.py",),  # measured beside ours; an oracle of the tests
    "optax": ("algorithms/optimizer.py",),
    "scipy": ("evaluation/statistics.py",),
    "yaml": ("runtime/loading/strict_yaml.py", "runtime/loading/documents.py"),
    "orbax": ("runtime/runs/arrays.py",),
    "rich": ("runtime/telemetry/terminal.py",),
    "mlflow": ("runtime/telemetry/mlflow_sink.py",),
    "opentelemetry": ("runtime/telemetry/otlp_sink.py",),
    "tensorboardX": ("runtime/telemetry/tensorboard_sink.py",),
    "wandb": ("runtime/telemetry/wandb_sink.py",),
    "matplotlib": ("runtime/figures",),
    "PIL": ("runtime/figures",),
    "optuna": ("runtime/sweeps/study.py",),
    "sqlalchemy": ("runtime/sweeps/study.py",),
    "pyarrow": ("runtime/datasets/parquet.py",),
    "safetensors": ("runtime/weights/parameters.py",),
    "jax.experimental.multihost_utils": ("runtime/hardware/collectives.py",),
    "jax.distributed": ("runtime/hardware/process_group.py",),
    "jax.export": ("runtime/weights/policy_program.py",),
}
#: What the configuration may import, so that --help is instant.
STANDARD_ONLY = ("config", "errors.py")
#: Only these floors may touch disk, clock, network, environment variables or the terminal.
OUTSIDE_ROOMS = ("runtime", "selfplay", "spa", "bench", "commands")
OUTSIDE_WORLD = {
    "os",
    "sys",
    "time",
    "datetime",
    "pathlib",
    "glob",
    "io",
    "shutil",
    "tempfile",
    "socket",
    "urllib",
    "http",
}
OUTSIDE_WORLD |= {"subprocess", "multiprocessing", "threading", "asyncio", "signal", "logging", "random"}
READS = {"print", "open", "load", "save", "savez"}  # calls of these names, or of them in NumPy
DYNAMIC = {"import_module", "__import__", "run_module", "resolve_name"}
DYNAMIC_MODULES = {"importlib", "runpy", "pkgutil"}  # their submodules `importlib.metadata` and `.util` load nothing
CALLBACKS = {"jax.debug", "jax.pure_callback", "jax.experimental.io_callback"}
#: For the folder of the package, and for the command that was asked for.
ALLOWED_HIDDEN = {("runtime/loading/presets.py", PACKAGE), ("commands/machine/envs.py", PACKAGE)}
ALLOWED_HIDDEN |= {("commands/table.py", "import_module"), ("commands/table.py", "importlib")}
#: A path given to `animate` is handed on, and an address in the configuration is split: nothing is opened.
ALLOWED_OUTSIDE = {("envs", "pathlib"), ("config", "urllib")}


MOST_LINES, MOST_LINES_IN_RUNTIME, MOST_LINES_OF_A_FUNCTION, MOST_FIELDS = 300, 250, 40, 8
FEWEST_FILES, MOST_FILES = 3, 14  # of a room, `__init__.py` left out
_MODULE = re.compile(rf"{PACKAGE}(\.\w+)+")  # at the start of a string, which may go on: `module:name`, an f-string


@functools.cache
def nodes(text):
    return list(ast.walk(ast.parse(text)))


def imports(path):
    """Every absolute module name that a file imports, wherever in it, names in a string, or reaches by attributes."""
    for node in nodes(path.read_text()):
        if isinstance(node, ast.Attribute) and (dotted := ast.unparse(node)) in DOORS:
            yield dotted  # such as jax.export
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and (name := _MODULE.match(node.value)):
            yield name[0]


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
            if FLOOR_OF[other] >= FLOOR_OF[room] and (room, other) not in SHARED_WORDS:
                found.append(f"{relative} -> {module}")
    return found


def home_of(relative):
    """(the folder, the room) of a file, for example (runtime, console); None where a folder has no rooms."""
    folder = relative.parts[0]
    if folder not in ROOMS:
        return None
    return folder, relative.parts[1] if len(relative.parts) > 2 else "."


def rooms_imported(root):
    """[(file, its folder and room, another room of the folder that it imports, the module)]."""
    found = []
    for path, relative in files(root):
        if (home := home_of(relative)) is None:
            continue
        for module in imports(path):
            parts = module.split(".")
            if parts[:2] != [PACKAGE, home[0]] or len(parts) < 3:
                continue
            other = parts[2] if (root / PACKAGE / home[0] / parts[2]).is_dir() else "."
            if other != home[1]:
                found.append((relative, home, other, module))
    return found


def wrong_rooms(root):
    """Imports between rooms that the table does not have."""
    imported = rooms_imported(root)
    return [
        f"{file} -> {module}"
        for file, (folder, room), other, module in imported
        if other not in ROOMS[folder].get(room, ())
    ]


def circles(root):
    """Files that import each other, at once or through others. An import for types alone counts too."""
    modules = {".".join((PACKAGE, *relative.with_suffix("").parts)): path for path, relative in files(root)}
    left = {name: {other for other in imports(path) if other in modules} for name, path in modules.items()}
    size = 0
    while size != len(left):  # whoever imports none of the rest, or is imported by none, is on no circle
        size, used = len(left), set().union(*left.values())
        left = {name: others & left.keys() for name, others in left.items() if name in used and others & left.keys()}
    return sorted(f"{modules[name].relative_to(root / PACKAGE)} is on a circle" for name in left)


def hidden_imports(root):
    """Imports that the other rules cannot read: through the package's public names, or by a name made at run time."""
    found = []
    for path, relative in files(root):
        for node in nodes(path.read_text()):
            if isinstance(node, ast.Import):
                whole = {PACKAGE, *(f"{PACKAGE}.{folder}" for folder in ONLY_ROOMS)}
                targets = {alias.name for alias in node.names} & {*whole, *DYNAMIC_MODULES}
            elif isinstance(node, ast.ImportFrom) and node.module in DYNAMIC_MODULES:
                targets = {alias.name for alias in node.names} - {"metadata", "util"}
            elif isinstance(node, ast.Attribute) and ast.unparse(node.value) == PACKAGE:
                targets = {node.attr} - FLOOR_OF.keys() - {"__file__"}
            elif isinstance(node, ast.ImportFrom):
                rooms = {PACKAGE: set(FLOOR_OF) - ONLY_ROOMS}
                rooms |= {f"{PACKAGE}.{folder}": set(ROOMS[folder]) for folder in ONLY_ROOMS}
                rooms = rooms.get(node.module)
                targets = set() if rooms is None else {alias.name for alias in node.names} - rooms
            else:
                targets = {node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")} & DYNAMIC
            where = relative.as_posix()
            found += [f"{where} -> {name}" for name in targets if (where, name) not in ALLOWED_HIDDEN]
    starts = [f"{folder}/__init__.py" for folder in ROOMS]
    return found + [
        f"{start} holds code" for start in starts if len(ast.parse((root / PACKAGE / start).read_text()).body) > 1
    ]


def _stem(word):
    """The part that `searches` and `search`, or `evaluation` and `evaluate`, share."""
    return word.removesuffix("ion").rstrip("es")


def named_like_the_folder(root):
    """Files whose name repeats their folder's: `runs/run_folder.py`."""
    found = []
    for _, relative in files(root):
        words = {_stem(word) for word in relative.stem.split("_")}
        if len(relative.parts) > 1 and _stem(relative.parts[-2]) in words:
            found.append(f"{relative} repeats {relative.parts[-2]}")
    return found


def sizes_of_rooms(root):
    """Folders with more files than are seen at a glance, and rooms in them that are too small to be one."""
    found = []
    for folder in sorted({path.parent for path, _ in files(root)}):
        count = len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        is_room = len(folder.relative_to(root / PACKAGE).parts) > 1
        if count > MOST_FILES or (is_room and count < FEWEST_FILES):
            found.append(f"{folder.relative_to(root / PACKAGE)}/: {count} files")
    return found


def wrong_doors(root):
    """Imports of a library outside its door."""
    found = []
    for path, relative in files(root):
        for module in imports(path):
            doors = DOORS.get(module) or DOORS.get(module.split(".")[0], ())
            if doors and not any(relative.as_posix() == d or relative.as_posix().startswith(f"{d}/") for d in doors):
                found.append(f"{relative} -> {module}")
    return found


def outside_world(root):
    """Uses of disk, clock, network, environment or terminal below runtime."""
    found = []
    for path, relative in files(root):
        room = room_of(relative)
        if room in OUTSIDE_ROOMS:
            continue
        names = {module.split(".")[0] for module in imports(path)} & OUTSIDE_WORLD
        found += [f"{relative} -> {name}" for name in names if (room, name) not in ALLOWED_OUTSIDE]
        for node in nodes(path.read_text()):
            called = ast.unparse(node.func).removeprefix("np.") if isinstance(node, ast.Call) else ""
            if called in READS:
                found.append(f"{relative}:{node.lineno} -> {called}()")
    return found


def callbacks(root):
    """Calls from a compiled program back into Python, which are slow and may come in any order."""
    found = []
    for path, relative in files(root):
        used = {ast.unparse(node) for node in nodes(path.read_text()) if isinstance(node, ast.Attribute)}
        found += [f"{relative} -> {name}" for name in CALLBACKS & {*used, *imports(path)}]
    return found


def heavy_configuration(root):
    """Imports of the configuration that are neither the standard library's nor the configuration's own."""
    found = []
    for path, relative in files(root):
        if relative.parts[0] in STANDARD_ONLY:
            tops = {m.split(".")[0] for m in imports(path)} - {PACKAGE, "__future__"}
            found += [f"{relative} -> {top}" for top in tops if top not in sys.stdlib_module_names]
            found += [f"{relative} -> {m}" for m in imports(path) if m.startswith(f"{PACKAGE}.types")]
    return found


def too_long(root):
    """Files, functions and classes that are more than a reader holds at once. Every line counts, docstrings too."""
    found = []
    for path, relative in files(root):
        text = path.read_text()
        most = MOST_LINES_IN_RUNTIME if str(relative).startswith("runtime") else MOST_LINES
        if (num_lines := len(text.splitlines())) > most:
            found.append(f"{relative}: {num_lines} lines")
        for node in nodes(text):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                num_lines = node.end_lineno - node.lineno + 1
                if num_lines > MOST_LINES_OF_A_FUNCTION:
                    found.append(f"{relative}: {node.name} has {num_lines} lines")
            if isinstance(node, ast.ClassDef) and len(own := fields_of(node)) > MOST_FIELDS:
                found.append(f"{relative}: {node.name} has {len(own)} fields")
    return found


def fields_of(node):
    """What the methods of a class set on `self`. The fields of data, a NamedTuple or dataclass, are not among them."""
    names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store)]
    return {name.attr for name in names if isinstance(name.value, ast.Name) and name.value.id == "self"}


def about(room):
    """The docstring of a room or a file of the package, as one line."""
    path = ROOT / PACKAGE / room
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return " ".join(ast.get_docstring(ast.parse(file.read_text())).partition("\n\n")[0].split())


def picture():
    """The rooms from the top, each with what it says of itself."""
    lines = [f"floor {len(FLOORS)}  scripts/      One door a command: `python scripts/train_ppo.py`."]
    for floor, rooms in reversed(list(enumerate(FLOORS))):
        for index, room in enumerate(rooms):
            name = room + ("/" if (ROOT / PACKAGE / room).is_dir() else ".py")
            lines.append(f"{f'floor {floor}' if index == 0 else '':<9}{name:<14}{about(room)}")
            inside = [each for each in reversed(ROOMS.get(room, {})) if each != "."]
            lines += [f"{'':<9}  {each + '/':<12}{about(f'{room}/{each}')}" for each in inside]
    return "```text\n" + "\n".join(lines) + "\n```"


def with_picture(text):
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert "" not in (begin, end), f"{PAGE} lacks the markers of the picture"
    return f"{before}{begin}\n\n{picture()}\n\n{end}{after}"


RULES = [
    upward_imports,
    wrong_rooms,
    circles,
    hidden_imports,
    named_like_the_folder,
    sizes_of_rooms,
    wrong_doors,
    outside_world,
    callbacks,
    heavy_configuration,
    too_long,
]


@functools.cache
def faults(rule):
    return rule(ROOT)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / PACKAGE, folder / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.mark.parametrize("rule", RULES)
def test_the_house_stands(rule):
    assert faults(rule) == []


def test_every_file_stands_in_a_known_room():
    assert {room_of(relative) for _, relative in files(ROOT)} == set(FLOOR_OF)
    inside = {folder: set() for folder in ROOMS}
    for _, relative in files(ROOT):
        assert len(relative.parts) <= 3, f"{relative}: a room in a room"
        assert len(relative.parts) < 3 or relative.parts[0] in ROOMS, f"{relative}: a room that no table has"
        if (home := home_of(relative)) is not None and relative.parts[1:] != ("__init__.py",):
            inside[home[0]].add(home[1])
    assert inside == {folder: set(rooms) for folder, rooms in ROOMS.items()}


def test_rooms_form_no_circle_and_the_table_has_no_arrow_too_many():
    for rooms in ROOMS.values():
        names = list(rooms)
        assert all(names.index(other) < names.index(room) for room, others in rooms.items() for other in others)
    used = {(*home, other) for _, home, other, _ in rooms_imported(ROOT)}
    table = {
        (folder, room, other) for folder, rooms in ROOMS.items() for room, others in rooms.items() for other in others
    }
    assert used == table


def test_rooms_say_what_they_import():
    for folder, rooms in ROOMS.items():
        for room, others in rooms.items():
            if room != ".":
                said = about(f"{folder}/{room}").partition("Imports ")[2]
                named = tuple(word for word in re.findall(r"\w+", said) if word in rooms)
                assert named == tuple(other for other in others if other != "."), f"{folder}/{room}"


def test_the_page_shows_the_rooms_as_they_are():
    text = PAGE.read_text(encoding="utf-8")
    assert with_picture(text) == text, "run: make docs"


def test_scripts_are_thin_and_import_only_commands():
    for script in sorted((ROOT / "scripts").glob("*.py")):
        assert len(script.read_text().splitlines()) <= 40, script
        assert {room_imported(module) for module in imports(script)} - {None} == {"commands"}, script


def test_modules_say_why_they_exist():
    assert [str(relative) for path, relative in files(ROOT) if not ast.get_docstring(ast.parse(path.read_text()))] == []


WIDE = "class Wide:\n    def __init__(self):\n" + "".join(f"        self.x{index} = 0\n" for index in range(9))


@pytest.mark.parametrize(
    ("rule", "file", "planted", "seen"),
    [
        (upward_imports, "ops/returns.py", "from stoix_like.algorithms import ppo", "stoix_like.algorithms"),
        (upward_imports, "networks/build.py", "import stoix_like.envs.registry", "stoix_like.envs.registry"),
        (upward_imports, "envs/auto_reset.py", "def f():\n    from stoix_like.evaluation import levels", "evaluation"),
        (upward_imports, "algorithms/ppo.py", "from stoix_like import runtime", "stoix_like.runtime"),
        (upward_imports, "runtime/training/train.py", "import stoix_like.bench.timing.measure", "stoix_like.bench"),
        (upward_imports, "selfplay/files/folders.py", "import stoix_like.bench.timing.measure", "stoix_like.bench"),
        (
            upward_imports,
            "selfplay/pipeline/programs.py",
            "NAME = 'stoix_like.bench.loops.learning'",
            "stoix_like.bench",
        ),
        (
            upward_imports,
            "runtime/console/text.py",
            "NAME = 'stoix_like.commands.runs.plot'",
            "stoix_like.commands.runs.plot",
        ),
        (
            upward_imports,
            "config/checks/values.py",
            "NAME = 'stoix_like.commands.runs.plot:main'",
            "stoix_like.commands.runs.plot",
        ),
        (upward_imports, "ops/trees.py", "NAME = f'stoix_like.runtime.{ops}'", "stoix_like.runtime"),
        (upward_imports, "errors.py", "from stoix_like.config import values", "stoix_like.config"),
        (wrong_rooms, "runtime/console/text.py", "from stoix_like.runtime import storage", "runtime.storage"),
        (wrong_rooms, "runtime/results/curves.py", "def f():\n    from stoix_like.runtime.figures import gif", "gif"),
        (wrong_rooms, "runtime/runs/find.py", "NAME = 'stoix_like.runtime.training.train'", "training.train"),
        (wrong_rooms, "selfplay/files/folders.py", "import stoix_like.selfplay.loops.start", "selfplay.loops.start"),
        (wrong_rooms, "config/checks/values.py", "from stoix_like.config.layers import resolve", "config.layers"),
        (wrong_rooms, "bench/timing/measure.py", "NAME = 'stoix_like.bench.suites'", "bench.suites"),
        (circles, "ops/trees.py", "def f():\n    from stoix_like.ops import trees", "on a circle"),
        (hidden_imports, "runtime/console/text.py", "from stoix_like import train", "train"),
        (hidden_imports, "algorithms/ppo.py", "import stoix_like as sl\nsl.train", "stoix_like"),
        (hidden_imports, "ops/losses.py", "__import__('flax')", "__import__"),
        (hidden_imports, "ops/losses.py", "from importlib import import_module as load", "import_module"),
        (hidden_imports, "ops/losses.py", "import importlib\ngetattr(importlib, 'import_module')", "importlib"),
        (hidden_imports, "ops/losses.py", "import runpy\nrunpy.run_module('flax')", "runpy"),
        (hidden_imports, "runtime/runs/find.py", "import stoix_like.errors\nstoix_like.train", "train"),
        (hidden_imports, "runtime/__init__.py", "import os", "holds code"),
        (wrong_doors, "runtime/runs/find.py", "import jax\njax.export.export", "jax.export"),
        (wrong_doors, "ops/trees.py", "from jax.experimental import multihost_utils", "multihost_utils"),
        (wrong_doors, "algorithms/ppo.py", "import jumanji.wrappers", "jumanji"),
        (wrong_doors, "envs/registry.py", "def f():\n    import pgx", "pgx"),
        (wrong_doors, "search/gumbel.py", "import mctx", "mctx"),
        (wrong_doors, "runtime/training/train.py", "def f():\n    import optax", "optax"),
        (wrong_doors, "ops/losses.py", "from distrax import Categorical", "distrax"),
        (outside_world, "algorithms/ppo.py", "import time", "time"),
        (outside_world, "networks/grid.py", "print('here')", "print()"),
        (outside_world, "networks/grid.py", "np.load('weights.npz')", "load()"),
        (outside_world, "evaluation/levels.py", "from datetime import datetime", "datetime"),
        (callbacks, "algorithms/ppo.py", "jax.debug.print('{}', 1)", "jax.debug"),
        (callbacks, "ops/losses.py", "from jax.experimental import io_callback", "io_callback"),
        (heavy_configuration, "config/sections/runs.py", "import numpy", "numpy"),
        (too_long, "ops/returns.py", "\n" * 300, " lines"),
        (too_long, "runtime/console/text.py", "\n" * 250, " lines"),
        (too_long, "runtime/console/text.py", WIDE, "Wide has 9 fields"),
        (too_long, "types.py", "def long():\n" + "    pass\n" * 40, "long has 41 lines"),
    ],
)
def test_each_rule_sees_a_planted_fault(rule, file, planted, seen, copy):
    target = copy / PACKAGE / file
    text = target.read_text()
    target.write_text(text + "\n" + planted + "\n")
    found = [line for line in rule(copy) if line not in faults(rule)]
    target.write_text(text)
    assert any(seen in line for line in found)
    assert all(file in line for line in found)


def test_a_file_that_repeats_its_folder_and_a_room_of_two_files_are_seen(tmp_path):
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    runtime = tmp_path / PACKAGE / "runtime"
    (runtime / "runs" / "find.py").rename(runtime / "runs" / "find_run.py")
    for path in sorted((runtime / "storage").glob("[a-z]*.py"))[2:]:
        path.unlink()
    (runtime / "searches" / "tables.py").rename(runtime / "searches" / "search_tables.py")
    (tmp_path / PACKAGE / "evaluation" / "levels.py").rename(tmp_path / PACKAGE / "evaluation" / "evaluate.py")
    assert named_like_the_folder(tmp_path) == [
        "evaluation/evaluate.py repeats evaluation",
        "runtime/runs/find_run.py repeats runs",
        "runtime/searches/search_tables.py repeats searches",
    ]
    assert sizes_of_rooms(tmp_path) == ["runtime/storage/: 2 files"]


if __name__ == "__main__":
    PAGE.write_text(with_picture(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
