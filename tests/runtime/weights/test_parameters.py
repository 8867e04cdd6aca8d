"""Parameters published as safetensors score what their run scores, bit for bit; bad files are refused with a reason."""

import json
import re
import shlex
import shutil
import struct
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save
from support.asserts import assert_same_bits, refused
from support.exports import MAZE, make_saved, written_run
from support.marks import full
from support.paths import contents
from support.scripted_runs import command

import stoix_like as sl
from stoix_like.commands.entry import exit_code, run_command
from stoix_like.errors import CheckpointError, ConfigError, StoixError
from stoix_like.runtime.evaluators.policies import SearchChoice
from stoix_like.runtime.evaluators.saved_run import EvaluationSettings, evaluate_run
from stoix_like.runtime.runs import saved as saved_run
from stoix_like.runtime.runs.find import find_saved, is_parameters

LEAVES = {"ppo": {}, "spo": {"temperature_mode": "dual", "root": "iid"}}


@pytest.fixture(scope="module", params=[full("ppo"), "spo"])
def run(request, tmp_path_factory):
    """A run of random parameters, and the export of one of its seeds: the second of PPO's two."""
    path, num_seeds = tmp_path_factory.mktemp(request.param) / "run", {"ppo": 2, "spo": 1}[request.param]
    leaves = MAZE | {"observation_adapter": "dense", "max_episode_steps": 8} | LEAVES[request.param]
    written_run(path, make_saved(request.param, leaves, num_seeds=num_seeds, seed=4), 2, 4)
    assert command("export", path, "--checkpoint", "latest", "--seed", 3 + num_seeds) == 0
    return path


@pytest.fixture(scope="module")
def export(run):
    return run / "export"


@pytest.fixture
def copied(export, tmp_path):
    """The parameters alone, without the policy.json that shows whether they were changed."""
    return shutil.copy(export / "params.safetensors", tmp_path / "mine.safetensors")


def scores(path, checkpoint="best", **options):
    """(what was scored, {metric: numbers}) of the seed that was exported."""
    episodes = {} if "level_set" in options else {"num_episodes": 16}
    result = evaluate_run(str(path), checkpoint, EvaluationSettings(**episodes, **options))
    return {name: result[name] for name in ("policy", "mode", "levels", "level_hash")}, [*result["seeds"].values()][-1]


WAYS = {
    "as trained": {},
    "sampled": {"deterministic": False, "seed": 3},
    "frozen levels": {"level_set": "maze-24"},
    "searching": {"search": SearchChoice(particles=3, depth=2), "seed": 5},
    "network": {"network": True},
}


@pytest.mark.parametrize("way", [way if way == "sampled" else full(way) for way in WAYS])
def test_scores_are_those_of_the_run(run, export, way):
    of_run, expected = scores(run, "latest", **WAYS[way])
    of_file, found = scores(export, **WAYS[way])
    assert found == expected
    assert of_file == of_run
    assert (of_run["level_hash"] is not None) == (way == "frozen levels")


def test_the_parameters_are_those_of_the_run(run, export):
    saved, published = saved_run.load_run(str(run), "latest"), sl.load_run(str(export))
    expected = saved.seed_params(saved.seeds.index(published.seeds[0]))
    ours, theirs = (published.params, expected)
    if saved.meta.algorithm == "spo":
        assert float(theirs.duals.log_temperature) != pytest.approx(np.log(saved.config.spo.init_temperature))
        ours, theirs = ours._replace(target=None), theirs._replace(target=None)  # which no policy reads
    assert_same_bits(ours, theirs)
    assert (published.num_seeds, published.updates, published.checkpoint) == (1, [4], "latest")
    assert published.folder == export
    assert published.is_published
    assert not saved.is_published
    with pytest.raises(CheckpointError, match="holds only parameters"):
        _ = published.state


@pytest.mark.full
def test_each_published_number_decides_scores(run, copied):
    """The comparison above can fail: another temperature, or another actor, plays otherwise."""
    arrays, notes = load_file(copied), _metadata(copied)
    _, before = scores(copied, deterministic=False)
    pattern, shape = ("duals/log_temperature", ()) if notes["algorithm"] == "spo" else ("actor/.*bias", (4,))  # logits
    (name,) = [name for name, x in arrays.items() if re.fullmatch(pattern, name) and x.shape == shape]
    other = np.linspace(9.0, -9.0, arrays[name].size, dtype=np.float32).reshape(shape)
    _write(copied, arrays | {name: other}, notes)
    assert scores(copied, deterministic=False)[1] != before


