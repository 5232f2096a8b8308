"""The watch and `attach` give the same answer for the same job: the same looks go both ways."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hangbisect.attach import jobs
from hangbisect.attach.job_looks import JobLooks
from hangbisect.attach.judgement import judge_nodes
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.attach.ranks import Rank
from hangbisect.base.process_facts import Descriptor, Look, Sample, Socket
from hangbisect.base.verdict_facts import Verdict
from hangbisect.collect.looks import RankClasses
from hangbisect.diagnosis.verdict import judge_snapshot
from hangbisect.monitor.inspection import Inspection
from hangbisect.monitor.job import Job
from hangbisect.monitor.job_facts import make_job_facts

from ..diagnosis import made_up
from ..diagnosis.made_up import ALL_REDUCE, SLEEP, look, silent_peer
from ..monitor.made_up import hello, say

ENVIRON = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": "2"}
TICK = 0.7
LATER = 4.0  # seconds of looks, and more than both ways ask for
TO_STORE, TO_HUB = silent_peer("localhost:29500"), silent_peer()
SOCKETS = tuple(one.socket for one in (TO_STORE, TO_HUB) if one.socket is not None)
STORE = look("connect train.py:3", call="poll", descriptors=(TO_STORE,), sockets=SOCKETS[:1])
RECV = replace(made_up.RECV, sockets=SOCKETS[1:])
SPIN = look("wait_until train.py:12", call="", state="R", gil=True)
LOCK = look("BaseFileLock._poll_until_acquired SP/filelock/_api.py:1177", call="clock_nanosleep")
PLACES = [look(f"load train.py:{line}", call="", state="R", gil=True) for line in range(20, 40)]

LISTENS = Socket(7, "tcp", local="127.0.0.1:5000", state="LISTEN")
ACCEPTS = look(
    "socket.accept STD/socket.py:294",
    "train train.py:29",
    call="accept4",
    descriptors=(Descriptor(6, "socket", "socket:[7]", socket=LISTENS),),
    sockets=(LISTENS,),
)
READS = look(
    "train train.py:44",
    call="read",
    descriptors=(Descriptor(4, "pipe", "pipe:[9]", other_ends=(101,)),),
)


def receives(source: int) -> Look:
    """A rank in recv() from another."""
    one = look(
        "recv SP/torch/distributed/distributed_c10d.py:2799",
        "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
        "exchange train.py:14",
    )
    (thread,) = one.threads
    inner = replace(thread.frames[0], locals=(("src", str(source)), ("tag", "0")))
    return replace(one, threads=(replace(thread, frames=(inner, *thread.frames[1:])),))


Series = list[tuple[Look, ...]]  # of each look, what it found


def at(pid: int, began: float, *looks: Look) -> list[Look]:
    """Looks at one process, a moment apart."""
    made = []
    for turn, one in enumerate(looks):
        threads = tuple(replace(thread, os_id=pid) for thread in one.threads)
        kernel = tuple(replace(task, tid=pid) for task in one.kernel)
        made.append(replace(one, pid=pid, at=began + TICK * turn, threads=threads, kernel=kernel))
    return made


def computes(looks: list[Look]) -> list[Look]:
    """The same, of a process that burns a core."""
    return [
        replace(one, sample=Sample(one.at, one.pid, 5, one.state, one.at, 0, 0)) for one in looks
    ]


def still(first: Look, second: Look, began: float) -> Series:
    """Both ranks stand where they are."""
    return list(zip(at(100, began, *[first] * 6), at(101, began, *[second] * 6), strict=True))


SCENES: dict[str, Callable[[float], Series]] = {
    "one reads, the other meets it": lambda at_: still(ALL_REDUCE, RECV, at_),
    "all meet": lambda at_: still(ALL_REDUCE, ALL_REDUCE, at_),
    "one sleeps, the other polls a lock": lambda at_: still(LOCK, SLEEP, at_),
    "one asks the store": lambda at_: still(STORE, SLEEP, at_),
    "one is at new places, the other meets it": lambda at_: list(
        zip(at(100, at_, *[ALL_REDUCE] * 6), at(101, at_, *PLACES[:6]), strict=True)
    ),
    "one is at new places, the other asks the store": lambda at_: list(
        zip(at(100, at_, *[STORE] * 6), at(101, at_, *PLACES[:6]), strict=True)
    ),
    "one spins, the other meets it": lambda at_: list(
        zip(
            at(100, at_, *[ALL_REDUCE] * 6),
            computes(at(101, at_, *[SPIN] * 6)),
            strict=True,
        )
    ),
    "each receives from the other first": lambda at_: still(receives(1), receives(0), at_),
    "one accepts, the other waits for its own": lambda at_: still(ACCEPTS, RECV, at_),
    "one reads a pipe of the other": lambda at_: still(READS, RECV, at_),
    "one has ended, the other meets it": lambda at_: list(
        zip(
            at(100, at_, *[ALL_REDUCE] * 6),
            at(101, at_, *[look(call="", state="Z")] * 6),
            strict=True,
        )
    ),
}


def watched(folder: Path, series: Series) -> tuple[RankClasses, Verdict]:
    """What the watch says of the looks."""
    job = Job(
        {
            **{"folder": str(folder / "socket"), "folder_of_start": str(folder)},
            **{"folder_for_temporary_files": str(folder), "run_dir": "", "pipeline": ""},
            **{"timeout": {}, "stall": 1.0, "slow_limit": 5.0, "known_hang": None, "own": True},
            **{"barriers": "off", "command": ["torchrun", "train.py"], "plain": True},
            **{"on_terminal": False, "json": False, "on_hang": "report"},
            "place": {
                **{"job": "j", "launcher_pid": 1, "launcher": "torchrun", "node_name": ""},
                **{"attempt": 0, "rank": 0, "local_rank": 0, "host": "n01"},
            },
        }
    )
    for rank in (0, 1):
        say(job.members, rank, hello(rank, environment=ENVIRON, at=series[0][0].at - 90))
    members = list(job.members)
    inspection = Inspection(job)
    for looks in series:
        inspection.add(zip(members, looks, strict=True))
        inspection.note_who_moved(members)
    seen = inspection.snapshot()
    settled = inspection.settled()
    facts = make_job_facts(job, "busy" if settled.busy and not settled.hung else "still", None)
    return settled, judge_snapshot(replace(facts, table=()), seen)[0]


def attached(series: Series) -> tuple[RankClasses, Verdict]:
    """What attach says of them."""
    ranks = (Rank(100, 0), Rank(101, 1))
    job = jobs.Job(ranks, (99,), ("torchrun", "train.py"), 2)
    looks = JobLooks(job, {100: 0, 101: 1}, dict, {0: ENVIRON, 1: ENVIRON})
    looks.rank_of = {100: 100, 101: 101}
    for one in series:
        looks.add(one)
    settled = looks.settled()
    node = NodeFacts(
        host="n01",
        command=job.command,
        world=2,
        whole=True,
        age=90.0,
        at=series[-1][0].at,
        span=looks.span,
        ranks=tuple(
            replace(facts, host="n01", local_rank=at) for at, facts in enumerate(looks.facts())
        ),
        moving=tuple(sorted(settled.moving)),
        busy=tuple(sorted(settled.busy)),
        quiet=tuple(sorted(settled.hung)),
    )
    return settled, judge_nodes([node], now=node.at).verdict


def told(verdict: Verdict) -> dict[str, Any]:
    """What a verdict says of who hangs, where and why."""
    return {
        **{"ranks": verdict.ranks, "call": verdict.call, "frame": verdict.frame},
        **{"waits_for": verdict.waits_for, "component": verdict.component},
        **{"candidates": verdict.candidates, "chain": verdict.chain, "cause": verdict.cause},
    }


@pytest.mark.parametrize("scene", SCENES)
def test_the_same_looks_give_the_same_answer(scene: str, tmp_path: Path) -> None:
    series = SCENES[scene](time.monotonic() - LATER)
    (of_watch, by_watch), (of_attach, by_attach) = watched(tmp_path, series), attached(series)
    assert of_watch == of_attach
    if not of_watch.moving:  # of a job that moves attach says nothing more
        assert told(by_watch) == told(by_attach)
