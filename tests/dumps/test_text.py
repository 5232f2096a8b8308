"""Texts with several processes: where one ends, and whose it is."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from hangbisect.dumps.files import read_data
from hangbisect.dumps.merge import judge_dumps, merge_dumps
from hangbisect.report.merged_dumps import merged_lines

HERE = Path(__file__).parent / "real_dumps"
SPY = (
    'Process {pid}: python train.py\n\nThread {pid} (idle): "MainThread"\n    f (train.py:{line})\n'
)
FAULT = (
    "Thread 0x1 (most recent call first):\n"
    '  File "/usr/lib/python3.11/threading.py", line 327 in wait\n\n'
    "Current thread 0x2 (most recent call first):\n"
    '  File "/home/ada/train.py", line {line} in f\n'
    '  File "/home/ada/train.py", line 20 in <module>\n'
)


def ranks(text: str, name: str = "all.txt") -> dict[int | None, int]:
    """Return the line of the innermost frame of each rank."""
    merged = merge_dumps(read_data(text.encode(), name))
    mains = [(one.number, one.facts.looks[-1].main) for one in merged.ranks]
    return {number: main.frames[0].line for number, main in mains if main is not None}


def test_a_title_over_each_stack_says_whose_it_is() -> None:
    text = "=== rank 3 on n07 ===\n" + SPY.format(pid=5, line=7)
    text += "[Rank: 1]\n" + SPY.format(pid=6, line=8)
    assert ranks(text) == {1: 8, 3: 7}


def test_a_local_called_rank_is_no_title() -> None:
    text = SPY.format(pid=5, line=7) + "        Locals:\n            rank: 4\n"
    assert ranks(text + SPY.format(pid=6, line=8)) == {4: 7, None: 8}


def test_launchers_prefixes_say_whose_it_is_even_where_lines_mix() -> None:
    a, b = FAULT.format(line=7).splitlines(), FAULT.format(line=8).splitlines()
    mixed = [line for pair in zip(a, b, strict=True) for line in pair]
    prefixed = [f"{n % 2}: {line}" for n, line in enumerate(mixed)]
    assert ranks("\n".join(prefixed)) == {0: 7, 1: 8}
    timed = [f"2026-11-22T05:20:31.1234567Z [rank{n % 2}]: {x}" for n, x in enumerate(mixed)]
    assert ranks("\n".join(timed)) == {0: 7, 1: 8}


def test_where_a_tool_ran_is_no_rank() -> None:
    spy = SPY.format(pid=5, line=7).splitlines()
    assert ranks("\n".join(f"1: {line}" for line in spy)) == {None: 7}


def test_dumps_of_several_processes_after_one_another_are_told_apart() -> None:
    other = FAULT.format(line=8).replace("0x2", "0x5")
    assert len(merge_dumps(read_data((FAULT.format(line=7) + other).encode(), "x")).ranks) == 2
    pystack = "".join((HERE / f"pystack-rank{n}.txt").read_text() + "\n" for n in (0, 1))
    assert sorted(
        one.facts.pid or 0 for one in merge_dumps(read_data(pystack.encode(), "x")).ranks
    ) == [
        15582,
        15583,
    ]


def test_dumps_among_other_output_are_found() -> None:
    text = "epoch 1: loss 2.3\n" + FAULT.format(line=7) + "Traceback (most recent call last):\n"
    assert ranks(text, "logs/rank_5/stderr.log") == {5: 7}


@pytest.mark.parametrize("saved", [gzip.compress, lambda text: text.decode().encode("utf-16")])
def test_a_packed_file_and_one_of_a_windows_shell_are_read(saved: Callable[[bytes], bytes]) -> None:
    text = SPY.format(pid=5, line=7).replace("\n", "\r\n")
    merged = merge_dumps(read_data(saved(text.encode()), "rank3.txt"))
    assert [(one.number, one.facts.pid) for one in merged.ranks] == [(3, 5)]


def test_what_names_no_pid_is_of_the_process_beside_it_in_a_ranks_own_file() -> None:
    merged = merge_dumps(
        read_data((SPY.format(pid=5, line=7) + FAULT.format(line=7)).encode(), "r1")
    )
    assert [(one.number, one.facts.pid) for one in merged.ranks] == [(1, 5)]
    assert len(merged.ranks[0].facts.looks) == 2


def test_the_thread_that_a_signal_came_to_need_not_have_the_gil() -> None:
    """Faulthandler calls it the current one."""
    merged = merge_dumps(read_data(FAULT.format(line=7).encode(), "rank0.txt"))
    verdict = judge_dumps(merged)
    assert verdict.waits_for is None or verdict.waits_for.kind != "gil"
    assert verdict.cause is None or verdict.cause.id != "gil-held"


def test_in_a_container_the_main_thread_is_known_by_its_name() -> None:
    worker = 'Thread 9 (active): "helper"\n    g (train.py:3)\n'
    main = 'Thread 1 (active): "MainThread"\n    f (train.py:7)\n'
    assert ranks(f"Process 5: python train.py\n\n{worker}{main}", "rank0.txt") == {0: 7}


def test_our_own_stacks_are_read_again() -> None:
    text = "rank 2 on n01 pid 44 python\nstate: S\n\nThread 44 (idle): MainThread\n    f (x.py:3)\n"
    assert ranks(text) == {2: 3}
    head = "rank 2 pid 44 python\ncommand: python x.py\ntime: 1 s\nseen by: py-spy\nstate: S\n\n"
    assert ranks(head + SPY.format(pid=44, line=4) + SPY.format(pid=45, line=9)) == {2: 4, None: 9}


def test_a_number_that_two_processes_claim_is_that_of_none() -> None:
    text = "rank 0\n" + SPY.format(pid=5, line=7) + "rank 0\n" + SPY.format(pid=6, line=8)
    merged = merge_dumps(read_data(text.encode(), "x"))
    assert [one.number for one in merged.ranks] == [None, None]
    assert merged.notes[0].startswith("rank 0 is claimed by 2 processes: x:2 (pid 5), x:7 (pid 6)")


def test_a_rank_that_ended_by_a_signal_is_a_crash_and_no_hang() -> None:
    text = "Fatal Python error: Segmentation fault\n\n" + FAULT.format(line=7)
    found = read_data(text.encode(), "rank1.log") + read_data(
        FAULT.format(line=8).encode(), "rank0"
    )
    merged = merge_dumps(found)
    verdict = judge_dumps(merged)
    assert (verdict.outcome, verdict.ranks.culprit) == ("crash", (1,))
    lines = merged_lines(merged, verdict, "")
    assert "culprit   rank 1 ended by Fatal Python error: Segmentation fault" in lines


def test_a_rank_that_a_watchdog_aborted_had_hung() -> None:
    text = "Fatal Python error: Aborted\n\n" + FAULT.format(line=7)
    assert judge_dumps(merge_dumps(read_data(text.encode(), "rank0.log"))).outcome == "hang"


def test_dumps_of_one_process_are_looks_at_it_whatever_its_rank() -> None:
    timed = "Timeout (0:00:04)!\n" + FAULT.format(line=7)
    merged = merge_dumps(
        read_data((timed + timed.replace("line 7", "line 8")).encode(), "stderr.log")
    )
    (one,) = merged.ranks
    assert (one.number, len(one.facts.looks), bool(one.facts.moved)) == (None, 2, True)


def test_dumps_of_an_earlier_start_of_a_rank_do_not_count() -> None:
    first, second = FAULT.format(line=7), FAULT.format(line=8).replace("0x2", "0x9")
    merged = merge_dumps(read_data((first + second).encode(), "rank0.log"))
    (one,) = merged.ranks
    assert (one.number, len(one.facts.looks), one.facts.moved) == (0, 1, "")


def test_ranks_that_all_make_a_group_wait_for_somebody_who_is_not_seen() -> None:
    frame = "    init_process_group (torch/distributed/distributed_c10d.py:9)"
    text = SPY.replace("    f (", f"{frame}\n    f (")
    both = "rank 0\n" + text.format(pid=5, line=7) + "rank 1\n" + text.format(pid=6, line=7)
    merged = merge_dumps(read_data(both.encode(), "x"))
    verdict = judge_dumps(merged)
    assert (verdict.ranks.culprit, verdict.ranks.waiting, verdict.cause) == ((), (0, 1), None)
    assert "whoever they all wait for" in "\n".join(merged_lines(merged, verdict, ""))
