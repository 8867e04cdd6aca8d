"""What the rows of learning say, on scripted players and made-up checks. Nothing is trained here."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.bench.alphazero import connect_four_solver, learning, matches, trainings
from stoix_like.bench.alphazero import tic_tac_toe as solving
from stoix_like.bench.alphazero.exhaustive import Outcomes
from stoix_like.bench.alphazero.learning import LearningOptions
from stoix_like.bench.alphazero.tic_tac_toe import Check
from stoix_like.bench.alphazero.trainings import Deadline, TimedTraining, updates_within
from stoix_like.bench.timing.measure import Measurement
from stoix_like.commands.machine import bench as command
from stoix_like.config.sections.runs import AlphaZeroConfig
from stoix_like.envs.boards.registry import make_game
from stoix_like.evaluation.statistics import Interval
from stoix_like.runtime.arena.contestants import Contestant
from stoix_like.runtime.loading.documents import to_yaml
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.training.callbacks import RunClock, StopTraining


def check(update, losses):
    return Check(update, float(update), Outcomes(0, 10 - losses, losses), Outcomes(0, 10, 0))


def test_the_time_until_no_game_is_lost_is_the_first_and_that_which_lasts():
    checks = [check(0, 3), check(5, 0), check(10, 1), check(15, 0), check(20, 0)]
    assert solving.first_without(checks).update == 5
    assert solving.lasting_from(checks).update == 15
    assert solving.lasting_from(checks[:3]) is None
    assert solving.first_without(checks[:1]) is None
    rows = {row.name: row for row in solving.rows_of("t", checks, 1.0)}
    assert (rows["t/losses"].value, rows["t/first"].value, rows["t/lasting"].value) == (0.0, 5.0, 15.0)
    assert "0: 3/0, 5: 0/0, 10: 1/0" in rows["t/losses"].note
    assert np.isnan([row.value for row in solving.rows_of("t", checks[:1], 1.0)][1:]).all()


def test_updates_are_planned_within_the_time_and_the_deadline_ends_what_takes_longer():
    assert updates_within(60.0, 0.5) == 114  # 95 % of it
    assert updates_within(1.0, 30.0) == 1
    early, late = RunClock(7, 100, 1), RunClock(7, 100, 1, seconds_before=61.0)
    deadline = Deadline(60.0)
    assert deadline.next_update(early) > 100
    assert deadline.next_update(late) == 7
    with pytest.raises(StopTraining, match="out of time"):
        deadline.run("state", late)
    late.is_ending = True
    assert deadline.run("state", late) == "state"


@pytest.mark.parametrize(("updates", "seconds", "starts"), [(10, 5.0, False), (3, 60.0, False), (3, 5.0, True)])
def test_a_run_goes_on_only_with_time_and_updates_left(monkeypatch, tmp_path, updates, seconds, starts):
    monkeypatch.setattr(trainings, "RUNS", tmp_path)
    training = TimedTraining("othello", 1.0)
    path = tmp_path / "alphazero-othello-preset-1min-s4"
    path.mkdir()
    flags = trainings._flags(training, 4, path, 10)
    (path / "config.yaml").write_text(to_yaml(load_config(AlphaZeroConfig, "alphazero", flags, "").config))
    last = {"update": updates, "timesteps": 8, "elapsed_seconds": seconds}
    monkeypatch.setattr(trainings, "read_started_run", lambda _: SimpleNamespace(last=last))
    started = []
    monkeypatch.setattr(trainings, "_train", lambda flags, seconds: started.append((flags, seconds)))
    assert trainings.finished_run(training, 4) == (path, updates, 10, 8, seconds)
    assert started == ([(["--resume", str(path)], 60.0)] if starts else [])


def test_a_new_run_has_flags_that_its_configuration_accepts(monkeypatch, tmp_path):
    monkeypatch.setattr(trainings, "RUNS", tmp_path)
    monkeypatch.setattr(trainings, "seconds_per_update", lambda _: 0.5)
    seen = []
    monkeypatch.setattr(trainings, "train", lambda *arguments: seen.append(arguments))
    training = TimedTraining("connect_four", 1.0, "board")
    assert trainings.updates_within(60.0, 0.5) == 114
    flags = trainings._flags(training, 2, tmp_path / "x", 114)
    trainings._train(flags, 60.0)
    (algorithm, loaded, (deadline,)) = seen[0]
    assert (algorithm, type(deadline)) == ("alphazero", Deadline)
    assert (loaded.config.training_core.num_updates, loaded.config.checkpointing.save_interval) == (114, 14)
    assert (loaded.config.architecture.observation_adapter, loaded.config.architecture.seed) == ("board", 2)
    assert loaded.config.architecture.hidden_dim == 32


def test_the_mean_over_seeds_has_their_interval_and_each_seeds_own():
    found = [Interval(0.8, 0.7, 0.9), Interval(1.0, 0.9, 1.0)]
    row = matches.over_seeds("n", found, "score", "games")
    assert row.value == pytest.approx(0.9)
    assert row.spread == pytest.approx(12.706 * 0.1 / 0.9, rel=1e-3)  # Student's t with one degree of freedom
    assert row.note == "games; seeds 0.8000 [0.7000, 0.9000]; 1.0000 [0.9000, 1.0000]"
    assert matches.over_seeds("n", found[:1], "score", "games").spread is None


def trained(game, *players):
    """Runs that play as these do."""
    contestants = [Contestant("run", player, None) for player in players]
    return SimpleNamespace(prefix="t", game=make_game(game), contestants=lambda _: contestants)


def play_column(column):
    """Params are the column to play, where it is open; else the first open one."""

    def play(_params, states, _key):
        legal = jax.vmap(make_game("connect_four").legal_actions)(states)
        return jnp.where(legal[:, column], column, legal.argmax(axis=1)).astype(jnp.int32)

    return play


def test_moves_that_keep_the_value_are_counted():
    """Of four positions, whose good columns are given: column 3 is one in two of them, and full in the others."""
    moves = np.array([[0, 1] * 3, [3] * 6, [6, 5] * 3, [3] * 6], np.int32)
    good = [{3}, {0}, set(range(7)), {0, 1, 2, 4, 5, 6}]  # in the last all moves that are legal
    optimal = np.array([[column in each for column in range(7)] for each in good])
    row = matches.kept_value_row(trained("connect_four", play_column(3)), 0, [(moves, optimal)], "6")
    assert (row.name, row.value) == ("t/kept_value/6/network", 1.0)  # where 3 is full it takes 0
    row = matches.kept_value_row(trained("connect_four", play_column(6)), 16, [(moves, optimal)], "6")
    assert (row.name, row.value) == ("t/kept_value/6/16_sims", pytest.approx(1 / 2))
    assert "where some legal move does not keep it (2): 0.0000" in row.note


def test_solved_positions_are_kept_beside_the_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(matches, "RUNS", tmp_path / "bench")
    ((moves, optimal),) = matches.solved_positions((34,), 3)
    np.testing.assert_array_equal(moves, connect_four_solver.positions(3, 34))
    np.testing.assert_array_equal(optimal, connect_four_solver.optimal_moves(moves))
    monkeypatch.setattr(connect_four_solver, "optimal_moves", lambda _: pytest.fail("solved twice"))
    ((_, again),) = matches.solved_positions((34,), 3)
    np.testing.assert_array_equal(again, optimal)


def test_the_first_player_is_counted_in_its_own_games_alone(monkeypatch):
    """Either fills a column of tic-tac-toe of its own, so who moves first wins: all games, or none as second player."""
    script = np.array([0, 3, 6, 1, 4, 7, 2, 5, 8])
    other = np.array([1, 4, 7, 2, 5, 8, 0, 3, 6])

    def first_of(order):
        def play(_params, states, _key):
            legal = jax.vmap(make_game("tic_tac_toe").legal_actions)(states)
            return jnp.asarray(order)[legal[:, order].argmax(axis=1)].astype(jnp.int32)

        return play

    monkeypatch.setattr(matches, "FIRST_PLAYER_GAMES", 2)
    monkeypatch.setattr(matches, "engine", lambda *_: Contestant("other", first_of(other), None))
    row = matches.first_player_row(trained("tic_tac_toe", first_of(script)), 8, "heuristic")
    assert (row.name, row.value) == ("t/first_player/heuristic", 1.0)


def test_the_command_hands_on_what_is_trained(monkeypatch, capsys):
    seen = []

    def rows(options):
        seen.append(options)
        return [Measurement("learned", 1.0, "score")]

    from stoix_like.bench import suites

    monkeypatch.setitem(suites.WITH_OPTIONS, "alphazero_learning", rows)
    flags = ["--suite", "alphazero_learning", "--games", "othello,connect_four", "--minutes", "0.5", "--seeds", "3,4"]
    flags += ["--observation-adapter", "board", "--openings", "8", "--device-type", "cpu"]
    assert command.main(flags) == 0
    assert seen == [LearningOptions(("othello", "connect_four"), 0.5, (3, 4), "board", 8)]
    assert "learned" in capsys.readouterr().out
    assert (command.LEARNED_GAMES, command.RINGRIFT) == (learning.GAMES, learning.RINGRIFT)
    defaults = command.make_parser().parse_args([])
    assert command._options(defaults) == LearningOptions()
    with pytest.raises(Exception, match="expected games of"):
        command.main(["--suite", "alphazero_learning", "--games", "chess"])
