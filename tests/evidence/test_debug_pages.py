"""The pages of torch.distributed.debug, asked over HTTP: a server that answers as torch 2.13 does,
and one that lies, hangs, is slow or breaks off.

The page has the form that torch 2.13's own server gives it (JSON_RESP_TEMPLATE in
torch/distributed/debug/_frontend.py), recorded on two gloo ranks: tests/real/test_debug_pages.py
asks that server itself. Dumps of NCCL are made up (tests/diagnosis/recorder_dumps.py).
"""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from hangbisect.base.process_facts import Frame, Socket, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.collect.library_facts import add_recorder_dumps
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.evidence.gpus import recorder_queries
from hangbisect.evidence.gpus.recorder_queries import ask_debug_pages, find_debug_server, parse_page
from hypothesis import given
from hypothesis import strategies as st

from ..diagnosis.made_up import job, rank
from ..diagnosis.recorder_dumps import dump, entry, rounds
from ..diagnosis.test_pending_operations import ITEM

WORLD = 4
LIMIT = 20.0
HEAD = """
<!doctype html>
<head>
    <title>FlightRecorder NCCL - PyTorch Distributed</title>
</head>

<nav>
    <h1>Torch Distributed Debug Server</h1>

    <a href="/">Home</a> <!--@lint-ignore-->
</nav>

<section class="content">

    <h1>FlightRecorder NCCL</h1>

"""
ANSWERED = """
        <h2>Rank {rank}: http://n01:3706{rank}/handler/{handler}?onlyactive=true</h2>

            <pre>{text}</pre>

"""
FAILED = """
        <h2>Rank {rank}: http://n01:3706{rank}/handler/{handler}?onlyactive=true</h2>

            <p>Failed to fetch: status={status}</p>
            <pre>{text}</pre>

"""
NOT_FOUND = "Handler {handler} not found: Failed to find handler {handler}"
NCCL, CPU = "dump_nccl_trace_json", "fr_trace_json"
ALL = {"0": range(WORLD)}


def page(dumps: Mapping[int, dict[str, Any] | str], handler: str = NCCL, status: int = 408) -> str:
    """What the server makes of the answers: a dump, or why there is none."""
    parts = [
        FAILED.format(rank=n, handler=handler, status=status, text=one)
        if isinstance(one, str)
        else ANSWERED.format(rank=n, handler=handler, text=json.dumps(one, indent=2))
        for n, one in dumps.items()
    ]
    return HEAD + "".join(parts) + "\n\n</section>\n"


def behind(who: int = 2, done: int = 41) -> dict[int, dict[str, Any] | str]:
    return {
        n: dump(rounds(done - 1), ALL) if n == who else dump(rounds(done, "started"), ALL)
        for n in range(WORLD)
    }


NOTHING = page(dict.fromkeys(range(WORLD), NOT_FOUND.format(handler=NCCL)), status=404)


# ---- the page ------------------------------------------------------------------------------------


def test_each_ranks_dump_is_its_log() -> None:
    logs, silent = parse_page(page(behind()))
    assert sorted(logs) == [0, 1, 2, 3]
    assert silent == {}
    assert [logs[n].operations[-1].done for n in range(WORLD)] == [False, False, True, False]
    assert all(log.source == "flight recorder" for log in logs.values())


def test_a_worker_that_gave_no_answer_is_told() -> None:
    answers = {**behind(), 1: "TimeoutError: "}
    logs, silent = parse_page(page(answers))
    assert sorted(logs) == [0, 2, 3]
    assert silent == {1: "status 408, TimeoutError:"}


def test_a_page_without_the_handler_tells_nothing_of_anybody() -> None:
    """Torch without NCCL: each worker answers that it has no such handler."""
    assert parse_page(NOTHING) == ({}, {})


@given(st.text(max_size=200), st.integers(0, 400), st.integers(0, 400))
def test_garbage_is_no_harm(text: str, start: int, end: int) -> None:
    whole = page({0: dump(rounds(1), ALL), 1: "x"})
    parse_page(text)
    parse_page(whole[:start] + text + whole[end:])


# ---- the server ----------------------------------------------------------------------------------

Client = socket.socket


