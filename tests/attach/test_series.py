"""What a series of looks says: what moves, and when it is clear."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.attach.job_looks import Download, JobLooks
from hangbisect.attach.jobs import Job
from hangbisect.attach.ranks import Rank
from hangbisect.base.process_facts import FileLock, Frame, Look, Sample
from hangbisect.collect.looks import order_unlike

from .test_words import BARRIER, SLEEP, look

JOB = Job((Rank(100, 0), Rank(101, 1)), (99,), ("torchrun", "train.py"), 2)
PAUSE = 0.7


def series(*looks: Look) -> JobLooks:
    """A series of a job whose ranks have the pids 100 and 101."""
    made = JobLooks(JOB, {100: 0, 101: 1}, dict)
    made.rank_of = {100: 100, 101: 101}
    for one in looks:
        made.looks.setdefault(one.pid, []).append(one)
    return made


def still(
    pid: int, count: int = 4, frame: Frame = SLEEP, call: str = "clock_nanosleep"
) -> list[Look]:
    return [look(pid, frame, call, 100 + PAUSE * n) for n in range(count)]


def places(pid: int, lines: list[int]) -> list[Look]:
    """A look at each of these lines, one after another."""
    return [
        look(pid, replace(SLEEP, line=line), "", 100 + PAUSE * n) for n, line in enumerate(lines)
    ]


def test_who_stands_still_hangs_and_who_meets_it_waits() -> None:
    made = series(*still(100, frame=BARRIER, call="futex"), *still(101))
    settled = made.settled()
    assert settled.moving == frozenset()
    assert settled.hung == {0, 1}
    assert made.is_clear(settled)


def test_new_places_are_movement_but_not_clear_by_themselves() -> None:
    made = series(*still(100, frame=BARRIER, call="futex"), *places(101, [1, 2, 3, 4]))
    settled = made.settled()
    assert settled.moving == {1}
    assert settled.waiting == {0}
    assert not made.is_clear(settled)


def test_who_asks_again_and_again_is_in_few_places_and_does_not_move() -> None:
    made = series(*places(101, [5, 6, 5, 6, 5, 6]))
    assert made.moved(101) == ""


def test_bytes_are_movement_and_clear() -> None:
    def read(one: Look, total: int) -> Look:
        counted = Sample(one.at, 101, 5, "S", 0.0, total, 0, main_read=total)
        return replace(one, sample=counted)

    looks = [read(one, n * 40_000_000) for n, one in enumerate(still(101))]
    made = series(*still(100, frame=BARRIER, call="futex"), *looks)
    settled = made.settled()
    assert settled.moving == {1}
    assert made.is_clear(settled)
    assert "54 MiB/s" in made.moved(101)


def test_a_download_that_grows_is_movement() -> None:
    made = series(*still(101))
    sizes = [(100.0, 10), (100.7, 10), (102.1, 4_200_000)]
    made.grown[101, "/c/x.incomplete"] = [Download(a, 101, "/c/x.incomplete", n) for a, n in sizes]
    assert made.moved(101) == "its download x.incomplete grows by 1.91 MiB/s"
    made.grown[101, "/c/x.incomplete"] = [Download(a, 101, "/c/x.incomplete", 7) for a, _ in sizes]
    assert made.moved(101) == ""


def test_what_a_child_does_is_its_ranks() -> None:
    made = series(*still(101), *[replace(one, pid=110, ppid=101) for one in places(101, [1, 2, 3])])
    made.rank_of[110] = 101
    assert "its child python (110)" in made.moved(101)
    assert made.moved(100) == ""


def test_a_lock_whose_holder_is_at_work_is_no_hang() -> None:
    lock = FileLock("/c/x.lock", 9, 700, "python")
    made = series(*[replace(one, locks=(lock,)) for one in still(101, call="flock")])
    seen = [(101, made.looks[101][-1])]
    assert [target.pid for target in made.holders.find(seen, {100, 101})] == [700]
    for one in places(101, [1, 2, 3, 4]):
        assert made.holders.add(replace(one, pid=700, name="cc"), made.keep)
    assert not made.holders.add(made.looks[101][-1], made.keep)
    assert made.moved(101).startswith("waits for a lock of cc (700), which runs through new code")
    assert made.moved(100) == ""
    for one in still(101):
        made.holders.add(replace(one, pid=700, at=one.at + 10.0), made.keep)
    assert made.moved(101) == ""
    assert made.holders.find(seen, {100, 101, 700}) == []  # a rank of the job


def test_a_lock_that_several_ranks_wait_for_is_freed_for_all_of_them() -> None:
    lock = FileLock("/c/x.lock", 9, 700, "python")
    looks = [replace(one, locks=(lock,)) for p in (100, 101) for one in still(p, call="flock")]
    made = series(*looks)
    made.holders.find([(p, made.looks[p][-1]) for p in (100, 101)], {100, 101})
    for one in places(101, [1, 2, 3, 4]):
        made.holders.add(replace(one, pid=700, name="cc"), made.keep)
    assert [bool(made.moved(p)) for p in (100, 101)] == [True, True]


def test_one_look_tells_nothing() -> None:
    made = series(*still(100, 1), *still(101, 1))
    assert made.settled().moving == frozenset()


def test_native_frames_are_read_where_the_fewest_stand_and_of_one_of_each_place() -> None:
    """Ranks that stand alike are told by one of them."""
    alike = {pid: look(pid, BARRIER, "futex", 100.0) for pid in (100, 101, 103)}
    alone = {102: look(102, SLEEP, "futex", 100.0)}
    assert order_unlike({**alike, **alone}) == [102, 100, 101, 103]
    assert order_unlike({}) == []
