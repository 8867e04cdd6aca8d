"""`spa.py` runs the stage that its first argument names."""

import pytest

from stoix_like.commands.entry import exit_code
from stoix_like.commands.runs import spa


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"]])
def test_without_a_stage_all_are_listed(argv, capsys):
    assert exit_code(spa.main, argv) == 0
    usage, _, _, *stages, _, _ = capsys.readouterr().out.splitlines()
    assert usage.endswith("scripts/spa.py STAGE [NAME] [--from PATH ...] [--flag VALUE ...]")
    assert [line.split()[0] for line in stages] == [*spa.STAGES]


def test_a_stage_gets_the_other_arguments(monkeypatch):
    seen = []
    monkeypatch.setitem(spa.RUNS, "pretrain", lambda argv: seen.append(argv) or 3)
    assert exit_code(spa.main, ["pretrain", "--seed", "1"]) == 3
    assert seen == [["--seed", "1"]]


def test_a_stage_prints_its_own_configuration(capsys):
    assert exit_code(spa.main, ["pretrain", "--print-config"]) == 0
    assert "\npretrain:\n" in capsys.readouterr().out


def test_a_stage_that_is_not_there_names_the_nearest(capsys):
    assert exit_code(spa.main, ["pretrian"]) == 2
    stages = ", ".join(spa.STAGES)
    assert (
        capsys.readouterr().err
        == f"error: spa: no stage 'pretrian'; did you mean 'pretrain'?\nhint: stages: {stages}\n"
    )


@pytest.mark.parametrize("stage", ["run", "generate", "ppo"])
def test_a_pipeline_prints_its_configuration_and_its_flags(stage, capsys):
    assert exit_code(spa.main, [stage, "lake", "--print-config", "--arm", "belief", "--ppo-lr", "1e-4"]) == 0
    shown = capsys.readouterr().out
    assert "  arm: belief" in shown
    assert "  ppo_lr: 0.0001" in shown
    assert exit_code(spa.main, [stage, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--rollout-filter-ratio" in shown
    assert "--from PATH" in shown


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["ppo"], "spa ppo: of which pipeline?"),
        (["generate", "--seed", "1"], "spa generate: of which pipeline?"),
        (["run", "--ppo-lrr", "1"], "--ppo-lrr"),
        (["run", "lake", "more"], "unexpected argument 'more'"),
        (["run", "--arm", "spam"], "--arm"),
        (["ppo", "lake", "--resume", "runs/x"], "spa: --resume is of a run"),
        (["sft", "--from", "runs/spa/lake"], "spa sft: of which pipeline?"),
        (["run", "--ppo-clip-eps", "-1"], "--ppo-clip-eps: must be greater than 0"),
        (["run", "--config", "spa/small/lake"], "--config: no file or preset 'spa/small/lake'"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_said_in_two_lines(argv, error, capsys):
    assert exit_code(spa.main, argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert error in said
    assert said.count("hint: ") == 1


def test_the_presets_are_whole(capsys):
    for name in ("frozen_lake", "frozen_lake_6x6", "sokoban", "smoke"):
        assert exit_code(spa.main, ["run", "--config", f"spa/small/{name}", "--print-config"]) == 0
    assert "Sokoban" in capsys.readouterr().out
