"""What is started again and again in a job that was not watched from its start."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hangbisect.attach import restarts
from hangbisect.attach.restarts import (
    comes_in_vain,
    find_restarted,
    judge_repeated_error,
    list_failing_actors,
)
from hangbisect.base.process_facts import DeadWorker, Look, RayCluster
from hangbisect.base.rank_facts import RankFacts
from hangbisect.evidence.left_logs import LeftLog

ERROR = "FileNotFoundError: 'vocabulary.txt'"
NOW = 1000.0


def look(pid: int, age: float = 50.0, ppid: int = 1, *words: str, **more: object) -> Look:
    made = Look(100.0, pid, ppid, "python", words or ("python", "t.py"), age, "S", "py-spy")
    return replace(made, **more)  # type: ignore[arg-type]  # fields of Look


def dead(times: int, actor: str = "Engine") -> tuple[DeadWorker, ...]:
    return tuple(DeadWorker(f"w{n}", "SYSTEM_ERROR", "gone", 500 + n, actor) for n in range(times))


@pytest.mark.parametrize(("times", "again"), [(2, False), (3, True)])
def test_actors_of_one_class_that_died_three_times_are_started_again(
    times: int, again: bool
) -> None:
    driver = look(100, ray=RayCluster(folder="/logs", dead=(*dead(times), *dead(1, "Other"))))
    assert list_failing_actors([driver]) == ({"Engine"} if again else set())
    found = find_restarted((), [RankFacts(0, pid=100, looks=(driver,))], 60.0)
    assert (found is not None) == again
    if found is not None:
        assert (found.name, found.pid, found.times) == ("ray::Engine", 502, 3)
        assert (found.file, found.is_sure) == ("/logs", True)


def test_what_runs_such_an_actor_or_may_come_to_run_it_moves_nothing_on() -> None:
    failing = {"Engine"}
    worker = "/venv/ray/_private/workers/default_worker.py"
    assert comes_in_vain(look(7, 1.0, 1, "ray::Engine.__init__"), failing)
    assert comes_in_vain(look(7, 1.0, 1, "python", worker), failing)
    assert not comes_in_vain(look(7, 1.0, 1, "ray::Trainer.fit"), failing)
    assert not comes_in_vain(look(7, 1.0, 1, "python", worker), ())


def repeated(times: int = 10, ago: float = 1.0, path: str = "/job/error.log") -> LeftLog:
    return LeftLog(path, ERROR, times, NOW - ago)


def test_an_error_that_comes_again_while_workers_are_young_is_of_those_before_them() -> None:
    old, young = look(200, 39.0, 100), look(201, 1.0, 100)
    found = judge_repeated_error(repeated(), [old, young], 40.0, NOW)
    assert found is not None
    assert (found.pid, found.times, found.seconds, found.error) == (201, 10, 39.0, ERROR)
    assert found.file == "/job/error.log"
    printed = judge_repeated_error(repeated(path="/proc/100/fd/2"), [young], 40.0, NOW)
    assert printed is not None
    assert printed.file == ""


@pytest.mark.parametrize(
    ("log", "child"),
    [
        (repeated(), look(200, 38.0, 100)),  # as old as the job: none was started again
        (repeated(), look(200, 1.0, 100, state="Z")),
        (repeated(times=4, ago=18.0), look(200, 17.0, 100)),  # it has come further by now
    ],
)
def test_an_error_alone_does_not_say_that_its_like_comes_again(log: LeftLog, child: Look) -> None:
    assert judge_repeated_error(log, [child], 40.0, NOW) is None


def test_what_a_process_prints_is_read_only_where_it_has_started_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: Counter[int] = Counter()

    def read_output(pid: int) -> LeftLog | None:
        read[pid] += 1
        return None

    monkeypatch.setattr(restarts, "_read_output", read_output)
    monkeypatch.setattr(restarts, "find_left_logs", lambda pids, since: [])
    child = look(200, 1.0, 100)
    facts = RankFacts(0, pid=100, looks=(look(100),), children=((child,),))
    assert find_restarted((100, 101), [facts], 40.0) is None
    assert [*read] == [100]
