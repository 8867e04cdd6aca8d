"""What a signal asks of a run, sent to this process."""

import os
import signal

import pytest
from support.scripted_runs import SMALL_PPO_RUN, command, flags

from stoix_like.config.sections.runs import PPOConfig
from stoix_like.runtime.loading.flags import CommandOptions
from stoix_like.runtime.runs.sources import load_config
from stoix_like.runtime.training import train
from stoix_like.runtime.training.stopping import StopRequest, stopping_on_signals


def send(number):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_only_asks(number, not_under_nohup):
    before = signal.getsignal(number)
    with stopping_on_signals() as stop:
        assert not stop.is_set
        send(number)
        assert stop.is_set
    assert signal.getsignal(number) == before


def test_a_block_inside_another_sets_its_request():
    with stopping_on_signals() as outer:
        with stopping_on_signals(outer):
            send(signal.SIGTERM)
        assert outer.is_set
    given = StopRequest()
    with stopping_on_signals(given) as used:
        assert used is given


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_second_ends_the_program(number):
    with stopping_on_signals():
        send(number)
        with pytest.raises(KeyboardInterrupt):
            send(number)


def test_of_two_signals_that_two_threads_receive_at_once_one_is_the_second():
    """The second one comes while the first one is being received, before it has changed anything else."""

    class Received(StopRequest):
        again = None

        def __setattr__(self, name, value):
            if name == "is_set" and value and self.again is None:
                self.again = "receives"
                self.again = self.receive(signal.SIGTERM)
            super().__setattr__(name, value)

    stop = Received()
    assert (stop.receive(signal.SIGTERM), stop.again) == (False, True)
    assert stop.is_set


def test_a_lost_connection_may_say_so_twice_and_is_ignored_under_nohup(not_under_nohup):
    with stopping_on_signals() as stop:
        send(signal.SIGHUP)
        send(signal.SIGHUP)
        assert stop.is_set
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping_on_signals() as stop:
            send(signal.SIGHUP)
            assert not stop.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_new_run_that_is_left_while_it_compiles_says_how_to_go_on(inside, monkeypatch, capsys):
    def left(_parts):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "_compile", left)
    assert command("train-ppo", **SMALL_PPO_RUN, run_name="a") == 130
    *_, last, then = capsys.readouterr().out.splitlines()
    assert last == "the last checkpoint is of update 0"
    assert then.startswith("next: ")
    assert then.endswith(" --resume a")
    monkeypatch.undo()
    assert command("train-ppo", "--resume", inside / "a") == 0
    monkeypatch.setattr(train, "_compile", left)
    assert command("train-ppo", "--resume", inside / "a", num_updates=99) == 130
    assert "next: the same command again" in capsys.readouterr().out  # what it changes is not stored yet


def test_a_run_without_evaluations_names_commands_that_take_its_last_checkpoint(inside, capsys):
    assert command("train-ppo", **SMALL_PPO_RUN | {"run_name": "a", "num_eval_episodes": 0}) == 0
    lines = capsys.readouterr().out.splitlines()
    (evaluate,) = [line for line in lines if "evaluate" in line]
    assert evaluate.endswith("a --checkpoint latest")


def test_a_run_that_is_part_of_a_program_leaves_the_next_command_to_it(inside, monkeypatch, capsys):
    """It would not go on as that program does: another run follows, or a stage."""
    loaded = load_config(PPOConfig, "ppo", flags(**SMALL_PPO_RUN, run_name="a"), default_config="ppo/quick")
    stop = StopRequest()
    stop.is_set = True
    assert train.train("ppo", loaded, stop=stop).status == "interrupted"
    again = loaded._replace(options=CommandOptions(resume="a"))
    assert train.train("ppo", again, stop=StopRequest()).status == "done"
    assert "next:" not in capsys.readouterr().out
