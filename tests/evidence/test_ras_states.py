"""Communicators that are being made or given up, and errors, as NCCL's RAS service tells of them.

Words and JSON have the form of NCCL's page troubleshooting/ras ("Sample Output", "JSON Output") and
of rasClientRunComms, rasClientBreakDownErrors and rasDumpCommsToJSON in src/ras/client_support.cc,
v2.24.3-1 to v2.30.7-1; hosts, processes and counts are made up but those of that page's sample.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hangbisect.base.rank_facts import RankFacts
from hangbisect.evidence.gpus.nccl_ras import describe_status, find_unheard_ranks
from hangbisect.evidence.gpus.ras_answers import Communicator, RasAnswer, parse_ras_status

from .test_nccl_ras import json_status, parsed, ranks

COUNTS = [{"AllReduce": 9}] * 8
TEXT = """\
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
{rows}

Errors
======

{errors}
Warnings
========

{warnings}
"""


def row(group: int, many: int, size: int, status: str, errors: str) -> str:
    """A line of the table: `many` communicators of `size` ranks each."""
    numbers = f"{group:5}  {many:8}  {1:8}  {size:>8}  {size:8}  {many * size:8}"
    return f"{numbers}  {status:>8}  {errors:>6}"


def words(warnings: str = "", errors: str = "", version: str = "2.26.2+cuda12.6") -> str:
    rows = row(0, 1, 8, "RUNNING", "MISMATCH")
    return TEXT.format(version=version, rows=rows, errors=errors, warnings=warnings)


def status_of(**state: Any) -> dict[str, Any]:
    """Eight ranks; `state` is that of rank 5: init_state, async_error, destroy_flag and so on."""
    found = json_status(COUNTS)
    found["communicators"][0]["ranks"][5]["status"] |= state
    return found


def who(number: int) -> str:
    return f"GPU {number} managed by process {100 + number} on node 10.0.0.1"


MAKING = f"""\
#0-0 (1f) MISMATCH
  Communicator ranks have different status
  7 ranks have status RUNNING
  Rank 5 has status INIT -- {who(5)}

"""
MAKING_TWO = f"""\
#0-0 (1f) MISMATCH
  Communicator ranks have different status
  6 ranks have status RUNNING
  2 ranks have status INIT
  Rank 3 -- {who(3)}
  Rank 5 -- {who(5)}

"""
NOT_IN_IT = f"""\
#0-0 (1f) MISMATCH
  Communicator ranks have different status
  7 ranks have status INIT
  Rank 5 has status {{word}} -- {who(5)}

"""


def only(answer: RasAnswer) -> Communicator:
    (one,) = answer.communicators
    return one


@pytest.mark.parametrize("status", [status_of(init_state=7), words(MAKING)], ids=["json", "words"])
def test_the_rank_that_is_still_making_what_the_others_have_is_named(
    status: dict[str, Any] | str,
) -> None:
    answer = parsed(status)
    assert [rank.rank for rank in only(answer).ranks if rank.making] == [5]
    assert describe_status(answer, [100, 105]) == (
        "NCCL RAS: communicator 0x1f of 8 is still being made on rank 5",
    )
    found = find_unheard_ranks(answer, ranks())
    assert found == {5: "communicator 0x1f of 8 is made on the others, and not yet on it"}


def test_two_of_eight_are_still_making_it() -> None:
    answer = parsed(words(MAKING_TWO))
    assert [rank.rank for rank in only(answer).ranks if rank.making] == [3, 5]
    assert set(find_unheard_ranks(answer, ranks())) == {3, 5}


def test_where_all_are_making_it_nobody_is_behind() -> None:
    status = json_status(COUNTS)
    for one in status["communicators"][0]["ranks"]:
        one["status"]["init_state"] = 7
    answer = parsed(status)
    assert find_unheard_ranks(answer, ranks()) == {}
    assert describe_status(answer, [100]) == (
        "NCCL RAS: communicator 0x1f of 8 is still being made on ranks 0-7",
    )


def test_words_do_not_name_a_communicator_that_all_are_making() -> None:
    """The table alone has it, without its hash."""
    rows = f"{row(0, 1, 8, 'RUNNING', 'OK')}\n{row(1, 2, 4, 'INIT', 'OK')}"
    text = TEXT.format(version="2.24.3", rows=rows, errors="", warnings="")
    assert describe_status(parsed(text), [100]) == (
        "NCCL RAS: 2 communicators of 4 are still being made on all their ranks",
    )


def absent_status(making: bool) -> dict[str, Any]:
    status = json_status([*COUNTS[:5], None, *COUNTS[6:]])
    one = status["communicators"][0]
    one["missing_ranks"][0]["status"]["unresponsive"] = False
    for entry in one["ranks"]:
        entry["status"]["init_state"] = 7 if making else 0
    return status


@pytest.mark.parametrize(
    "status",
    [
        absent_status(True),
        words(NOT_IN_IT.format(word="NOCOMM")),
        words(NOT_IN_IT.format(word="UNKNOWN"), version="2.24.3+cuda12.6"),
    ],
    ids=["json", "2.26", "2.24"],
)
def test_who_answers_and_is_not_in_what_the_others_make_has_not_come(
    status: dict[str, Any] | str,
) -> None:
    answer = parsed(status)
    one = only(answer)
    assert [(rank.rank, rank.answered) for rank in one.missing] == [(5, True)]
    assert find_unheard_ranks(answer, ranks()) == {
        5: "communicator 0x1f of 8 is being made by the others, and it is not in it"
    }
    assert (
        "NCCL RAS: communicator 0x1f of 8 does not have rank 5 (pid 105 on 10.0.0.1), which answers"
        in describe_status(answer, [100, 105])
    )


def test_who_has_left_what_the_others_have_made_is_said_and_accused_of_nothing() -> None:
    """It may have destroyed its part: others that do not use it any more are in no wait for it."""
    answer = parsed(absent_status(False))
    assert find_unheard_ranks(answer, ranks()) == {}
    assert describe_status(answer, [100]) == (
        "NCCL RAS: communicator 0x1f of 8 does not have rank 5 (pid 105 on 10.0.0.1), which "
        "answers",
    )


def test_the_sample_of_a_communicator_that_is_given_up() -> None:
    """NCCL's page: of 32 ranks 26 are out of it, four run and two give it up."""
    text = """\
#0-0 (9e17999afaa87dbb) MISMATCH
  Communicator ranks have different status
  26 ranks have status UNKNOWN
  4 ranks have status RUNNING
  Rank 0 -- GPU 0 managed by process 507285 on node 172.16.64.210
  Rank 8 -- GPU 0 managed by process 1598388 on node 172.16.64.212
  Rank 16 -- GPU 0 managed by process 3500071 on node 172.16.64.213
  Rank 24 -- GPU 0 managed by process 2405067 on node 172.16.64.222
  2 ranks have status FINALIZE
  Rank 4 -- GPU 4 managed by process 507289 on node 172.16.64.210
  Rank 20 -- GPU 4 managed by process 3500075 on node 172.16.64.213

"""
    rows = row(0, 1, 32, "FINALIZE", "MISMATCH")
    answer = parsed(TEXT.format(version="2.24.3", rows=rows, errors="", warnings=text))
    one = only(answer)
    assert [rank.rank for rank in one.ranks if rank.leaving] == [4, 20]
    assert len(one.missing) == 26
    assert all(rank.answered for rank in one.missing)
    assert find_unheard_ranks(answer, ranks(32)) == {}
    assert (
        "NCCL RAS: communicator 0x9e17999afaa87dbb of 32 is given up by ranks 4,20"
        in describe_status(answer)
    )


