"""trace.json: what the format's document asks of every event, and what a person sees of a hang."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.events import Event, decode
from hangbisect.base.json_codec import to_json
from hangbisect.base.process_facts import Look
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.verdict_facts import Cause, CheckpointPlace, Ranks, Seconds, Verdict
from hangbisect.report.run_reader.run import RecordedRun
from hangbisect.report.run_reader.run_files import Evidence
from hangbisect.report.run_reader.timeline import RankRow, Span
from hangbisect.report.trace import make_trace, slice_events
from hypothesis import given
from hypothesis import strategies as st

WALL = 1_795_338_000.0  # what the machine's clock shows at 0 of its monotonic one
VERDICT = Verdict(
    outcome="hang",
    pipeline="startup",
    command=("torchrun", "train.py"),
    attempt=0,
    world_size=2,
    ranks=Ranks(culprit=(1,), stuck=(1,), waiting=(0,)),
    call="wandb.init",
    cause=Cause("service-silent", "the server never answers", "", "fits"),
    checkpoint=CheckpointPlace(9, "wandb_logger", "WandbLogger ready"),
    seconds=Seconds(70.0, still=20.0),
    versions={"torch": "2.13.0"},
)
LOOK = Look(160.0, 4711, 1, "python", (), 60.0, "S", "py-spy")
EVIDENCE = to_json(Evidence((RankFacts(1, pid=4711, looks=(LOOK,)),)))


def told(t: str, at: float, **fields: Any) -> dict[str, Any]:
    return {"t": t, "at": at, "wall": WALL + at, **fields}


def decoded(events: Iterable[Mapping[str, Any]]) -> tuple[Event, ...]:
    return tuple(map(decode, events))


def of_rank(rank: int) -> list[dict[str, Any]]:
    """Return what a rank tells that comes to checkpoint 9 and imports torch on its way."""
    return [
        told("hello", 100.1, rank=rank, began=100.0, pid=4710 + rank, host="n01"),
        told("enter", 100.2, rank=rank, n=4),
        told("import", 103.0, rank=rank, module="torch", seconds=2.5),
        told("call", 103.1, rank=rank, call="AutoTokenizer.from_pretrained"),
        told("reached", 104.0, rank=rank, n=4),
        told("enter", 104.1, rank=rank, n=9),
        told("pulse", 105.0, rank=rank, step=3),
    ]


def hung(ranks: int = 2) -> RecordedRun:
    events = [event for rank in range(ranks) for event in of_rank(rank)]
    events.append(told("table", 100.0, numbers={"tokenizer": 4, "wandb_logger": 9}))
    events.append(told("overdue", 150.0, rank=1, clock="still", since=149.0))
    events.append(told("said", 150.1, text="Rank 1 stands still"))
    events.append(told("verdict", 170.0, outcome="hang", ends=True))
    events.sort(key=lambda event: float(event["at"]))
    return RecordedRun(Path("run"), verdict=VERDICT, events=decoded(events), evidence=EVIDENCE)


def check(written: Mapping[str, Any]) -> list[str]:
    """Return what is not as "Trace Event Format" (Google, 2016) has it; how deep what is unfinished
    lies is asked by the tests themselves.

    Of the phases that are used: B and E nest on their thread, in the order of their times; an
    instant has a scope; a counter has numbers; metadata names what it names.
    """
    wrong: list[str] = []
    open_slices: Counter[tuple[int, int]] = Counter()
    last: dict[tuple[int, int], int] = {}
    for event in json.loads(json.dumps(written))["traceEvents"]:
        phase, where = event["ph"], (event["pid"], event["tid"])
        if phase == "M":
            expected = "name" if event["name"].endswith("_name") else "sort_index"
            wrong += [f"metadata: {event}"] * (list(event["args"]) != [expected])
            continue
        wrong += [f"no time: {event}"] * (not isinstance(event["ts"], int) or event["ts"] < 0)
        wrong += [f"out of order: {event}"] * (event["ts"] < last.get(where, 0))
        last[where] = event["ts"]
        if phase in "BE":
            open_slices[where] += 1 if phase == "B" else -1
            wrong += [f"ends nothing: {event}"] * (open_slices[where] < 0)
        elif phase == "i":
            wrong += [f"scope: {event}"] * (event.get("s") not in ("g", "p", "t"))
        elif phase == "C":
            wrong += [f"counter: {event}"] * (
                not all(isinstance(value, int | float) for value in event["args"].values())
            )
        else:
            wrong.append(f"phase: {event}")
    return wrong


def unfinished(written: Mapping[str, Any]) -> list[str]:
    """Return the names of the slices that have no end, in order."""
    around: dict[int, list[str]] = {}
    for event in written["traceEvents"]:
        if event["ph"] == "B":
            around.setdefault(event["pid"], []).append(event["name"])
        elif event["ph"] == "E":
            around[event["pid"]].pop()
    return [name for names in around.values() for name in names]


def test_a_hang_is_a_slice_without_an_end_inside_its_step() -> None:
    written = make_trace(hung())
    assert check(written) == []
    assert unfinished(written) == [
        *("9 WandbLogger ready", "waits: for rank 1"),
        *("9 WandbLogger ready", "HANG: wandb.init"),
    ]
    assert written["otherData"]["versions"] == {"torch": "2.13.0"}


def test_ranks_are_processes_and_what_they_did_is_where_it_was() -> None:
    written = make_trace(hung())
    names = {
        event["pid"]: event["args"]["name"]
        for event in written["traceEvents"]
        if event.get("name") == "process_name"
    }
    assert names == {4710: "rank 0 on n01", 4711: "rank 1 on n01", 4712: "the watch"}
    found = {
        (event["ph"], event["pid"], event.get("name")): event for event in written["traceEvents"]
    }
    assert found["B", 4710, "4 Tokenizer loaded"]["ts"] == 200_000
    assert found["B", 4710, "import torch"]["ts"] == 500_000
    assert found["C", 4710, "training step"]["args"] == {"training step": 3}
    assert found["i", 4711, "look"]["ts"] == 60_000_000
    assert found["i", 4712, "hang of rank 1"]["ts"] == 70_000_000
    assert found["i", 4712, "Rank 1 stands still"]["ts"] == 50_100_000


def test_ranks_of_two_machines_with_the_same_pid_stay_two_processes() -> None:
    first = [event for event in hung(ranks=1).events if event.rank != 1]
    other = [{**event, "pid": 4710} for event in of_rank(1)]  # another machine's pid
    run = RecordedRun(
        Path("run"),
        verdict=VERDICT,
        events=tuple(first),
        nodes=(RecordedRun(Path("n"), events=decoded(other)),),
    )
    written = make_trace(run)
    assert check(written) == []
    names = [e["args"]["name"] for e in written["traceEvents"] if e.get("name") == "process_name"]
    assert names == ["rank 0 on n01", "rank 1 on n01", "the watch"]


def test_a_job_that_was_attached_to_has_its_hang_as_well() -> None:
    run = RecordedRun(Path("run"), verdict=VERDICT, evidence=EVIDENCE)
    written = make_trace(run)
    assert check(written) == []
    assert unfinished(written) == ["waits: for others", "HANG: wandb.init"]


@pytest.mark.parametrize(
    "evidence", [None, {}, {"ranks": 3}, {"ranks": [{"rank": 1, "looks": {}}]}]
)
def test_a_run_of_which_little_is_left_has_a_trace(evidence: Any) -> None:
    assert check(make_trace(RecordedRun(Path("run"), evidence=evidence))) == []
    events = (told("look", 1.0), told("call", 2.0, rank=0), told("pulse", 3.0, rank=0, step="x"))
    run = RecordedRun(Path("run"), events=decoded(events), evidence=evidence)
    assert check(make_trace(run)) == []


def test_a_thousand_ranks_are_as_many_processes() -> None:
    written = make_trace(hung(ranks=1024))
    assert check(written) == []
    named = [event for event in written["traceEvents"] if event.get("name") == "process_name"]
    assert len(named) == 1025
    assert len(json.dumps(written, separators=(",", ":"))) < 4_000_000


TIMES = st.floats(0, 100)
SPANS = st.builds(
    lambda start, length, depth: Span(
        "step", "s", "s", 1, start, None if length is None else start + length, depth
    ),
    TIMES,
    st.none() | TIMES,
    st.integers(0, 5),
)


@given(st.lists(SPANS, max_size=20))
def test_whatever_the_spans_are_slices_nest(spans: list[Span]) -> None:
    events = list(slice_events(RankRow(3, "", tuple(spans)), 7))
    assert check({"traceEvents": events}) == []
    assert sum(event["ph"] == "B" for event in events) == len(spans)
