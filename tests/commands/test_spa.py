"""`spa.py` runs the stage that its first argument names."""

import pytest

from stoix_like.commands.entry import exit_code
from stoix_like.commands.runs import spa


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_without_a_stage_all_are_listed(argv, capsys):
    assert exit_code(spa.main, argv) == 0
    usage, _, _, *stages = capsys.readouterr().out.splitlines()
    assert usage.endswith("scripts/spa.py STAGE [--flag VALUE ...]")
    assert [line.split()[0] for line in stages] == [*spa.STAGES]


def test_a_stage_gets_the_other_arguments(monkeypatch):
    seen = []
    monkeypatch.setitem(spa.STAGES, "pretrain", (lambda argv: seen.append(argv) or 3, "a model"))
    assert exit_code(spa.main, ["pretrain", "--seed", "1"]) == 3
    assert seen == [["--seed", "1"]]


def test_a_stage_prints_its_own_configuration(capsys):
    assert exit_code(spa.main, ["pretrain", "--print-config"]) == 0
    assert "\npretrain:\n" in capsys.readouterr().out


def test_a_stage_that_is_not_there_names_the_nearest(capsys):
    assert exit_code(spa.main, ["pretrian"]) == 2
    assert (
        capsys.readouterr().err == "error: spa: no stage 'pretrian'; did you mean 'pretrain'?\nhint: stages: pretrain\n"
    )
