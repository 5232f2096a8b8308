"""What NCCL itself prints: warnings, versions, and communicators that are being made.

There is no GPU here. The lines have the form of src/debug.cc, init.cc and misc/socket.cc of NCCL
2.5 to 2.30, and of NVIDIA/nccl#1612, NVIDIA/nccl-tests#166 and NVIDIA/nccl#1936; hosts, processes
and addresses are made up.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hangbisect.dumps.contents import Contents
from hangbisect.dumps.files import read_data
from hangbisect.dumps.merge import judge_dumps, merge_dumps
from hangbisect.evidence.gpus.nccl_lines import read_nccl_lines

from .watchdog_texts import signalled, text, timed_out

REFUSED = (
    "n0{node}:41{rank}:42{rank} [{rank}] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect "
    "to 10.0.0.1<45763> failed : Connection refused"
)
STAMPED = "[2026-11-20 13:06:53] " + REFUSED
VERSION = "n01:41{rank}:41{rank} [{rank}] NCCL INFO NCCL version {version}+cuda12.4"
MAKING = (
    "n01:41{rank}:42{rank} [{rank}] NCCL INFO ncclCommInitRankConfig comm 0x5654 rank {rank} "
    "nranks {world} cudaDev {rank} nvmlDev {rank} busId e4000 commId 0xdf33 - Init {state}"
)


def notes(files: Mapping[str, bytes]) -> tuple[str, ...]:
    found = Contents()
    for name, data in files.items():
        found += read_data(data, name)
    return merge_dumps(found).notes


def logs(*of_each: list[str]) -> dict[str, bytes]:
    return {f"rank{n}.log": text(lines) for n, lines in enumerate(of_each)}


def test_a_warning_is_told_with_its_rank() -> None:
    assert notes(logs([REFUSED.format(node=1, rank=0)])) == (
        "NCCL warns on rank 0: socketStartConnect: Connect to 10.0.0.1<45763> failed : Connection "
        "refused",
    )


def test_and_with_its_time_where_the_line_has_one() -> None:
    assert notes(logs([STAMPED.format(node=1, rank=0)])) == (
        "NCCL warns on rank 0 at 13:06:53: socketStartConnect: Connect to 10.0.0.1<45763> failed : "
        "Connection refused",
    )


def test_the_same_on_several_ranks_is_one_sentence() -> None:
    (note,) = notes(logs(*([REFUSED.format(node=1, rank=n)] * 20 for n in range(4))))
    assert note.startswith("NCCL warns on ranks 0-3: socketStartConnect")


def test_whose_a_line_is_in_a_log_of_all_ranks_its_process_tells() -> None:
    """NCCL names host and process, and the rank only where it makes a communicator."""
    lines = [MAKING.format(rank=n, world=2, state="START") for n in (0, 1)]
    found = notes({"slurm.out": text([*lines, REFUSED.format(node=1, rank=1)])})
    assert any(note.startswith("NCCL warns on rank 1: ") for note in found)


def test_whose_nothing_tells_goes_by_its_process() -> None:
    (note,) = notes({"slurm.out": text([REFUSED.format(node=1, rank=1)])})
    assert note.startswith("NCCL warns on process 411 of n01: socketStartConnect")


def test_versions_that_differ_are_told() -> None:
    ranks = [[VERSION.format(rank=n, version="2.20.5" if n == 3 else "2.21.5")] for n in range(4)]
    assert notes(logs(*ranks)) == ("NCCL versions differ: 2.20.5 on rank 3, 2.21.5 on ranks 0-2",)
    assert notes(logs(*ranks[:3])) == ()


def test_who_has_not_begun_to_make_a_communicator() -> None:
    """Fifteen ranks of which one never came: NVIDIA/nccl#2385 has such logs."""
    ranks = [
        [MAKING.format(rank=n, world=15, state="START")]
        if n != 9
        else [VERSION.format(rank=9, version=2)]
        for n in range(15)
    ]
    assert notes(logs(*ranks)) == (
        "NCCL communicator 0xdf33 of 15 is being made by ranks 0-8,10-14: no word of it from "
        "rank 9",
    )


@pytest.mark.parametrize("last", ["COMPLETE", "START"])
def test_a_communicator_that_some_have_made(last: str) -> None:
    ranks = [
        [MAKING.format(rank=n, world=4, state=s) for s in ("START", "COMPLETE" if n else last)]
        for n in range(4)
    ]
    made = notes(logs(*ranks))
    assert made == (
        ()
        if last == "COMPLETE"
        else ("NCCL communicator 0xdf33 of 4 is being made by rank 0, and done on ranks 1-3",)
    )


def test_nobody_is_blamed_for_a_warning() -> None:
    """Who cannot reach another is no more to blame than who is not reached."""
    found = Contents()
    for name, data in logs(*([REFUSED.format(node=1, rank=n)] for n in range(3))).items():
        found += read_data(data, name)
    assert merge_dumps(found).ranks == ()


def test_beside_the_watchdogs_text_both_are_used() -> None:
    files = logs(
        *([REFUSED.format(node=1, rank=n), *timed_out(n, 41, 41)] for n in range(3)),
        signalled(3, 40, 40),
    )
    found = Contents()
    for name, data in files.items():
        found += read_data(data, name)
    merged = merge_dumps(found)
    assert judge_dumps(merged).ranks.culprit == (3,)
    assert any(note.startswith("NCCL warns on ranks 0-2") for note in merged.notes)


def test_what_is_only_information_is_passed_over() -> None:
    lines = ["n01:41:42 [0] NCCL INFO Channel 00/04 :    0   1", "NCCL WARN", "a NCCL WARN b"]
    assert read_nccl_lines(lines) == ()


def test_secrets_in_a_warning_are_masked() -> None:
    line = "n01:41:42 [0] misc/x.cc:1 NCCL WARN http_proxy=http://ada:hunter2@10.0.0.9:3128 failed"
    (note,) = notes(logs([line]))
    assert "hunter2" not in note
