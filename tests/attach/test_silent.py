"""Ranks that no environment names: what their frames tell, and what they do not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.attach.jobs import group_ranks
from hangbisect.attach.ranks import find_candidates, ranks_from_environment, read_ranks_from_stacks
from hangbisect.base.facts import Frame, Look, Thread
from hangbisect.dumps.rank_locals import read_rank_locals

from .made_up import PYTHON, SCRIPT, process, table, torchrun

SITE = "/venv/lib/python3.11/site-packages/"
OWN = "/home/ada/train.py"


def frame(name: str, file: str, **values: object) -> Frame:
    return Frame(name, file, 1, locals=tuple((n, str(v)) for n, v in values.items()))


def look(*frames: Frame, pid: int = 51) -> Look:
    """A look at a process with these frames, innermost first."""
    thread = Thread(pid, "MainThread", False, False, frames)
    return Look(1.0, pid, 50, "python", SCRIPT, 9.0, "S", "py-spy", threads=(thread,))


WRAP = frame("_wrap", SITE + "torch/multiprocessing/spawn.py", i=1)
WORKER = frame("_worker_loop", SITE + "torch/utils/data/_utils/worker.py", worker_id=0)


def test_who_meets_the_others_says_its_number() -> None:
    group = frame(
        "init_process_group",
        SITE + "torch/distributed/distributed_c10d.py",
        rank=5,
        world_size=8,
    )
    said = read_rank_locals(look(group, WRAP))
    assert (said.number, said.local, said.world) == (5, 1, 8)


def test_what_started_a_process_says_its_number_on_the_node() -> None:
    said = read_rank_locals(look(frame("train", OWN), WRAP))
    assert (said.number, said.local, said.worker) == (None, 1, False)


def test_the_scripts_own_function_may_say_it() -> None:
    said = read_rank_locals(
        look(frame("barrier", SITE + "torch/x.py", rank=9), frame("run", OWN, rank=1))
    )
    assert said.number == 1


@pytest.mark.parametrize("value", ["-1", '"1"', "None", "1.0", "9" * 12])
def test_what_is_no_number_tells_nothing(value: str) -> None:
    assert read_rank_locals(look(frame("run", OWN, rank=value))).number is None


def test_a_worker_is_no_rank_whatever_its_locals_say() -> None:
    assert read_rank_locals(look(WORKER, frame("run", OWN, rank=1))).worker


def family(*looks: Look) -> list[tuple[int, int | None, int | None]]:
    pids = {one.pid: one for one in looks}
    known = table(process(50), *(process(pid, 50) for pid in pids))
    return [(r.pid, r.number, r.world) for r in read_ranks_from_stacks(known, pids)]


def spawned(pid: int, index: int, *inner: Frame) -> Look:
    return look(*inner, replace(WRAP, locals=(("i", str(index)),)), pid=pid)


def test_ranks_that_one_script_spawned_have_its_numbers() -> None:
    assert family(spawned(51, 0), spawned(52, 1)) == [(51, 0, 2), (52, 1, 2)]


def test_numbers_on_a_node_are_not_those_of_a_larger_job() -> None:
    size = frame("main", OWN, world_size=8)
    found = family(spawned(51, 0, size), spawned(52, 1, size))
    assert found == [(51, None, 8), (52, None, 8)]


def test_one_that_does_not_tell_is_unknown_beside_one_that_does() -> None:
    found = family(look(frame("run", OWN, rank=0), pid=51), look(frame("f", OWN), pid=52))
    assert found == [(51, 0, 2), (52, None, None)]


def test_the_same_number_twice_is_no_number() -> None:
    found = family(*(look(frame("run", OWN, rank=0), pid=pid) for pid in (51, 52)))
    assert [number for _, number, _ in found] == [None, None]


def test_where_nobody_tells_there_are_no_ranks() -> None:
    assert family(look(frame("f", OWN), pid=51), look(WORKER, pid=52)) == []


def test_only_what_multiprocessing_may_have_started_is_asked() -> None:
    spawn = (PYTHON, "-c", "from multiprocessing.spawn import ...", "--multiprocessing-fork")
    known = table(
        *torchrun(),
        process(110, 101),  # a worker of a rank
        process(50, 1, PYTHON, "train.py"),
        process(51, 50, *spawn),
        process(52, 50, PYTHON, "train.py"),
        process(53, 50, PYTHON, "-c", "from multiprocessing.resource_tracker import main"),
        process(54, 50, "wandb-core"),
    )
    ranks = ranks_from_environment(known)
    assert [one.pid for one in find_candidates(known, ranks, set())] == [51, 52]
    assert [one.pid for one in find_candidates(known, ranks, {51})] == [52]


def test_who_started_another_program_is_no_part_of_its_job() -> None:
    """A test, a scheduler or a server that started the script: it must never be ended with it."""
    group = frame(
        "_create_c10d_store",
        SITE + "torch/distributed/rendezvous.py",
        rank=0,
        world_size=2,
        hostname='"127.0.0.1"',
    )
    known = table(process(40, 1, PYTHON, "server.py"), process(51, 40, PYTHON, "train.py"))
    (found,) = read_ranks_from_stacks(known, {51: look(group)})
    assert (found.number, found.world, found.launcher) == (0, 2, None)
    (job,) = group_ranks(known, [found])
    assert job.pids == {51}
    assert job.command == ("python", "train.py")
    assert job.whole
