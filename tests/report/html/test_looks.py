"""The looks side by side, and what differs between ranks."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.process_facts import Look, Sample
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Ranks, Verdict
from hangbisect.report.html.page_parts import ProcessTable, difference_tables, looks_part
from hangbisect.report.html.templates import ShownTexts
from hangbisect.report.run_reader.rank_differences import RankDifference

from .made_up import plain

VERDICT = Verdict("hang", "startup", (), 0, 2, None, Ranks(culprit=(5,), stuck=(5, 7)))


def look(at: float, cpu: float, state: str = "S") -> Look:
    sample = Sample(at, 100, 1, state, cpu, 2048, 0)
    return Look(at, 100, 1, "python", (), 50.0, state, "py-spy", sample=sample)


def rank(number: int, *looks: Look, moved: str = "") -> RankFacts:
    return RankFacts(number, pid=100, looks=looks or (look(0, 1),), moved=moved)


def processes(*ranks: RankFacts) -> tuple[ProcessTable, ...]:
    return looks_part(ranks, VERDICT, ShownTexts(plain())).processes


def test_a_column_a_look_and_what_changed_is_marked() -> None:
    (one,) = processes(rank(5, look(10.0, 1.0), look(11.5, 1.0), look(13.0, 2.5)))
    assert one.heads == ("+0.0 s, py-spy", "+1.5 s, py-spy", "+3.0 s, py-spy")
    (cpu,) = [aspect for aspect in one.aspects if aspect.name == "CPU time"]
    assert [(cell.words, cell.changed) for cell in cpu.cells] == [
        ("1.00 s", False),
        ("1.00 s", False),
        ("2.50 s", True),
    ]
    assert one.moved == "3 looks in 3.0 s: nothing moved"


def test_what_moved_is_told_and_what_nothing_is_known_of_is_left_out() -> None:
    (one,) = processes(rank(5, look(0, 1), look(1, 1), moved="41 MiB/s from a file"))
    assert one.moved == "2 looks in 1.0 s: 41 MiB/s from a file"
    assert [aspect.name for aspect in one.aspects] == ["State", "CPU time", "Read", "Written"]


def test_who_is_at_fault_comes_first_then_who_is_stuck_then_the_others() -> None:
    child = (replace(look(0, 1), name="wandb-core", pid=200),)
    found = processes(rank(0), replace(rank(5), children=(child,)), rank(7))
    assert [one.who for one in found] == [
        "rank 5, pid 100",
        "wandb-core, child of rank 5, pid 200",
        "rank 7, pid 100",
        "rank 0, pid 100",
    ]


def test_of_many_ranks_those_that_are_not_shown_are_named() -> None:
    found = looks_part([rank(r) for r in range(1024)], VERDICT, ShownTexts(plain()))
    assert len(found.processes) == 12
    assert found.left_out == "Those at ranks 12-1023 are in evidence.json."


def test_of_many_looks_the_first_and_the_last_are_shown() -> None:
    (one,) = processes(rank(5, *(look(float(n), 1) for n in range(20))))
    assert [head.partition(" ")[0] for head in one.heads] == [
        *("+0.0", "+1.0", "+2.0", "+3.0", "+16.0", "+17.0", "+18.0", "+19.0")
    ]
    assert one.moved.startswith("20 looks in 19.0 s")


def test_what_differs_is_told_by_topic_with_the_ranks_of_each_value() -> None:
    values = {"ib0": tuple(range(8, 1024)), "": tuple(range(8))}
    hosts = {f"n{n}": (n,) for n in range(20)}
    found = difference_tables(
        [RankDifference("host", "host", hosts), RankDifference("environment", "NCCL_IB", values)],
        ShownTexts(plain()),
    )
    assert [topic.title for topic in found] == ["Hosts", "Environment"]
    (variable,) = found[1].things
    assert [(one.words, one.ranks, one.is_set) for one in variable.values] == [
        ("ib0", "8-1023", True),
        ("not set", "0-7", False),
    ]
    assert (len(found[0].things[0].values), found[0].things[0].more) == (12, 8)
