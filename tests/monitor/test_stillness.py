"""Cheap samples: whether a family stirs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.base.process_facts import Sample
from hangbisect.monitor import job_activity
from hangbisect.monitor.job_activity import WINDOW, Stillness

from ..diagnosis.made_up import look
from .made_up import sample


class Readings:
    """What each pid would be read as, in the test's hand."""

    def __init__(self) -> None:
        self.now: dict[int, Sample] = {}

        self.threads: dict[int, tuple[int, ...]] = {}  # that only poll, by pid
        self.asked: list[int] = []

    def __call__(self, pid: int, polling: tuple[int, ...] = ()) -> Sample | None:
        found = self.now.get(pid)
        named = tuple(one for one in found.polling if one[0] in polling) if found else ()
        return replace(found, polling=named) if found else None

    def find(self, pid: int) -> tuple[int, ...]:
        self.asked.append(pid)
        return self.threads.get(pid, ())


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Readings:
    made = Readings()
    monkeypatch.setattr(job_activity, "sample", made)
    monkeypatch.setattr(job_activity, "find_polling_threads", made.find)
    return made


def watch(readings: Readings, cpu_by_second: list[float], pid: int = 1) -> list[float]:
    """Return when it stirred last, as said after each second's sample."""
    still, said = Stillness(), []
    for second, cpu in enumerate(cpu_by_second):
        readings.now[pid] = sample(100.0 + second, pid=pid, cpu=cpu)
        said.append(still.stirred_at([pid]))
    return said


def test_one_sample_says_nothing(readings: Readings) -> None:
    assert watch(readings, [5.0]) == [0.0]


def test_what_uses_a_core_stirs_at_each_sample(readings: Readings) -> None:
    assert watch(readings, [0.0, 1.0, 2.0, 3.0]) == [0.0, 101.0, 102.0, 103.0]


def test_what_uses_nothing_does_not_stir(readings: Readings) -> None:
    assert watch(readings, [7.0] * 20) == [0.0] * 20


def test_a_burst_is_forgotten_after_a_while(readings: Readings) -> None:
    said = watch(readings, [0.0, 1.0, *[1.0] * 20])
    assert said[1] == 101.0
    assert set(said[2:]) == {101.0, 0.0}
    assert said[2 + int(WINDOW) :] == [0.0] * (len(said) - 2 - int(WINDOW))


def test_a_small_burst_now_and_then_is_no_sign_of_life(readings: Readings) -> None:
    # A helper that samples the machine: 0.1 s of CPU every ten seconds.
    said = watch(readings, [0.1 * (second // 10) for second in range(60)])
    assert said[-1] == 0.0
    assert [at for at in said if at == 0.0]


def test_a_child_that_stirs_counts_and_one_that_ended_does_not(readings: Readings) -> None:
    still = Stillness()
    for second in range(3):
        readings.now[1] = sample(100.0 + second, pid=1)
        readings.now[2] = sample(100.0 + second, pid=2, cpu=float(second))
        said = still.stirred_at([1, 2])
    assert said == 102.0
    del readings.now[2]
    readings.now[1] = sample(103.0, pid=1)
    assert still.stirred_at([1, 2]) == 0.0


def test_a_pid_that_was_used_again_is_a_stir(readings: Readings) -> None:
    still = Stillness()
    readings.now[1] = sample(100.0, started=5)
    still.stirred_at([1])
    readings.now[1] = sample(101.0, started=900)
    assert still.stirred_at([1]) == 101.0


def test_threads_that_only_poll_are_found_once_it_stirs_and_left_out_then(
    readings: Readings,
) -> None:
    readings.threads[1] = (7,)
    still, said = Stillness(), []
    for second in range(20):
        polling = ((7, 0.9 * second),)
        readings.now[1] = replace(sample(100.0 + second, cpu=0.9 * second), polling=polling)
        said.append(still.stirred_at([1]))
    assert said[1] == 101.0
    assert said[-1] == 0.0
    assert len(readings.asked) <= 2


def test_of_a_process_at_rest_no_threads_are_searched(readings: Readings) -> None:
    watch(readings, [7.0] * 20)
    assert readings.asked == []


def test_what_a_shell_that_polls_reads_is_no_sign_of_life_but_what_it_writes_is(
    readings: Readings,
) -> None:
    """The kernel counts as the shell's what each program read that it has started."""
    still = Stillness()
    for second in range(12):
        readings.now[1] = replace(sample(float(second)), read=100_000 * second)
        assert not still.stirred_at([1], pollers={1})
    for second in range(12, 24):
        readings.now[1] = replace(sample(float(second)), written=1_000_000 * second)
        stirred = still.stirred_at([1], pollers={1})
    assert stirred == 23.0


def test_the_loop_of_a_worker_of_dask_is_left_out_once_a_look_has_named_it(
    readings: Readings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stands in the run queue on a machine with much to do; a task that computes stirs still."""
    monkeypatch.setattr(job_activity, "words_of", lambda pid: ["dask worker [tcp://127.0.0.1:1]"])
    monkeypatch.setattr(job_activity, "list_threads_in_touch", lambda looks: (1,))
    still = Stillness()

    def stir(second: int, cpu: float, loop: float) -> bool:
        now = sample(100.0 + second, pid=1, cpu=cpu)
        readings.now[1] = replace(now, polling=((1, loop),))
        return still.stirred_at([1]) > 0.0

    stir(0, 0.0, 0.0)
    assert stir(1, 0.3, 0.3)
    assert still.wants_names_of_threads()
    unread = replace(look(pid=1), threads=(), command=("dask worker [tcp://127.0.0.1:1]",))
    monkeypatch.setattr(job_activity, "list_threads_in_touch", lambda looks: ())
    still.learn_threads({1: [unread]})
    assert still.wants_names_of_threads()  # no stack was read in time
    monkeypatch.setattr(job_activity, "list_threads_in_touch", lambda looks: (1,))
    still.learn_threads({1: [look("work train.py:9", pid=1)]})
    assert not still.wants_names_of_threads()
    stirred = [stir(n, 0.3 * n, 0.3 * n) for n in range(2, 3 + 2 * int(WINDOW))]
    assert not stirred[-1]
    assert stir(40, 30.0, 12.0)
