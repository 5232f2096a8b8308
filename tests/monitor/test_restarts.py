"""Processes that end by an error again and again, and come again, as samples show it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hangbisect.base.proc import Stat
from hangbisect.monitor import ended_children
from hangbisect.monitor.ended_children import EndedChildren

FRONT, SUPERVISOR = 90, 100
WORKER = ("python", "worker.py", "--port", "5000")


class Machine:
    """The processes of a command: who lives, from when on, and how who has ended did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, log: Path) -> None:
        self.now = 0.0
        self.living = {SUPERVISOR: ("S", 0)}
        self.statuses: dict[int, int] = {}
        self.words: dict[int, tuple[str, ...]] = {}
        self.log = log
        self.logs: list[str] = []
        self.seen = EndedChildren()
        monkeypatch.setattr(ended_children, "read_stat", self.read_stat)
        monkeypatch.setattr(ended_children, "words_of", lambda pid: self.words.get(pid, WORKER))
        monkeypatch.setattr(ended_children, "exit_code", self.statuses.get)
        monkeypatch.setattr(ended_children, "_list_logs", lambda pid: self.logs)

    def read_stat(self, pid: int) -> Stat | None:
        if pid not in self.living:
            return None
        state, started = self.living[pid]
        parent = FRONT if pid == SUPERVISOR else SUPERVISOR
        return Stat("python", state, parent, 0, 0, started)

    def sample(self, seconds: float = 1.0) -> None:
        self.now += seconds
        self.seen.note(self.living, self.now)

    def run_workers(
        self, pids: Iterable[int], status: int | None = None, lives: float = 2.0
    ) -> None:
        """Start each once the one before has ended."""
        for pid in pids:
            self.living[pid] = ("S", int(100 * self.now) + pid)
            self.sample()
            self.sample(lives)
            if status is not None:
                self.living[pid] = ("Z", self.living[pid][1])
                self.statuses[pid] = status
                self.sample()
            del self.living[pid]
            self.sample()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path / "worker.log")


def test_what_ends_by_an_error_and_comes_again_is_counted(machine: Machine) -> None:
    machine.run_workers([201, 202], status=3)
    assert machine.seen.find_restarted() is None  # it may be the last time
    machine.run_workers([203], status=3)
    found = machine.seen.find_restarted()
    assert found is not None
    assert (found.name, found.pid, found.times, found.status) == ("python", 203, 3, 3)
    assert found.seconds == 14.0


def test_an_actor_of_ray_that_is_gone_in_the_middle_of_a_method_has_failed(
    machine: Machine,
) -> None:
    """Who asks how it ended is its raylet, at once. Its title is another one at first."""

    def run(pids: Iterable[int], title: str) -> None:
        for pid in pids:
            machine.words[pid] = ("ray::IDLE",)
            machine.living[pid] = ("S", int(100 * machine.now) + pid)
            machine.sample()
            machine.words[pid] = (title,)
            machine.sample()
            del machine.living[pid]
            machine.sample()

    run([201, 202, 203], "ray::Engine")  # between two calls: it was told to end
    assert machine.seen.find_restarted() is None
    run([211, 212, 213], "ray::Engine.__init__")
    found = machine.seen.find_restarted()
    assert found is not None
    assert (found.name, found.times, found.status) == ("ray::Engine.__init__", 3, None)
    assert found.is_sure
    machine.words[221] = ("python", "/venv/ray/_private/workers/default_worker.py")
    machine.living[221] = ("S", 5)
    machine.sample()
    assert machine.seen.select_others([SUPERVISOR, 221]) == [SUPERVISOR]  # it is told what it runs


@pytest.mark.parametrize("status", [0, -15, -2])
def test_what_was_done_or_was_asked_to_end_is_no_error(machine: Machine, status: int) -> None:
    machine.run_workers(range(201, 208), status=status)
    assert machine.seen.find_restarted() is None


def test_the_last_line_of_its_log_says_why(machine: Machine) -> None:
    """Its parent has asked at once how it ended: no sample has seen that."""
    machine.logs.append(str(machine.log))
    machine.log.write_text("loading\nTraceback (most recent call last):\nKeyError: 'lm_head'\n")
    machine.run_workers(range(201, 205))
    found = machine.seen.find_restarted()
    assert found is not None
    assert (found.file, found.error) == (str(machine.log), "KeyError: 'lm_head'")
    assert found.status is None


