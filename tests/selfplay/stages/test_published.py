"""Whoever loads parameters from the folder of a pipeline gets those that its manifests name, or an error."""

import shutil

import pytest
from support.marks import full
from support.scripted_runs import command

from stoix_like.errors import CheckpointError
from stoix_like.runtime.runs.find import find_saved
from stoix_like.selfplay.files.folders import PARAMETERS

ITERATION = "iterations/0002"
#: Texts by which the parameters of iteration 2, which is champion, are named.
PLACES = ("", ITERATION, f"{ITERATION}/train", f"{ITERATION}/train/{PARAMETERS}")


def of_another(layout):
    shutil.copyfile(layout.stage(0, "train") / PARAMETERS, layout.stage(2, "train") / PARAMETERS)


def test_parameters_that_are_not_those_of_a_manifest_or_record_are_refused(copied):
    layout, texts = copied.layout, [str(copied.layout.root / place) for place in PLACES]
    assert {find_saved(text) for text in texts} == {layout.stage(2, "train") / PARAMETERS}
    of_another(layout)
    for text in texts:
        with pytest.raises(CheckpointError, match=rf"{PARAMETERS} has the hash \w+, and \w+ is named"):
            find_saved(text)
    find_saved(str(layout.iteration(0)))  # the random network has its hash in its record
    shutil.copyfile(layout.stage(1, "train") / PARAMETERS, layout.stage(0, "train") / PARAMETERS)
    with pytest.raises(CheckpointError, match="has the hash"):
        find_saved(str(layout.iteration(0)))


@pytest.mark.parametrize(
    "words",
    [
        ("arena", "{}", "random"),
        ("play-board", "{}"),
        ("export", "{}"),
        ("evaluate", "{}"),
        ("animate", "{}"),
        ("compare-search", "{}"),
        ("train-alphazero", "--load-path", "{}", "--task-id", "tic_tac_toe"),
    ],
)
@pytest.mark.parametrize("place", ["", full(ITERATION)])
def test_every_command_refuses_them(copied, words, place, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    of_another(copied.layout)
    assert command(*(word.format(copied.layout.root / place) for word in words)) == 4
    told = capsys.readouterr()
    assert f"{PARAMETERS} has the hash" in told.err
    assert not told.out.strip()


def test_parameters_that_no_manifest_names_are_refused_and_copies_elsewhere_are_not_asked(copied, tmp_path):
    layout = copied.layout
    shutil.copytree(layout.stage(1, "train"), tmp_path / "iterations" / "0001" / "train")
    (layout.stage(1, "train") / "manifest.json").unlink()
    find_saved(str(layout.iteration(1)))  # its record names them, because it was champion
    (layout.stage(1, "promote") / "champion.json").unlink()
    with pytest.raises(CheckpointError, match="whose training is not finished"):
        find_saved(str(layout.iteration(1)))
    (tmp_path / "iterations" / "0001" / "train" / "manifest.json").unlink()
    assert find_saved(str(tmp_path / "iterations" / "0001")).is_file()