ERRORS = f"""\
#0-0 (1f) ERROR
  Asynchronous error on 1 rank
  Rank 5 reported Remote process error -- {who(5)}

"""
ERRORS_TWO = f"""\
#0-0 (1f) ERROR
  Initialization errors on 2 ranks
  2 ranks reported Unhandled CUDA error
  Rank 3 -- {who(3)}
  Rank 5 -- {who(5)}

"""


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        (status_of(async_error=6), {5: 6}),
        (words(errors=ERRORS), {5: 6}),
        (words(errors=ERRORS_TWO), {3: 1, 5: 1}),
    ],
    ids=["json", "words", "two"],
)
def test_errors_are_those_of_their_ranks(
    status: dict[str, Any] | str, errors: dict[int, int]
) -> None:
    answer = parsed(status)
    assert {rank.rank: rank.error for rank in only(answer).ranks if rank.error} == errors
    said = describe_status(answer, [100, 103, 105])
    assert all(any(f"is in error on rank {rank} (" in one for one in said) for rank in errors)


def test_the_sample_of_nccls_page_in_json() -> None:
    """A rank that was stopped: NCCL does not know yet that it is dead."""
    status = json_status([{"AllReduce": 0}, None])
    one = status["communicators"][0]
    one["ranks"][0] |= {"host": "172.16.64.245", "pid": 1524344}
    one["missing_ranks"][0] |= {"host": "172.16.64.245", "pid": 1524345, "cuda_dev": 1}
    one |= {"secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e", "ranks_count": 1}
    answer = parse_ras_status(json.dumps(status).encode())
    assert answer is not None
    (missing,) = only(answer).missing
    assert (missing.rank, missing.pid, missing.answered, missing.dead) == (1, 1524345, False, False)
    two = [RankFacts(0, pid=1524344), RankFacts(1, pid=1524345)]
    assert find_unheard_ranks(answer, two) == {}  # one of two: it may be the network


@pytest.mark.parametrize("lost", [(0, 1, 2, 3), (4, 6, 7), (5,), (1, 3, 5, 7)])
@pytest.mark.parametrize("status", [status_of(init_state=7), words(MAKING), absent_status(True)])
def test_with_half_of_the_ranks_unseen_nobody_else_is_named(
    status: dict[str, Any] | str, lost: tuple[int, ...]
) -> None:
    there = [facts for facts in ranks() if facts.rank not in lost]
    assert set(find_unheard_ranks(parsed(status), there, world=8)) <= {5}
    if 5 not in lost and not isinstance(status, str):
        assert set(find_unheard_ranks(parsed(status), there, world=8)) == {5}
