"""Made-up runs to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hangbisect.base.events import decode
from hangbisect.base.verdict_facts import Cause, CheckpointPlace, Ranks, Seconds, Verdict
from hangbisect.report.run_reader.run import RecordedRun
from hangbisect.report.run_reader.run_files import JobEnvironment

STEPS = {3: "logs_directory", 4: "tokenizer", 9: "wandb_logger"}
VERDICT = Verdict(
    outcome="ok",
    pipeline="startup",
    command=("torchrun", "--nproc_per_node=2", "-m", "bisect"),
    attempt=0,
    world_size=2,
    checkpoint=None,
    ranks=Ranks(),
    seconds=Seconds(20.0),
)
HANG = replace(
    VERDICT,
    outcome="hang",
    checkpoint=CheckpointPlace(9, "wandb_logger", "WandbLogger ready"),
    ranks=Ranks(culprit=(1,), stuck=(1,)),
    call="wandb.init",
    cause=Cause("service-silent", "the server never answers", "", "fits"),
)
VERSIONS = {"hangbisect": "0.1.0", "torch": "2.13.0"}


def start(
    took: Mapping[int, tuple[float | None, ...]],
    *,
    variables: Mapping[str, str] = {},
    of_rank_1: Mapping[str, str] = {},
    versions: Mapping[str, str] = VERSIONS,
    imports: Mapping[int, float] = {},
    verdict: Verdict = VERDICT,
    host: str = "n01",
    folder: str = "run",
    began: float = 100.0,
) -> RecordedRun:
    """Return a run: `took` are seconds by step and rank, None where it had not ended; `imports` the
    seconds of `import torch` in a step.
    """
    ranks = range(max(len(each) for each in took.values()))
    events = [event for rank in ranks for event in _of(rank, took, imports, host, began)]
    events.append(_told("table", began, numbers={name: n for n, name in STEPS.items()}))
    last = max(float(event["at"]) for event in events)
    events.append(_told("verdict", last + 30.0, outcome=verdict.outcome, ends=True))
    both = {"MASTER_PORT": "41000", "TORCHELASTIC_RUN_ID": f"run-{began}", **variables}
    environment = JobEnvironment(
        versions={**versions, "python": "3.11.7"},
        host=host,
        processors=8,
        kernel="6.18",
        ranks={
            str(rank): {**both, "RANK": str(rank), **(of_rank_1 if rank == 1 else {})}
            for rank in ranks
        },
    )
    return RecordedRun(
        Path(folder),
        verdict=replace(verdict, world_size=len(ranks)),
        events=tuple(map(decode, sorted(events, key=lambda event: float(event["at"])))),
        environment=environment,
    )


def _of(
    rank: int,
    took: Mapping[int, tuple[float | None, ...]],
    imports: Mapping[int, float],
    host: str,
    began: float,
) -> list[dict[str, Any]]:
    hello = {"began": began, "pid": 4710 + rank, "host": host, "python": "3.11.7"}
    events = [_told("hello", began, rank=rank, **hello)]
    at = began
    for number, each in took.items():
        seconds = each[rank]
        events.append(_told("enter", at, rank=rank, n=number))
        if number in imports:
            done = at + imports[number]
            fields = {"module": "torch", "seconds": imports[number]}
            events.append(_told("import", done, rank=rank, **fields))
        if seconds is None:
            break
        at += seconds
        events.append(_told("reached", at, rank=rank, n=number))
    return events


def _told(t: str, at: float, **fields: Any) -> dict[str, Any]:
    return {"t": t, "at": at, "wall": 1_795_338_000.0 + at, **fields}


def moved_by(run: RecordedRun, seconds: float) -> RecordedRun:
    """Return the same run, so much later."""
    events = [event.replace(wall=(event.wall or 0.0) + seconds) for event in run.events]
    return replace(run, events=tuple(events))
