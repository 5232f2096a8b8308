"""NCCL's RAS service, asked over its socket: a server that speaks the protocol of NCCL 2.24 to
2.30, and one that lies, hangs, is slow or breaks off.

There is no NCCL here. The commands and the answers have the form that src/ras/client_support.cc of
NCCL v2.24.3-1, v2.26.2-1, v2.29.2-1 and v2.30.7-1 gives them, and its page
troubleshooting/ras; JSON is known since 2.28.7. Hosts, processes and counts are made up.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.evidence.gpus import nccl_ras
from hangbisect.evidence.gpus.nccl_ras import (
    NoGreeting,
    NoRasAnswer,
    ask_service,
    describe_status,
    find_address,
    find_moving,
    find_service,
    find_unheard_ranks,
    is_of_others,
    make_ras_logs,
    name_processes,
)
from hangbisect.evidence.gpus.ras_answers import RasAnswer, parse_ras_status
from hypothesis import given
from hypothesis import strategies as st

FUNCTIONS = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
LIMIT = 20.0


def json_status(
    counts: Sequence[dict[str, int] | None], name: str = "0x1f", dead: bool = False, **more: Any
) -> dict[str, Any]:
    """One communicator; of a rank without counts there is no answer."""
    ranks = [
        {
            "rank": rank,
            "host": "10.0.0.1",
            "pid": 100 + rank,
            "cuda_dev": rank,
            "nvml_dev": rank,
            "status": {
                "init_state": 0,
                "async_error": 0,
                "finalize_called": False,
                "destroy_flag": False,
                "abort_flag": False,
            },
            "collective_counts": dict.fromkeys(FUNCTIONS, 0) | found,
        }
        for rank, found in enumerate(counts)
        if found is not None
    ]
    missing = [
        {
            "rank": rank,
            "host": "10.0.0.1",
            "pid": 100 + rank,
            "status": {"unresponsive": True, "considered_dead": dead},
        }
        for rank, found in enumerate(counts)
        if found is None
    ]
    one = {"hash": name, "size": len(counts), "ranks": ranks, "missing_ranks": missing} | more
    return {
        "nccl_version": "2.30.7",
        "communicators_count": 1,
        "communicators": [one],
        "ras": {"collection_time_sec": 0.1, "timeouts_count": 0},
    }


def one_behind(who: int = 3, world: int = 8) -> dict[str, Any]:
    return json_status([{"Broadcast": 2, "AllReduce": 41 - (n == who)} for n in range(world)])


SUMMARY = """\
NCCL version {version} compiled with CUDA 12.6
CUDA runtime version 12060, driver version 12060

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1         8         8         8   RUNNING  {errors}

Errors
======

{error}
Warnings
========

{warning}
"""
BEHIND_24 = SUMMARY.format(
    version="2.24.3+cuda12.6",
    errors="MISMATCH",
    error="",
    warning="""\
#0-0 (27a079b828ff1a75) MISMATCH
  Communicator ranks have different collective operation counts
  7 ranks have launched up to operation 43
  Rank 3 has launched up to operation 42 -- GPU 3 managed by process 103 on node 10.0.0.1
""",
)
BEHIND_26 = BEHIND_24.replace("2.24.3", "2.26.2").replace(
    "different collective", "different AllReduce"
)
DEAD_26 = SUMMARY.format(
    version="2.26.2+cuda12.6",
    errors="INCOMPLETE",
    error="""\
DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 105 on node 10.0.0.1 managing GPU 5