@contextmanager
def serving(answer: Callable[[Client, str], None]) -> Iterator[int]:
    """A server that gives each client and the path it asks for to `answer`."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(LIMIT)

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                with client, suppress(OSError):
                    client.settimeout(LIMIT)
                    asked = b""
                    while b"\r\n\r\n" not in asked and (part := client.recv(4096)):
                        asked += part
                    answer(client, asked.split()[1].decode() if asked else "")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)  # it wakes who waits for a client, which close() does not
        server.close()
        thread.join(LIMIT)


def http(text: str) -> bytes:
    data = text.encode()
    return b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n\r\n" + data


def pages(asked: list[str], found: Mapping[str, str]) -> Callable[[Client, str], None]:
    def answer(client: Client, path: str) -> None:
        asked.append(path)
        if path in found:
            client.sendall(http(found[path]))
        else:
            client.sendall(b"HTTP/1.0 404 Not Found\r\n\r\n")

    return answer


def test_the_page_of_nccl_is_asked_for_and_no_other() -> None:
    asked: list[str] = []
    with serving(pages(asked, {"/fr_trace_nccl_json": page(behind())})) as port:
        logs, _ = ask_debug_pages("127.0.0.1", port, LIMIT)
    assert sorted(logs) == [0, 1, 2, 3]
    assert asked == ["/fr_trace_nccl_json"]


def test_without_nccl_the_page_of_the_other_backends_is_asked_for() -> None:
    asked: list[str] = []
    found = {"/fr_trace_nccl_json": NOTHING, "/fr_trace_json": page(behind(1), CPU)}
    with serving(pages(asked, found)) as port:
        logs, _ = ask_debug_pages("127.0.0.1", port, LIMIT)
    assert logs[1].operations[-1].done
    assert asked == ["/fr_trace_nccl_json", "/fr_trace_json"]


def test_torchcomms_has_a_page_of_its_own() -> None:
    found = {
        "/fr_trace_nccl_json": NOTHING,
        "/fr_trace_json": page(dict.fromkeys(range(WORLD), "gone"), CPU, status=404),
        "/torchcomms_fr_trace_json": page(behind(3), "torchcomms_fr_trace_json"),
    }
    with serving(pages([], found)) as port:
        logs, _ = ask_debug_pages("127.0.0.1", port, LIMIT)
    assert logs[3].operations[-1].done


def test_torchcomms_counts_over_all_groups_together() -> None:
    """collective_seq_id_ of comms/torchcomms/hooks/fr/FlightRecorder.cpp is one for all: ranks that
    are in several groups cannot be compared by it.
    """
    pairs = {"0": range(WORLD), "tp": (0, 1)}
    answers: dict[int, dict[str, Any] | str] = {
        n: dump([*rounds(2), entry("ncclx:all_gather", 3, "started", group=("tp", "tp"))], pairs)
        if n < 2
        else dump(rounds(3, "started"), pairs)
        for n in range(WORLD)
    }
    found = {
        "/fr_trace_nccl_json": NOTHING,
        "/fr_trace_json": NOTHING,
        "/torchcomms_fr_trace_json": page(answers, "torchcomms_fr_trace_json"),
    }
    with serving(pages([], found)) as port:
        assert ask_debug_pages("127.0.0.1", port, LIMIT)[0] == {}


@pytest.mark.parametrize(
    "said",
    [
        http("<html><h1>Jupyter</h1><h2>Rank 0: http://x/</h2><pre>{}</pre></html>"),
        b"220 mail.example.org ESMTP\r\n",
        b"",
        b"\xff" * 9000,
        http(page(behind()))[:900],
    ],
    ids=["another server", "no HTTP", "nothing", "garbage", "broken off"],
)
def test_what_is_no_such_page_tells_nothing(said: bytes) -> None:
    with serving(lambda client, _: client.sendall(said)) as port:
        assert ask_debug_pages("127.0.0.1", port, LIMIT)[0] == {}


@pytest.mark.parametrize("way", ["hangs", "slow"])
def test_a_server_that_does_not_come_to_an_end_costs_the_limit(way: str) -> None:
    def answer(client: Client, _: str) -> None:
        if way == "hangs":
            time.sleep(2.0)
        for byte in http(page(behind())):
            client.sendall(bytes([byte]))
            time.sleep(0.01)

    with serving(answer) as port:
        began = time.monotonic()
        assert ask_debug_pages("127.0.0.1", port, 0.5)[0] == {}
        assert time.monotonic() - began < 10.0


def test_nobody_there_is_no_harm() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert ask_debug_pages("127.0.0.1", port, 1.0) == ({}, {})


# ---- in a job ------------------------------------------------------------------------------------


def standing(port: int, listens: bool = True) -> list[RankFacts]:
    """Ranks in `.item()`; a child of rank 0 has the server's port, as torch starts it."""
    ears = Socket(1, "tcp6", f"[::]:{port}", "", "LISTEN")
    child = replace(ITEM, pid=500, sockets=(ears,) if listens else ())
    ranks = [rank(n, ITEM, replace(ITEM, at=103.0)) for n in range(WORLD)]
    return [replace(ranks[0], children=((child, child),)), *ranks[1:]]


