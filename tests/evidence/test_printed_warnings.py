"""What libraries print of ranks that wait: whose it is, when it was said, and how it is told."""

from __future__ import annotations

from datetime import datetime

import pytest
from hangbisect.evidence.gpus.watchdog_messages import find_time_of_year
from hangbisect.evidence.printed_warnings import (
    PrintedWarning,
    assign_warnings,
    describe_printed_warnings,
    read_printed_warnings,
    select_recent,
)
from hypothesis import given
from hypothesis import strategies as st

# gensyn-ai/rl-swarm#197, with the prefix that torch puts in front since 2.1.
C10D = (
    "[rank3]:[W427 01:04:16.149509694 socket.cpp:752] [c10d] The client socket has failed to "
    "connect to [::ffff:198.18.0.1]:3254 (errno: 110 - Connection timed out)."
)
# vllm-project/vllm-ascend#3717, in the colours of a terminal.
VLLM = (
    "\x1b[1;36m(EngineCore_DP0 pid=323240)\x1b[0;0m INFO 12-09 11:25:53 [shm_broadcast.py:466] No "
    "available shared memory broadcast block found in 60 seconds. This typically happens when some "
    "processes are hanging or doing some time-consuming work (e.g. compilation)."
)
# sgl-project/sglang#3752.
SGLANG = "[2025-03-09 00:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)"
# dynamic_rendezvous.py, with the head of torch's own logging.
TORCHRUN = (
    "W0309 00:57:15.412000 4711 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1346] "
    "The node 'n02_4711_0' has failed to send a keep-alive heartbeat to the rendezvous 'job' due "
    "to an error of type RendezvousConnectionError."
)
# ProcessGroupNCCL.cpp, HeartbeatMonitor::runLoop.
STUCK = (
    "[rank5]:[E309 00:57:15.000000001 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) "
    "Rank 5] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in "
    "monitoring enqueued collectives."
)
# NCCL's manual of 2.31 and later, RAS Diagnostics.
DIAGNOSTICS = (
    "node042:12345 NCCL DIAG [INFO] NCCL environment: NCCL_DEBUG=WARN on rank(s) {4,5,6,7}"
)
FINE = "node042:12345 NCCL DIAG [OK]   ECC: no uncorrected volatile errors across 8 ranks"


def of_year(month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> float:
    return find_time_of_year(datetime(2026, month, day, hour, minute, second).timestamp())


@pytest.mark.parametrize(
    ("line", "who", "begins", "rank", "pid", "clock"),
    [
        (C10D, "c10d", "The client socket has failed to connect to [", 3, None, "01:04:16"),
        (VLLM, "vLLM", "No available shared memory broadcast", None, 323240, "11:25:53"),
        (SGLANG, "SGLang", "Watchdog timeout (self.watchdog_timeout=300)", None, None, "00:57:15"),
        (TORCHRUN, "torchrun", "The node 'n02_4711_0' has failed to send", None, None, "00:57:15"),
        (STUCK, "torch", "ProcessGroupNCCL's watchdog got stuck for 480 s", 5, None, "00:57:15"),
        (DIAGNOSTICS, "NCCL's diagnostics", "NCCL environment: NCCL_DEBUG=", None, 12345, ""),
    ],
)
def test_who_says_what_and_of_whom(
    line: str, who: str, begins: str, rank: int | None, pid: int | None, clock: str
) -> None:
    (one,) = read_printed_warnings([FINE, line, "epoch 3: loss 0.2"], with_untimed=True)
    assert (one.who, one.rank, one.pid, one.clock) == (who, rank, pid, clock)
    assert one.text.startswith(begins)


def test_what_an_earlier_job_wrote_to_the_same_file_is_left_out() -> None:
    lines = [C10D, VLLM, SGLANG, TORCHRUN, STUCK, DIAGNOSTICS]
    since = of_year(4, 1)
    assert [one.who for one in read_printed_warnings(lines, since)] == ["c10d"]
    later = [one.who for one in read_printed_warnings(lines, of_year(4, 28), with_untimed=True)]
    assert later == ["NCCL's diagnostics"]  # without a time, in a file that was made for the job


def test_ranks_are_those_of_the_line_of_its_process_or_of_the_file() -> None:
    found = read_printed_warnings([C10D, VLLM, SGLANG])
    ranks = [rank for _, rank in assign_warnings(found, [0, 3], {323240: 0}, None)]
    assert ranks == [3, 0, None]
    ranks = [rank for _, rank in assign_warnings(found, [0, 1], {}, 1)]
    assert ranks == [1, 1]  # rank 3 is not of this machine


def test_what_is_said_again_is_told_once_with_the_last_time() -> None:
    again = VLLM.replace("11:25:53", "11:28:53")
    found = [(one, 0) for one in read_printed_warnings([VLLM, again])]
    assert describe_printed_warnings(found) == [
        "vLLM says on rank 0 (2 times, last at 11:28:53): No available shared memory broadcast "
        "block found in 60 seconds"
    ]
    (told,) = describe_printed_warnings([(read_printed_warnings([SGLANG])[0], None)])
    assert told == "SGLang says (at 00:57:15): Watchdog timeout (self.watchdog_timeout=300)"


def test_who_could_not_connect_long_ago_is_connected_since_then() -> None:
    (one,) = read_printed_warnings([C10D])
    assert select_recent([(one, 3)], of_year(4, 27, 1, 5)) == [(one, 3)]
    assert select_recent([(one, 3)], of_year(4, 27, 1, 30)) == []
    (other,) = read_printed_warnings([VLLM])
    assert select_recent([(other, 0)], of_year(12, 9, 20)) == [(other, 0)]


def test_many_different_ones_are_counted() -> None:
    many = [(PrintedWarning("c10d", f"{n}"), None) for n in range(12)]
    assert describe_printed_warnings(many)[-1] == "libraries say 4 more things"


@given(st.lists(st.text()))
def test_any_text_is_taken_for_a_log(lines: list[str]) -> None:
    hints = ("[c10d] The client socket has failed", "broadcast block", "NCCL DIAG [INFO] ", "W99 ")
    read_printed_warnings([hint + line for line in lines for hint in hints], 0.0, True)