#0-0 (27a079b828ff1a75) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 5 -- GPU 5 managed by process 105 on node 10.0.0.1
""",
    warning="",
)


# ---- the protocol --------------------------------------------------------------------------------

Client = socket.socket


@contextmanager
def serving(answer: Callable[[Client], None]) -> Iterator[tuple[str, int]]:
    """A server that gives its first client to `answer`, and is gone at the end."""
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(LIMIT)

    def serve() -> None:
        try:
            client, _ = server.accept()
        except OSError:
            return
        with client:
            client.settimeout(LIMIT)
            with suppress(OSError):
                answer(client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield server.getsockname()[:2]
    finally:
        server.close()
        thread.join(LIMIT)


def speaks(
    status: str, heard: list[str], *, knows_json: bool, pause: float = 0.0, part: int = 1 << 20
) -> Callable[[Client], None]:
    """RAS as it is: one answer a line, and after a status the end."""
    known_format = "set format json" if knows_json else ""

    def answer(client: Client) -> None:
        with client.makefile("r") as lines:
            for line in lines:
                command = line.rstrip("\r\n").lower()
                heard.append(command)
                if command.startswith("client protocol "):
                    client.sendall(b"SERVER PROTOCOL 2\n")
                elif command.startswith("timeout ") or (known_format and command == known_format):
                    client.sendall(b"OK\n")
                elif command in ("status", "verbose status"):
                    data = status.encode()
                    for at in range(0, len(data), part):
                        client.sendall(data[at : at + part])
                        time.sleep(pause)
                    return
                else:
                    client.sendall(f"ERROR: Unknown command {command}\n".encode())

    return answer


def test_json_is_asked_for_where_it_is_known() -> None:
    heard: list[str] = []
    with serving(speaks(json.dumps(one_behind()), heard, knows_json=True)) as address:
        found = parse_ras_status(ask_service(*address, LIMIT))
    assert heard[0] == "client protocol 2"
    assert heard[-2:] == ["set format json", "verbose status"]
    assert found is not None
    assert found.version == "2.30.7"
    assert [len(one.ranks) for one in found.communicators] == [8]


def test_an_older_one_answers_in_words() -> None:
    """2.24 to 2.28.3 know no SET FORMAT: they say so, and go on."""
    heard: list[str] = []
    with serving(speaks(BEHIND_24, heard, knows_json=False)) as address:
        found = parse_ras_status(ask_service(*address, LIMIT))
    assert heard[-1] == "verbose status"
    assert found is not None
    (one,) = found.communicators
    assert (one.name, one.size) == ("0x27a079b828ff1a75", 8)


def test_an_answer_in_small_parts_is_read_to_its_end() -> None:
    text = json.dumps(one_behind())
    with serving(speaks(text, [], knows_json=True, pause=0.001, part=100)) as address:
        assert parse_ras_status(ask_service(*address, LIMIT)) is not None


def test_one_that_never_comes_to_an_end_costs_the_limit() -> None:
    slow = speaks("x" * 10_000, [], knows_json=True, pause=0.05, part=1)
    with serving(slow) as address, pytest.raises(TimeoutError):
        ask_service(*address, 0.5)


def test_one_that_says_nothing_costs_the_limit() -> None:
    with serving(lambda client: time.sleep(1.0)) as address, pytest.raises(NoGreeting):
        ask_service(*address, 0.3)


def test_one_that_says_nothing_after_its_greeting_costs_the_limit() -> None:
    def answer(client: Client) -> None:
        client.sendall(b"SERVER PROTOCOL 2\n")
        time.sleep(1.0)

    with serving(answer) as address, pytest.raises(TimeoutError) as raised:
        ask_service(*address, 0.3)
    assert not isinstance(raised.value, NoGreeting)


@pytest.mark.parametrize(
    "said",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SERVER PROTOCOL 2", b"", b"\n", b"\xff" * 9000],
    ids=["a web server", "half a line", "nothing", "an empty line", "garbage without a line"],
)
def test_another_server_is_none(said: bytes) -> None:
    none = (NoRasAnswer, ConnectionResetError)  # it is reset if it closes with our line unread
    with serving(lambda client: client.sendall(said)) as address, pytest.raises(none):
        ask_service(*address, LIMIT)


def test_one_that_breaks_off_is_no_answer() -> None:
    """JSON that is cut off, and a status in words without its last part."""
    half = json.dumps(one_behind())[:700]
    with serving(speaks(half, [], knows_json=True)) as address:
        assert parse_ras_status(ask_service(*address, LIMIT)) is None
    assert parse_ras_status(BEHIND_24[: BEHIND_24.index("Warnings")].encode()) is None


def test_more_than_a_status_is_not_read() -> None:
    endless = speaks("x" * (40 << 20), [], knows_json=True)
    with serving(endless) as address, pytest.raises(NoRasAnswer):
        ask_service(*address, LIMIT)


def test_nobody_there_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        ask_service("127.0.0.1", port, 1.0)


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("", ("localhost", 28028)),
        ("10.0.0.7:28029", ("10.0.0.7", 28029)),
        ("[fe80::1]:7", ("fe80::1", 7)),
        ("nonsense", ("localhost", 28028)),
        ("host:99999999", ("localhost", 28028)),
    ],
)
def test_where_it_is_asked(said: str, address: tuple[str, int]) -> None:
    assert find_address({"NCCL_RAS_ADDR": said} if said else {}) == address


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("10.255.0.7:28029", ("10.255.0.7", 28029, None)),
        ("localhost:28029", None),
        ("127.0.0.1:28029", None),
        ("0.0.0.0:28029", None),
        ("10.0.0.5:28029", None),  # our own, and none of the ranks listens there
        ("", None),
    ],
)
def test_a_service_on_another_machine_is_the_one_that_the_job_names(
    said: str, found: tuple[str, int, None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nccl_ras, "read_local_addresses", lambda pid: {"10.0.0.5"})
    assert find_service([RankFacts(0, environment={"NCCL_RAS_ADDR": said})]) == found


# ---- what its answer says ------------------------------------------------------------------------


def ranks(world: int = 8) -> list[RankFacts]:
    return [RankFacts(n, pid=100 + n, host="n01") for n in range(world)]


def parsed(status: dict[str, Any] | str) -> RasAnswer:
    found = parse_ras_status((status if isinstance(status, str) else json.dumps(status)).encode())
    assert found is not None
    return found


@pytest.mark.parametrize("status", [one_behind(), BEHIND_24, BEHIND_26], ids=["json", "24", "26"])
def test_who_has_begun_fewer_operations(status: dict[str, Any] | str) -> None:
    logs = make_ras_logs(parsed(status), ranks())
    totals = {rank: next(iter(log.sequence.values())) for rank, log in logs.items()}
    assert set(totals) == set(range(8))
    assert {rank for rank, total in totals.items() if total == min(totals.values())} == {3}
    assert all(log.source == "ras" for log in logs.values())


def test_the_function_is_told_as_the_job_calls_it() -> None:
    logs = make_ras_logs(parsed(one_behind()), ranks())
    assert [(one.kind, one.number, one.done) for one in logs[0].operations] == [
        ("all_reduce", 43, None)
    ]
    assert logs[3].operations == ()


def test_where_all_have_begun_as_many_nothing_is_counted() -> None:
    assert make_ras_logs(parsed(json_status([{"AllReduce": 9}] * 8)), ranks()) == {}


def test_a_communicator_of_another_job_is_passed_over() -> None:
    others = [RankFacts(n, pid=4711 + n) for n in range(8)]
    assert make_ras_logs(parsed(one_behind()), others) == {}
    assert describe_status(parsed(one_behind()), [4711]) == ()


def test_a_part_of_the_job_goes_by_its_processes() -> None:
    """A communicator of ranks 4 to 7: its rank 1 is rank 5."""
    status = json_status([{"AllReduce": 9 - (n == 1)} for n in range(4)])
    for one in status["communicators"][0]["ranks"]:
        one["pid"] += 4
    logs = make_ras_logs(parsed(status), ranks())
    assert set(logs) == {4, 5, 6, 7}
    assert logs[5].operations == ()
    assert set(logs[5].groups["0x1f"]) == {4, 5, 6, 7}


def test_two_nodes_may_use_one_pid() -> None:
    """Of which node a process is nobody can say: nothing is counted of it."""
    status = json_status([{"AllReduce": 9 - (n == 1)} for n in range(4)])
    for one in status["communicators"][0]["ranks"][2:]:
        one["host"], one["pid"] = "10.0.0.2", one["pid"] - 2
    assert make_ras_logs(parsed(status), ranks(2)) == {}


def of_two_pods() -> RasAnswer:
    """Two nodes, with the same numbers of processes on each, as in containers."""
    status = json_status([{"AllReduce": 41 - (n == 5)} for n in range(8)])
    for one in status["communicators"][0]["ranks"]:
        on_second = one["rank"] >= 4
        one["host"], one["pid"] = f"10.0.0.{1 + on_second}", 100 + one["rank"] % 4
    return parsed(status)


def test_of_two_nodes_with_one_pid_the_ones_here_are_known_by_our_addresses() -> None:
    here = [RankFacts(n, pid=100 + n % 4, host="n02") for n in range(4, 8)]
    logs = make_ras_logs(of_two_pods(), here, world=8, here=["10.0.0.2", "127.0.0.1"])
    totals = {rank: next(iter(log.sequence.values())) for rank, log in logs.items()}
    assert totals == {4: 41, 5: 40, 6: 41, 7: 41}


def test_a_process_elsewhere_with_the_number_of_one_here_is_not_that() -> None:
    status = one_behind(5)
    here = [RankFacts(n, pid=102 + n, host="n02") for n in range(4)]
    for one in status["communicators"][0]["ranks"][4:]:
        one["host"] = "10.0.0.2"
    logs = make_ras_logs(parsed(status), here, world=8, here=["10.0.0.2"])
    assert set(logs) == {2, 3}  # processes 104 and 105


def test_numbers_of_a_container_are_ours_for_processes_of_this_machine_alone() -> None:
    named = name_processes(of_two_pods(), {100: 9100, 101: 9101}, ["10.0.0.2"])
    (one,) = named.communicators
    assert [rank.pid for rank in one.ranks] == [100, 101, 102, 103, 9100, 9101, 102, 103]


def test_an_answer_without_a_process_of_ours_is_anothers() -> None:
    assert is_of_others(parsed(one_behind()), [7])
    assert not is_of_others(parsed(one_behind()), [7, 103])
    assert not is_of_others(parsed(json_status([], name="") | {"communicators": []}), [7])
    assert not is_of_others(parsed(BEHIND_26), [7])  # words name a few processes alone


def test_what_is_missing_dead_or_in_error_is_said() -> None:
    status = json_status([{"AllReduce": 9}] * 3 + [None], dead=True)
    status["communicators"][0]["ranks"][1]["status"]["async_error"] = 6
    assert describe_status(parsed(status), [100]) == (
        "NCCL RAS: communicator 0x1f of 4 has no answer from rank 3 (pid 103 on 10.0.0.1, "
        "considered dead)",
        "NCCL RAS: communicator 0x1f of 4 is in error on rank 1 (remote process error)",
    )


def test_who_is_dead_is_said_of_an_older_one_too() -> None:
    assert describe_status(parsed(DEAD_26), [100, 105]) == (
        "NCCL RAS: communicator 0x27a079b828ff1a75 of 8 has no answer from rank 5 (pid 105 on "
        "10.0.0.1, considered dead)",
    )


def silent_status(heading: str, process: str, rank: str) -> str:
    """An answer of NCCL 2.24 to 2.28 of which one process is missing: its page troubleshooting/ras
    and NVIDIA/nccl#1762 have such.
    """
    return f"""NCCL version 2.26.2 compiled with CUDA 12.6

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