def test_the_server_is_found_by_the_port_that_one_of_the_job_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recorder_queries, "PORT", 4711)
    assert find_debug_server(standing(4711)) == ("localhost", 4711)
    assert find_debug_server(standing(4711, listens=False)) is None
    assert find_debug_server(standing(4712)) is None


SERVES = Thread(
    501,
    "Thread-1 (_serve)",
    active=False,
    owns_gil=False,
    frames=(
        Frame("poll", "/usr/lib/python3.12/selectors.py", 415),
        Frame("_serve", "/v/site-packages/torch/distributed/debug/_frontend.py", 425),
    ),
)


@pytest.mark.parametrize(("frames", "found"), [((SERVES,), ("localhost", 4712)), ((), None)])
def test_at_a_port_of_the_jobs_choice_it_is_known_by_its_frames(
    frames: tuple[Thread, ...], found: tuple[str, int] | None
) -> None:
    """Forked from rank 0 it has the store's socket as well, which is not to be asked."""
    store = Socket(1, "tcp6", "[::]:29500", "", "LISTEN")
    own = Socket(2, "tcp6", "[::]:4712", "", "LISTEN")
    child = replace(ITEM, pid=500, sockets=(store, own), threads=frames)
    first = rank(0, ITEM, replace(ITEM, at=103.0, sockets=(store,)))
    assert find_debug_server([replace(first, children=((child, child),))]) == found


def test_what_the_server_has_not_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {**behind(2), 3: "TimeoutError: "}
    with serving(pages([], {"/fr_trace_nccl_json": page(answers)})) as port:
        monkeypatch.setattr(recorder_queries, "PORT", port)
        _, notes = asyncio.run(add_recorder_dumps(standing(port), LIMIT))
    (note,) = notes
    assert f"localhost:{port} has no dump of rank 3: " in note
    monkeypatch.setattr(recorder_queries, "PORT", port)  # nobody is there any more
    _, notes = asyncio.run(add_recorder_dumps(standing(port), LIMIT))
    assert "gave no dump of torch's flight recorder" in notes[0]


def test_who_never_entered_what_the_others_wait_in_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(pages([], {"/fr_trace_nccl_json": page(behind(2))})) as port:
        monkeypatch.setattr(recorder_queries, "PORT", port)
        ranks, _ = asyncio.run(add_recorder_dumps(standing(port), LIMIT))
    assert judge_job(job("late", WORLD), ranks).ranks.culprit == (2,)


@pytest.mark.parametrize("lost", [(0, 1), (1, 3), (0, 3), (2,), (2, 3)])
def test_with_half_of_the_workers_silent_nobody_else_is_named(
    lost: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {**behind(2), **dict.fromkeys(lost, "TimeoutError: ")}
    with serving(pages([], {"/fr_trace_nccl_json": page(answers)})) as port:
        monkeypatch.setattr(recorder_queries, "PORT", port)
        ranks, _ = asyncio.run(add_recorder_dumps(standing(port), LIMIT))
    named = judge_job(job("late", WORLD), ranks).ranks.culprit
    assert 2 in named or len(named) != 1