@pytest.mark.full
def test_the_commands_take_them(run, export, inside, capfd):
    for argv in (["--num-episodes", "8"], ["--search", "--search-depth", "2", "--level-set", "maze-8"]):
        assert command("evaluate", export, *argv, "--json", "file.json") == 0
        assert command("evaluate", run, "--checkpoint", "latest", *argv, "--json", "run.json") == 0
        result, expected = (json.loads((inside / name).read_text()) for name in ("file.json", "run.json"))
        assert result["run"] == str(export / "params.safetensors")
        assert result["checkpoint"] == "latest"
        (seed,) = result["seeds"]
        assert result["seeds"][seed] == expected["seeds"][seed]
    assert f"{export}/params.safetensors: " in capfd.readouterr().out

    index = int(seed) - 4
    assert command("animate", export, "--out", "a.gif", "--max-steps", "3") == 0
    assert command("animate", run, "--checkpoint", "latest", "--index", index, "--out", "b.gif", "--max-steps", 3) == 0
    assert (inside / "a.gif").read_bytes() == (inside / "b.gif").read_bytes()

    flags = ["--level-set", "maze-8", "--budgets", "6", "--methods", "sampled,smc,own", "--json"]
    assert command("compare-search", export, *flags, "file.json") == 0
    assert command("compare-search", run, "--checkpoint", "latest", *flags, "run.json") == 0
    (result,), blocks = (json.loads((inside / name).read_text())["runs"] for name in ("file.json", "run.json"))
    (expected,) = [block for block in blocks if block["seed"] == result["seed"]]
    for row in (*result["rows"], *expected["rows"]):
        row.pop("seconds", None)
        row.pop("decisions_per_second", None)
    assert {**result, "run": ""} == {**expected, "run": ""}


def test_exporting_again_from_the_file_gives_the_same(run, export, tmp_path, capfd):
    assert command("export", export, "--out", tmp_path / "again") == 0
    first, again = contents(export), contents(tmp_path / "again")
    assert first.keys() == again.keys()
    for name in ("policy.stablehlo", "model_card.md"):
        assert first[Path(name)] == again[Path(name)]
    first, again = (path / "params.safetensors" for path in (export, tmp_path / "again"))
    assert _metadata(first) == _metadata(again)  # safetensors writes them in any order
    for name, array in load_file(first).items():
        np.testing.assert_array_equal(array, load_file(again)[name])
    first, again = (json.loads((path / "policy.json").read_text()) for path in (export, tmp_path / "again"))
    assert first.pop("sha256").keys() == again.pop("sha256").keys()
    assert first == again
    assert command("export", export) == 2
    assert "--out" in capfd.readouterr().err


def test_the_card_says_what_it_is(run, export):
    page = (export / "model_card.md").read_text()
    lines = page.splitlines()
    assert len(lines) < 60
    arrays = load_file(export / "params.safetensors")
    count = sum(x.size for name, x in arrays.items() if not name.startswith("duals/"))
    facts = dict(re.findall(r"^\| ([\w ]+) \| (.*) \|$", page, re.MULTILINE))
    assert facts["parameters"] == f"{count:,}"
    assert facts["environment steps"] == "128 (4 updates)"
    assert (facts["seed"], facts["network"].split(",")[0]) == (str(saved_run.load_run(str(run)).seeds[-1]), "dense")
    assert f"jax {jax.__version__}" in facts["made with"]
    description = json.loads((export / "policy.json").read_text())
    score = description["evaluation"]["evaluator/mean_return"]
    assert float(facts["mean_return"].split(" | ")[0]) == pytest.approx(score, rel=0.01)
    assert "/" not in facts["task"]
    assert str(run.parent) not in page + json.dumps(description)


@pytest.mark.full
def test_what_the_card_shows_runs(export, tmp_path, monkeypatch, capfd):
    copy = shutil.copytree(export, tmp_path / "downloaded")
    monkeypatch.chdir(copy)
    page = (copy / "model_card.md").read_text()
    (line,) = re.findall(r"^```bash\n(.*)\n```", page, re.MULTILINE)
    start, *argv = shlex.split(line)
    assert start == "stoix-like"
    assert exit_code(run_command, [*argv, "--num-episodes", "8"]) == 0
    capfd.readouterr()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert [len(block.splitlines()) <= 10 for block in blocks] == [True, True]
    for block, rows in zip(blocks, (4, 1), strict=True):
        exec(compile(block, "model_card.md", "exec"), {})
        assert len(re.findall(r"\d+", capfd.readouterr().out)) == rows


def _metadata(path):
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))["__metadata__"]


def _write(path, arrays, notes):
    path.write_bytes(save(arrays, {name: value for name, value in notes.items() if value is not None}))


def _refusal(path):
    with pytest.raises(CheckpointError) as caught:
        saved_run.load_run(str(path))
    assert len(caught.value.what.splitlines()) == len(caught.value.hint.splitlines()) == 1
    assert str(path) in caught.value.what
    return caught.value


