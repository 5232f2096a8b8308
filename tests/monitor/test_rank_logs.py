"""Rings that are opened while ranks live, and ranks that are asked."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hangbisect.base.rank_facts import RankFacts
from hangbisect.monitor.job import RankLogs
from hangbisect.monitor.job_facts import add_logs
from hangbisect.rank.collective_records import LEFT, RECORD, RecordRing

from ..dumps.watchdog_texts import signalled
from ..evidence.printing_processes import printers

DUMP = {
    "entries": [
        {
            "process_group": ["0", "default_pg"],
            "profiling_name": "gloo:barrier",
            "collective_seq_id": 9,
            "p2p_seq_id": 0,
            "state": "scheduled",
            "retired": False,
            "time_created_ns": 5_000_000_000,
        }
    ]
}


def ring_of_one() -> RecordRing:
    ring = RecordRing()
    at = ring.block() + RECORD.size
    texts = [ring.text(text) for text in ("0\n0-1\n", "barrier", "a.py:1 f", "")]
    RECORD.pack_into(ring.memory, at, 1, *texts, LEFT, 1.0, 0, 1)
    return ring


def answer(*dumps: bytes, **fields: Any) -> bytes:
    about = {"t": "recorded", "at": 100.0, "wall": 3.0, "lengths": [len(d) for d in dumps]}
    return b"".join([json.dumps(about | fields).encode(), b"\n", *dumps])


Rank = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


async def asked(logs: RankLogs, ranks: list[RankFacts], *behave: Rank) -> list[RankFacts]:
    """Ask ranks that behave so for their logs."""
    tasks, writers = [], []
    for rank, behaves in enumerate(behave):
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            reader, writer = await asyncio.open_connection(sock=end)
            writers.append(writer)
            served = logs.serve({"rank": rank}, reader, writer) if end is ours else None
            tasks.append(asyncio.ensure_future(served or behaves(reader, writer)))
    await asyncio.sleep(0)
    found = await add_logs(job(logs), ranks, "still")
    for task in tasks:
        task.cancel()
    for writer in writers:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    return found


def job(logs: RankLogs) -> Any:
    return SimpleNamespace(logs=logs, notes=[], said=[], members=[], started=0.0)


def test_a_ring_is_read_after_its_rank_is_gone() -> None:
    logs, ring = RankLogs(), ring_of_one()
    logs.open(0, os.getpid(), ring.fd)
    os.close(ring.fd)
    ring.memory.close()
    log = logs.read(0)
    assert log is not None
    assert [o.site for o in log.operations] == ["a.py:1 f"]
    assert logs.read(1) is None


def test_what_is_no_ring_is_passed_over() -> None:
    logs = RankLogs()
    with tempfile.TemporaryFile() as file:
        logs.open(0, os.getpid(), file.fileno())
    logs.open(1, os.getpid(), 10**6)
    assert logs.read(0) is None
    assert logs.read(1) is None


def test_ranks_are_asked_and_one_that_says_nothing_holds_nobody_up() -> None:
    async def run() -> list[RankFacts]:
        logs, ring = RankLogs(), ring_of_one()
        logs.open(0, os.getpid(), ring.fd)

        async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.read(64)
            writer.write(answer(json.dumps(DUMP).encode(), b"{}", sequence={"0": 9}))

        async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        ranks = [RankFacts(rank=r, pid=os.getpid()) for r in range(3)]
        return await asked(logs, ranks, answers, says_nothing)

    first, second, third = asyncio.run(run())
    assert [log.source for log in first.collectives] == ["ring", "torch"]
    recorded = first.collectives[1]
    assert (recorded.operations[0].number, recorded.operations[0].at) == (9, 102.0)
    assert recorded.sequence == {"0": 9}
    assert (second.collectives, third.collectives) == ((), ())


def test_garbage_in_an_answer_and_a_rank_that_goes_meanwhile_are_no_harm() -> None:
    async def run() -> list[RankFacts]:
        logs = RankLogs()

        async def goes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(64)
            writer.write(answer(b"x" * 100)[:-50])
            writer.close()

        async def babbles(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(64)
            writer.write(answer(b"\x80garbage"))

        return await asked(logs, [RankFacts(rank=0, pid=1), RankFacts(rank=1)], goes, babbles)

    assert [r.collectives for r in asyncio.run(run())] == [(), ()]


def test_a_rank_that_died_is_not_asked_and_its_error_file_is_read(tmp_path: Any) -> None:
    file = tmp_path / "error.json"
    file.write_text(json.dumps({"message": {"message": "OSError: gone", "extraInfo": {}}}))
    its_job = job(RankLogs())
    its_job.members = [SimpleNamespace(rank=0, error_file=str(file))]
    dead = RankFacts(rank=0, pid=1, alive=False, left=True, status=1)
    (found,) = asyncio.run(add_logs(its_job, [dead], "crash"))
    assert found.error == "OSError: gone"


def test_what_watchdogs_wrote_to_the_files_of_living_ranks_is_read(tmp_path: Path) -> None:
    then = time.strftime("%m%d %H:%M:", time.localtime()).removeprefix("0")
    lines = [line.replace("321 02:07:", then) for line in signalled(0, 40, 40)]
    with printers(tmp_path) as printing:
        ranks = [RankFacts(rank=0, pid=printing.start(lines, tmp_path / "log"))]
        its_job = job(RankLogs())
        its_job.started = time.monotonic() - 3600
        (living,) = asyncio.run(add_logs(its_job, ranks, "still"))
        (failed,) = asyncio.run(add_logs(its_job, ranks, "crash"))
    assert [(log.source, log.sequence) for log in living.collectives] == [("watchdog", {"0": 40})]
    assert failed.collectives == ()
