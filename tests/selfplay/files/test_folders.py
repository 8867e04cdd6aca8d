"""The newest iteration of a game, found without listing all of them."""

import os
import shutil

import pytest

from stoix_like.selfplay.files import folders
from stoix_like.selfplay.files.folders import Layout


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "tic_tac_toe_2p")


def make(layout, *numbers):
    for number in numbers:
        layout.iteration(number).mkdir(parents=True)


def test_it_follows_what_is_made_and_removed_by_any_process(layout):
    assert layout.last_iteration() == 0
    assert list(layout.newest_first()) == []
    make(layout, 0)
    assert layout.last_iteration() == 0
    make(layout, 1, 2, 3)
    assert layout.last_iteration() == 3
    assert list(layout.newest_first()) == [3, 2, 1]
    assert list(layout.newest_first(2)) == [2, 1]
    assert list(layout.newest_first(9)) == [3, 2, 1]
    shutil.rmtree(layout.iteration(2))
    assert list(layout.newest_first()) == [3, 1]
    shutil.rmtree(layout.iteration(3))
    assert layout.last_iteration() == 1
    shutil.rmtree(layout.root)
    assert layout.last_iteration() == 0
    make(layout, 1)
    assert layout.last_iteration() == 1


def test_a_gap_that_was_there_at_the_first_look_is_passed_over(layout):
    make(layout, 1, 2, 10_001)
    assert layout.last_iteration() == 10_001
    assert layout.iterations() == [1, 2, 10_001]


def test_the_folders_are_listed_once(layout, monkeypatch):
    make(layout, *range(1, 30))
    listed, looked = [], []
    scandir, is_dir = os.scandir, type(layout.root).is_dir
    monkeypatch.setattr(folders.os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert layout.last_iteration() == 29
    monkeypatch.setattr(type(layout.root), "is_dir", lambda path: looked.append(path) or is_dir(path))
    for _ in range(5):
        assert layout.last_iteration() == 29
        assert next(layout.newest_first()) == 29
    assert len(listed) == 1
    assert len(looked) <= 5 * 5
