"""NCCL's RAS service of a job, asked twice: what stands is a fact, what grows is not."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Socket
from hangbisect.base.rank_facts import RankFacts
from hangbisect.collect.looks import add_ras_logs, ask_ras
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.evidence.gpus import nccl_ras

from ..diagnosis.made_up import job, rank
from ..diagnosis.test_pending_operations import ITEM
from ..evidence.test_nccl_ras import LIMIT, json_status, one_behind, speaks


@contextmanager
def answering(*statuses: dict[str, Any] | None) -> Iterator[int]:
    """A service that gives each of its clients the next status, on the port that is returned; None
    is a process that is stopped: the kernel takes connections for it, and nobody says anything.
    """
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(LIMIT)
    silent: list[socket.socket] = []

    def serve() -> None:
        with suppress(OSError):
            for status in statuses:
                client, _ = server.accept()
                if status is None:
                    silent.append(client)
                    continue
                with client:
                    client.settimeout(LIMIT)
                    speaks(json.dumps(status), [], knows_json=True)(client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)  # it wakes who waits for a client, which close() does not
        server.close()
        thread.join(LIMIT)
        for client in silent:
            client.close()


def eight(port: int, listens: bool = True) -> list[RankFacts]:
    """Ranks in `.item()`, of which rank 2 has the service's port."""
    ears = Socket(1, "tcp", f"127.0.0.1:{port}", "", "LISTEN")
    here = {"NCCL_RAS_ADDR": f"127.0.0.1:{port}"}
    return [
        rank(n, replace(ITEM, sockets=(ears,) if listens and n == 2 else ()), environment=here)
        for n in range(8)
    ]


def asked(ranks: Sequence[RankFacts]) -> Any:
    return asyncio.run(ask_ras(ranks, limit=LIMIT, pause=0.0))


def test_counts_that_stand_name_the_one_that_has_not_come() -> None:
    with answering(one_behind(), one_behind()) as port:
        ranks = eight(port)
        found = asked(ranks)
    verdict = judge_job(job("late", 8), add_ras_logs(ranks, found))
    assert verdict.ranks.culprit == (3,)
    assert found.notes == (
        "NCCL RAS: communicator 0x1f of 8 has begun 41 AllReduce, but rank 3: 40",
    )


def test_counts_that_grow_name_nobody() -> None:
    with answering(one_behind(3), one_behind(2)) as port:
        found = asked(eight(port))
    assert found.logs == {}
    assert found.notes == ("NCCL RAS: communicator 0x1f begins operations meanwhile",)


def test_where_all_are_equal_it_is_asked_once() -> None:
    with answering(json_status([{"AllReduce": 9}] * 8)) as port:
        assert asked(eight(port)).notes == ()


def test_nobody_elses_port_is_connected_to() -> None:
    with answering(one_behind()) as port:
        assert asked(eight(port, listens=False)).notes == ()


def of_another_job() -> dict[str, Any]:
    status = one_behind(5)
    status["communicators"][0]["hash"] = "0xbad"
    for one in status["communicators"][0]["ranks"]:
        one["pid"] += 7000
    return status


def test_where_another_job_of_the_user_shares_the_port_it_is_asked_until_it_is_ours() -> None:
    """NCCL sets SO_REUSEPORT: the kernel gives a connection to any process that has the port."""
    other = of_another_job()
    with answering(other, other, one_behind(), other, one_behind()) as port:
        found = asked(eight(port))
    assert found.notes == (
        "NCCL RAS: communicator 0x1f of 8 has begun 41 AllReduce, but rank 3: 40",
    )
    assert set(found.logs) == set(range(8))


def test_where_only_the_other_job_answers_that_is_said() -> None:
    with answering(*[of_another_job()] * 6) as port:
        found = asked(eight(port))
    assert found.logs == found.unheard == {}
    (note,) = found.notes
    assert note.startswith(f"NCCL RAS: 127.0.0.1:{port} tells of another job alone")


def test_a_process_that_is_stopped_does_not_silence_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nccl_ras, "GREETING_LIMIT", 4.0)  # whoever is alive answers within that
    with answering(None, one_behind(), one_behind()) as port:
        found = asked(eight(port))
    assert set(found.logs) == set(range(8))


@pytest.mark.parametrize("status", [{}, {"communicators": 3}])
def test_what_cannot_be_read_is_said(status: dict[str, Any]) -> None:
    with answering(status) as port:
        (note,) = asked(eight(port)).notes
    assert note == f"NCCL RAS: 127.0.0.1:{port} gave no answer that can be read"


def missing(who: int, world: int = 8, **behind: int) -> dict[str, Any]:
    counts = [{"Broadcast": 2, "AllReduce": 41 - behind.get(f"r{n}", 0)} for n in range(world)]
    return json_status([None if n == who else one for n, one in enumerate(counts)], dead=True)


def test_where_counts_cannot_tell_the_one_that_gives_no_answer_is_named() -> None:
    with answering(missing(5)) as port:
        ranks = eight(port)
        found = asked(ranks)
    verdict = judge_job(job("late", 8), add_ras_logs(ranks, found))
    assert verdict.ranks.culprit == (5,)
    assert verdict.ranks.waiting == (0, 1, 2, 3, 4, 6, 7)


def test_who_is_behind_by_the_counts_is_named_as_well() -> None:
    with answering(missing(5, r3=1), missing(5, r3=1)) as port:
        ranks = eight(port)
        found = asked(ranks)
    assert judge_job(job("late", 8), add_ras_logs(ranks, found)).ranks.culprit == (3, 5)


def test_of_a_rank_that_moves_no_answer_accuses_nobody() -> None:
    with answering(missing(5)) as port:
        ranks = eight(port)
        found = asked(ranks)
    ranks[5] = replace(ranks[5], moved="it has read 3 MB")
    assert 5 not in judge_job(job("late", 8), add_ras_logs(ranks, found)).ranks.culprit


@pytest.mark.parametrize("lost", [(0, 1, 2, 3), (4, 6, 7), (5,)])
def test_with_half_of_the_ranks_unseen(lost: Sequence[int]) -> None:
    """Of ranks that nobody looks at nothing is said: the silent one is named, or nobody alone."""
    with answering(missing(5)) as port:
        found = asked(eight(port))
    ranks = [one for one in add_ras_logs(eight(port), found) if one.rank not in lost]
    named = judge_job(job("late", 8), ranks).ranks.culprit
    assert named == (5,) if 5 not in lost else 5 in named or len(named) != 1


def making(*who: int) -> dict[str, Any]:
    status = json_status([{"AllReduce": 0}] * 8)
    for one in status["communicators"][0]["ranks"]:
        one["status"]["init_state"] = 7 if one["rank"] in who else 0
    return status


def test_who_still_makes_what_the_others_have_made_is_named_if_it_does_so_a_second_later() -> None:
    with answering(making(6), making(6)) as port:
        ranks = eight(port)
        found = asked(ranks)
    verdict = judge_job(job("late", 8), add_ras_logs(ranks, found))
    assert verdict.ranks.culprit == (6,)
    with answering(making(6), making()) as port:
        found = asked(eight(port))
    assert found.unheard == {}
    assert found.notes == ()