@pytest.mark.parametrize(
    ("header", "content", "reason"),
    [
        (2**63, b"{}", "header too large"),
        (90_000_000, b"{}", "header too large"),  # safetensors itself would go on, for 15 seconds
        (900_000, b'{"a":' + 450_000 * b"[" + 449_990 * b" ", "invalid"),
        (80, b'{"a":{"dtype":"F32","shape":[4611686018427387904,8],"data_offsets":[0,0]}}' + 6 * b" ", ""),
    ],
    ids=["above all", "huge", "deep", "overflow"],
)
def test_a_header_made_to_hurt(tmp_path, header, content, reason):
    path = tmp_path / "x.safetensors"
    path.write_bytes(struct.pack("<Q", header) + content)
    what = f"the parameters {path} cannot be used: not a safetensors file, or a damaged one ({reason}"
    assert what in _refusal(path).what


def test_another_file_than_its_folder_describes_and_a_folder_without_one(tmp_path, export, copied):
    (tmp_path / "folder").mkdir()
    assert _refusal(tmp_path / "folder").what == f"no run at {tmp_path}/folder"
    content = bytearray(copied.read_bytes())
    content[-3] ^= 1  # a number that is another: only its digest shows it
    folder = shutil.copytree(export, tmp_path / "whole")
    (folder / "params.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=r"its params\.safetensors is not the one that policy\.json describes"):
        sl.load_run(str(folder))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": None}, "they lack the metadata of stoix_like"),
        ({"format": "another"}, "they lack the metadata of stoix_like"),
        (
            {"format_version": "2", "stoix_like": "9.9.9"},
            "have format version 2, and this version of stoix_like reads 1",
        ),
        ({"format_version": "later"}, "'format_version' in their metadata cannot be read"),
        ({"config": None}, "their metadata lack 'config'"),
        ({"config": "[" * 100_000}, "'config' in their metadata cannot be read"),
        ({"config": "[]"}, "'config' in their metadata cannot be read"),
        ({"config": '{"colour": {}}'}, "unknown section 'colour'"),
        ({"config": '{"architecture": {"hidden_dim": -1}}'}, "architecture.hidden_dim: "),
        ({"update": "9" * 5000}, "'update' in their metadata cannot be read"),
        ({"seed": "true"}, "'seed' in their metadata cannot be read"),
        ({"seed": "-1"}, "'seed' in their metadata cannot be read"),
        ({"evaluation": '{"a": []}'}, "'evaluation' in their metadata cannot be read"),
        ({"algorithm": "dqn", "stoix_like": "9.9.9"}, "is of DQN, which this version does not know"),
        ({"algorithm": "a\nhint: b"}, "'algorithm' in their metadata cannot be read"),
    ],
)
def test_metadata_that_do_not_fit(copied, changes, reason):
    _write(copied, load_file(copied), _metadata(copied) | changes)
    error = _refusal(copied)
    assert reason in error.what
    if changes.get("format_version") == "2":
        assert error.hint == "install the version of stoix_like that wrote them: 9.9.9"


def test_parameters_of_the_other_algorithm_and_arrays_do_not_fit(copied):
    arrays, notes = load_file(copied), _metadata(copied)
    other = {"ppo": "spo", "spo": "ppo"}[notes["algorithm"]]
    _write(copied, arrays, notes | {"algorithm": other})
    what = _refusal(copied).what
    assert ("unknown section 'spo'" if other == "ppo" else "spo.") in what  # the defaults of SPO do not fit
    name = next(name for name in arrays if name.startswith("critic/") and arrays[name].ndim == 2)
    fits = f"the parameters {copied} do not fit their configuration: "
    for changed, reason in (
        ({k: v for k, v in arrays.items() if k != name}, f"{name} is not stored"),
        (arrays | {name: arrays[name][:-1].copy()}, f"{name} is stored as"),
        (arrays | {name: arrays[name].astype(np.float16)}, f"{name} is stored as F16, their network has float32"),
        (arrays | {"more\n": arrays[name]}, "more? is stored, their network has none"),
    ):
        _write(copied, changed, notes)
        assert fits + reason in _refusal(copied).what
    _write(copied, arrays, notes)
    assert saved_run.load_run(str(copied)).is_published


def test_what_a_person_means_by_a_path_of_which_no_checkpoint_can_be_chosen(export, capfd, run, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"--checkpoint: .* holds the parameters of one checkpoint"):
        saved_run.load_run(str(export), "latest")
    assert command("evaluate", export, "--checkpoint", "4") == 2
    assert capfd.readouterr().err.splitlines()[1] == "hint: leave it out"
    with pytest.raises(StoixError):
        saved_run.load_run(str(export / "policy.json"))
    file = export / "params.safetensors"
    assert find_saved(str(export)) == find_saved(str(file)) == file
    assert find_saved(str(run)) == run
    monkeypatch.chdir(tmp_path)  # a clone may hold runs
    with refused(CheckpointError, "no run at latest"):
        find_saved("latest")
    run_of_that_name = shutil.copytree(run, tmp_path / "a.safetensors")  # a run keeps its meaning
    shutil.copy(file, run_of_that_name)
    assert find_saved(str(run_of_that_name)) == run_of_that_name
    assert [is_parameters(path) for path in (file, run_of_that_name)] == [True, False]