@pytest.mark.parametrize("said", ["loaded 24 layers", "", "no Error here today", "3 errors"])
def test_a_log_without_an_error_says_nothing(machine: Machine, said: str) -> None:
    machine.logs.append(str(machine.log))
    machine.log.write_text(said)
    machine.run_workers(range(201, 206))
    assert machine.seen.find_restarted() is None


def test_processes_of_several_kinds_are_not_taken_for_one(machine: Machine) -> None:
    machine.words = {201: ("git", "describe"), 202: ("nvidia-smi",), 203: ("hostname",)}
    machine.run_workers([201, 202, 203], status=1)
    assert machine.seen.find_restarted() is None


def test_one_that_lives_on_ends_the_row(machine: Machine) -> None:
    machine.run_workers([201, 202, 203], status=1)
    machine.living[204] = ("S", 5000)
    machine.sample()
    assert machine.seen.find_restarted() is not None
    assert machine.seen.select_others([SUPERVISOR, 204]) == [SUPERVISOR]
    machine.sample(30.0)
    assert machine.seen.find_restarted() is None
    assert machine.seen.select_others([SUPERVISOR, 204]) == [SUPERVISOR, 204]


def test_what_was_there_before_the_first_ended_works_for_itself(machine: Machine) -> None:
    """A fork server gives all that it starts one command line."""
    machine.living[150] = ("S", 10)
    machine.sample()
    machine.run_workers([201, 202, 203], status=1)
    assert machine.seen.find_restarted() is not None
    assert machine.seen.select_others([SUPERVISOR, 150]) == [SUPERVISOR, 150]


def test_who_starts_what_only_ends_moves_nothing_on_by_that(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pool whose initializer raises: the error is in what all of them print."""
    monkeypatch.setattr(ended_children, "_read_error_of_starter", lambda pid: "KeyError: 'a'")
    machine.words[SUPERVISOR] = ("python", "train.py")
    machine.run_workers([201, 202], status=1)
    assert machine.seen.find_starters() == frozenset()
    machine.run_workers([203, 204], status=1)
    assert machine.seen.find_starters() == {SUPERVISOR}
    found = machine.seen.find_restarted()
    assert found is not None
    assert (found.error, found.file) == ("KeyError: 'a'", "")
    machine.words[205] = machine.words[SUPERVISOR]  # forked, and no other program yet
    machine.living[205] = ("S", 9999)
    machine.sample()
    assert machine.seen.select_others([SUPERVISOR, 205]) == [SUPERVISOR]


SHELL = ("sh", "serve.sh")


def test_what_a_shell_has_buried_is_told_by_its_status(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_children, "runs_python", lambda pid: True)
    machine.words[SUPERVISOR] = SHELL
    machine.run_workers([201], status=0)
    assert machine.seen.list_failed() == ()
    machine.run_workers([202], status=-11)
    (dead,) = machine.seen.list_failed()
    assert (dead.pid, dead.ppid, dead.state, dead.status) == (202, SUPERVISOR, "Z", -11)
    machine.living[203] = ("S", 9000)  # another one is to do it
    machine.sample()
    assert machine.seen.list_failed() == ()


def test_a_program_that_a_python_has_called_and_that_failed_is_its_own_affair(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_children, "runs_python", lambda pid: True)
    machine.run_workers([201], status=1)
    assert machine.seen.list_failed() == ()


def test_a_shell_that_sleeps_and_looks_moves_nothing_on(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_children, "runs_python", lambda pid: False)
    machine.words[SUPERVISOR] = SHELL
    for pid in range(201, 205):
        machine.words[pid] = ("sleep", "1")
        machine.run_workers([pid], lives=0.5)
    assert machine.seen.find_pollers() == {SUPERVISOR}
    for pid in range(205, 209):
        machine.words[pid] = ("cp", f"shard-{pid}", "/data")
        machine.run_workers([pid], lives=0.5)
    assert machine.seen.find_pollers() == frozenset()
