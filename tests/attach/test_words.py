"""What is said of a job that was looked at."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hangbisect.attach.answer import (
    describe_ranks,
    describe_state,
    hang_lines,
    moving_lines,
)
from hangbisect.attach.judgement import Judgement, judge_nodes
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.base.identity import UnknownRank
from hangbisect.base.process_facts import Frame, Kernel, Look, Syscall, Thread
from hangbisect.base.rank_facts import RankFacts
from hangbisect.dumps.facts_in_stack import place_of_call

COMMAND = ("torchrun", "--nproc_per_node=2", "train.py")
SITE = "/venv/lib/python3.11/site-packages/"
SLEEP = Frame("load", "/home/ada/train.py", 8)
BARRIER = Frame("barrier", SITE + "torch/distributed/distributed_c10d.py", 5000)
FETCH = Frame("fetch", "/home/ada/train.py", 30)


def look(pid: int, frame: Frame, call: str, at: float = 100.0) -> Look:
    thread = Thread(pid, "MainThread", False, False, (frame,))
    kernel = Kernel(pid, "python", "S", "", Syscall(0, call, (0,) * 6))
    return Look(at, pid, 1, "python", COMMAND, 50.0, "S", "py-spy", (thread,), (kernel,))


def rank(number: int, frame: Frame, call: str, **more: Any) -> RankFacts:
    pid = 100 + number
    looks = tuple(look(pid, frame, call, at) for at in (100.0, 101.0, 102.1))
    return RankFacts(number, number, pid, "n01", looks=looks, **more)


def node(*ranks: RankFacts, **more: Any) -> NodeFacts:
    made: dict[str, Any] = {
        **{"host": "n01", "command": COMMAND, "world": len(ranks), "whole": True},
        **{"age": 90.0, "at": 102.0, "span": 2.1, "ranks": ranks},
    }
    return NodeFacts(**(made | more))


def hung(**more: Any) -> Judgement:
    ranks = (rank(0, BARRIER, "futex"), rank(1, SLEEP, "clock_nanosleep"))
    return judge_nodes([node(*ranks, **more)], now=102.0)


def test_the_rank_that_others_wait_for_is_named_and_the_job_left_as_it_is() -> None:
    found = hung()
    assert found.verdict.outcome == "silent"  # a sleep ends, and nobody knows of more
    assert found.verdict.ranks.culprit == (1,)
    assert found.verdict.ranks.waiting == (0,)
    lines = hang_lines(found, "/runs/x", describe_state(99, None, False), None)
    assert lines[0] == "SILENT  90 s after start, 2 ranks"
    assert lines[1].startswith("culprit   rank 1 n01 pid 101")
    assert lines[-2] == "job       still running, untouched; end it: hangbisect attach 99 --kill"
    assert lines[-1] == "report    /runs/x/report.md: paste it into an issue"


def test_ranks_at_fault_in_other_places_are_shown_there() -> None:
    ranks = (rank(0, SLEEP, "recvfrom"), rank(1, SLEEP, "recvfrom"), rank(2, FETCH, "recvfrom"))
    found = judge_nodes([node(*ranks)], now=102.0)
    assert found.verdict.ranks.culprit == (0, 1, 2)
    lines = hang_lines(found, "/runs/x", "", None)
    at = next(at for at, line in enumerate(lines) if line.startswith("stack "))
    assert lines[at + 1] == "          rank 2: train.py:30 fetch"
    assert sum("rank 2: " in line for line in lines) == 1


def test_nothing_is_offered_to_be_proved_where_no_command_starts_the_job() -> None:
    words = [hang_lines(hung(), "/runs/x", "", None, again) for again in (True, False)]
    shown = [any(line.startswith("prove it") for line in lines) for lines in words]
    assert shown == [True, False]


def test_the_kernel_of_a_notebook_is_never_offered_to_be_ended() -> None:
    said = describe_state(99, 50, False)
    assert "kill" not in said
    assert "kernel (50) is left alone" in said


def unknown(pid: int, frame: Frame, call: str, **more: Any) -> RankFacts:
    return replace(rank(pid - 100, frame, call, **more), rank=UnknownRank("n01", pid), local_rank=0)


def test_a_rank_whose_number_is_not_known_is_a_question_mark() -> None:
    ranks = (rank(0, BARRIER, "futex"), unknown(101, SLEEP, "clock_nanosleep"))
    found = judge_nodes([node(*ranks)], now=102.0)
    assert found.verdict.ranks.culprit == (UnknownRank("n01", 101),)
    lines = hang_lines(found, "", "", None)
    assert lines[1].startswith("culprit   rank ? n01 pid 101")
    assert not any("rank 1" in line for line in lines)
    assert found.verdict.notes[0] == "which ranks the processes 101 are could not be read"
    assert [edge.target for edge in found.verdict.chain][:2] == [
        "collective barrier",
        "rank ? (pid 101 on n01)",
    ]


def test_ranks_whose_numbers_are_not_known_are_not_missing() -> None:
    ranks = (rank(0, BARRIER, "futex"), unknown(101, BARRIER, "futex"))
    found = judge_nodes([node(*ranks, world=2)], now=102.0)
    assert found.verdict.ranks.never_started == ()
    assert found.verdict.world_size == 2
    assert "which never came" not in "\n".join(hang_lines(found, "", "", None))


def test_what_moves_names_ranks_without_a_number_last() -> None:
    ranks = (
        rank(0, BARRIER, "futex"),
        rank(1, SLEEP, "read", moved="reads 40 MiB/s"),
        *(unknown(pid, BARRIER, "futex") for pid in (102, 103)),
    )
    found = judge_nodes([node(*ranks, moving=(1,))], now=102.0)
    assert moving_lines(found) == ["moving: rank 1 reads 40 MiB/s; ranks 0,? wait"]


def test_a_job_that_moves_says_what_moves() -> None:
    ranks = (rank(0, BARRIER, "futex"), rank(1, SLEEP, "read", moved="reads 40 MiB/s"))
    found = judge_nodes([node(*ranks, moving=(1,))], now=102.0)
    assert found.verdict.outcome == "ok"
    assert found.verdict.notes == ("moving: rank 1 reads 40 MiB/s",)
    assert moving_lines(found) == ["moving: rank 1 reads 40 MiB/s; rank 0 waits"]


def test_who_stands_still_while_another_moves_is_said_and_not_blamed() -> None:
    ranks = (rank(0, SLEEP, "clock_nanosleep"), rank(1, SLEEP, "read", moved="reads 40 MiB/s"))
    found = judge_nodes([node(*ranks, moving=(1,), quiet=(0,))], now=102.0)
    assert found.verdict.ranks.culprit == ()
    assert moving_lines(found)[1:] == [
        "        rank 0 has not moved meanwhile: train.py:8 load",
    ]


def test_what_computes_for_a_short_time_may_be_at_work() -> None:
    ranks = (rank(0, BARRIER, "futex"), rank(1, SLEEP, "", busy=True))
    found = judge_nodes([node(*ranks, busy=(1,), span=10.0)], now=102.0)
    assert (found.verdict.outcome, found.verdict.ranks.culprit) == ("slow", (1,))
    assert "at work, or a loop without end" in hang_lines(found, "", "", None)[1]
    found = judge_nodes([node(*ranks, busy=(1,), span=61.0)], now=102.0)
    assert found.verdict.outcome == "silent"


def test_a_rank_that_has_left_is_to_blame_where_another_waits_for_it() -> None:
    gone = RankFacts(1, 1, None, "n01", reached=1, alive=False, left=True, status=0)
    found = judge_nodes([node(rank(0, BARRIER, "futex"), gone)], now=102.0)
    assert (found.verdict.ranks.culprit, found.verdict.ranks.dead) == ((1,), (1,))
    found = judge_nodes([node(rank(0, SLEEP, "clock_nanosleep"), gone)], now=102.0)
    assert found.verdict.ranks.culprit == (0,)


def test_a_launcher_without_ranks_is_checkpoint_0() -> None:
    found = judge_nodes([node(rank(0, SLEEP, "clock_nanosleep"), launcher=100)], now=102.0)
    verdict = found.verdict
    assert verdict.checkpoint is not None
    assert (verdict.checkpoint.name, verdict.component) == ("launcher", "launcher")
    assert (verdict.world_size, verdict.ranks.culprit) == (0, ())


def test_nodes_are_judged_together() -> None:
    first = node(rank(0, BARRIER, "futex"), world=2, whole=False)
    second = node(rank(1, SLEEP, "clock_nanosleep"), world=2, whole=False, host="n02")
    assert judge_nodes([first, second], now=102.0).verdict.ranks.culprit == (1,)


@pytest.mark.parametrize(
    ("numbers", "world", "said"),
    [
        ((0, 1), 2, "2 ranks"),
        ((0, 1), 8, "ranks 0-1 of 8"),
        ((0, None), 2, "2 ranks (?)"),
        ((), 0, "no rank yet"),
    ],
)
def test_which_ranks_are_here(numbers: tuple[int | None, ...], world: int, said: str) -> None:
    assert describe_ranks(numbers, world) == said


@pytest.mark.parametrize(
    ("call", "name", "phase"),
    [
        ("wandb.init", "wandb_logger", None),
        ("torch.distributed.init_process_group", "training", "process_group"),
        ("transformers.AutoTokenizer.from_pretrained", "tokenizer", None),
        ("transformers.AutoModelForCausalLM.from_pretrained", "model", None),
        ("torch.nn.parallel.DistributedDataParallel", "training", "wrap"),
        ("pytorch_lightning.Trainer", "trainer", None),
    ],
)
def test_a_call_of_a_step_tells_its_checkpoint(call: str, name: str, phase: str | None) -> None:
    place = place_of_call(call)
    assert place is not None
    assert (place.name, place.phase) == (name, phase)


@pytest.mark.parametrize("call", [None, "", "time.sleep", "wandb.finish", "train.load"])
def test_any_other_call_tells_none(call: str | None) -> None:
    assert place_of_call(call) is None