{heading}
  {process}

#0-0 (cf264af53edbe986) INCOMPLETE
  Missing communicator data from 1 rank
  {rank}

Warnings
========

TIMEOUT
  Encountered 2 communication timeouts while gathering communicator data
"""


UNANSWERED = "INCOMPLETE\n  Missing communicator data from 1 job process"
GONE = "DEAD\n  1 job process is considered dead (unreachable via the RAS network)"
PROCESS = "Process 3487 on node 10.0.0.3 managing GPU 5"
WITH_PROCESS = "Rank 21 -- GPU 5 managed by process 3487 on node 10.0.0.3"


def test_a_process_that_has_not_answered_yet_is_not_dead() -> None:
    said = silent_status(UNANSWERED, PROCESS, WITH_PROCESS)
    (line,) = describe_status(parsed(said))
    assert line.endswith("of 32 has no answer from rank 21 (pid 3487 on 10.0.0.3)")
    said = silent_status(GONE, PROCESS, WITH_PROCESS)
    (line,) = describe_status(parsed(said))
    assert line.endswith("from rank 21 (pid 3487 on 10.0.0.3, considered dead)")


def test_the_only_process_that_is_missing_has_the_only_missing_rank() -> None:
    said = silent_status(GONE, PROCESS, "The missing rank: 21")
    (line,) = describe_status(parsed(said))
    assert line.endswith("from rank 21 (pid 3487 on 10.0.0.3, considered dead)")
    said = silent_status(
        UNANSWERED, f"{PROCESS}\n  {PROCESS.replace('3487', '99')}", "The missing rank: 21"
    )
    (line,) = describe_status(parsed(said))
    assert line.endswith("from rank 21 (process unknown)")


@pytest.mark.parametrize("status", ["json", "words"])
def test_who_gave_no_answer_is_a_rank_of_the_job(status: str) -> None:
    counts = [{"AllReduce": 9} if n != 5 else None for n in range(8)]
    found = find_unheard_ranks(
        parsed(json_status(counts, dead=True) if status == "json" else DEAD_26), ranks()
    )
    assert set(found) == {5}
    assert found[5].endswith("of 8 has no answer from it (considered dead)")


def test_a_part_of_the_job_that_gave_no_answer_goes_by_its_processes() -> None:
    """A communicator of ranks 4 to 7, of which its rank 1 is silent."""
    status = json_status([{"AllReduce": 9} if n != 1 else None for n in range(4)])
    one = status["communicators"][0]
    for entry in (*one["ranks"], *one["missing_ranks"]):
        entry["pid"] += 4
    assert set(find_unheard_ranks(parsed(status), ranks())) == {5}
    assert find_unheard_ranks(parsed(status), [RankFacts(n, pid=4711 + n) for n in range(8)]) == {}


def test_of_two_nodes_with_one_pid_nobody_is_the_silent_one() -> None:
    status = json_status([{"AllReduce": 9}, {"AllReduce": 9}, None])
    one = status["communicators"][0]
    one["missing_ranks"][0] |= {"host": "10.0.0.2", "pid": 101}
    assert find_unheard_ranks(parsed(status), ranks(2)) == {}


def test_where_most_are_silent_nobody_is_the_one() -> None:
    """Then it is the network, or the service itself."""
    status = json_status([{"AllReduce": 9}, None, None, None])
    assert find_unheard_ranks(parsed(status), ranks(4)) == {}


def test_who_is_behind_is_said() -> None:
    assert describe_status(parsed(one_behind()), [100]) == (
        "NCCL RAS: communicator 0x1f of 8 has begun 41 AllReduce, but rank 3: 40",
    )


def test_counts_that_grow_meanwhile_are_no_standstill() -> None:
    before, after = parsed(one_behind(3)), parsed(one_behind(2))
    assert find_moving(before, before) == frozenset()
    assert find_moving(before, after) == {"0x1f"}
    assert make_ras_logs(after, ranks(), find_moving(before, after)) == {}


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["communicators", "ranks", "rank", "hash", "size", "pid"]), inner
            )
        ),
    )
)
def test_whatever_it_answers_nothing_is_raised(answer: Any) -> None:
    whole = one_behind()
    for status in (
        answer,
        {"communicators": [answer]},
        {"communicators": [whole["communicators"][0] | {"ranks": answer}]},
        {"communicators": [whole["communicators"][0] | {"missing_ranks": answer}]},
    ):
        found = parse_ras_status(json.dumps(status).encode())
        if found is not None:
            describe_status(found, [100])
            make_ras_logs(found, ranks())
            find_unheard_ranks(found, ranks())


@given(st.integers(0, len(BEHIND_24)), st.integers(0, len(BEHIND_24)), st.text(max_size=20))
def test_nor_for_garbled_words(start: int, end: int, between: str) -> None:
    found = parse_ras_status((BEHIND_24[:start] + between + BEHIND_24[end:]).encode())
    if found is not None:
        describe_status(found, [100])
        make_ras_logs(found, ranks())
