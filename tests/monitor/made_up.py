"""Ranks as the monitor knows them, made up: short spellings of what they say."""

from __future__ import annotations

from typing import Any

from hangbisect.base.checkpoints import Checkpoint, Phase
from hangbisect.base.events import decode
from hangbisect.base.process_facts import Look, Sample
from hangbisect.base.rank_facts import RankFacts
from hangbisect.base.rank_state import NodeRanks, RankState
from hangbisect.base.typed_messages import Message

PHASES = (
    Phase("process_group", "strategy", 120.0),
    Phase("first_step", "fit", 60.0),
    Phase("steady", "fit", None),
)
TABLE = (
    Checkpoint("script", "Script started", "interpreter", 30.0, number=1),
    Checkpoint("arguments", "Args parsed", "arguments", 30.0, number=2),
    Checkpoint("wandb_logger", "WandbLogger ready", "wandb", 60.0, number=3),
    Checkpoint("training", "Training finished", "fit", 600.0, phases=PHASES, number=4),
)


def hello(rank: int, world: int = 2, at: float = 0.0, **fields: Any) -> Message:
    """What a rank says first."""
    made = {"t": "hello", "rank": rank, "local_rank": rank, "world_size": world, "attempt": 0}
    made |= {"local_world_size": world, "pid": 100 + rank, "host": "n01", "began": at, "at": at}
    return made | fields


def say(members: NodeRanks, rank: int, message: Message) -> None:
    """A rank says something, as it comes to its monitor."""
    members.apply(decode({**message, "rank": rank}))


def told(*said: tuple[int, str, float, dict[str, Any]], world: int = 2) -> NodeRanks:
    """Return the members once all have said hello at 0 and then what is `said`:
    (rank, kind, at, fields).
    """
    members = NodeRanks(TABLE)
    for rank in range(world):
        say(members, rank, hello(rank, world))
    for rank, kind, at, fields in said:
        say(members, rank, {"t": kind, "at": at, **fields})
    return members


def at_step(number: int, at: float, world: int = 2) -> NodeRanks:
    """Return members that all entered a step at one time."""
    walked: list[tuple[int, str, float, dict[str, Any]]] = []
    for rank in range(world):
        if number > 1:
            walked.append((rank, "reached", at, {"n": number - 1}))
        walked.append((rank, "enter", at, {"n": number}))
    return told(*walked, world=world)


def member(rank: int = 0, **fields: Any) -> RankState:
    """A rank of two."""
    made = RankState(rank=rank, local_rank=rank, pid=100 + rank, host="n01", began=0.0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def facts(rank: int, **fields: Any) -> RankFacts:
    """A living rank in step 3 that stands still, unless `fields` say otherwise."""
    plain: dict[str, Any] = {
        **{"rank": rank, "local_rank": rank, "pid": 100 + rank, "host": "n01", "reached": 2},
        **{"held": False, "phase": None, "entered": 0.0, "last_line": "", "last_line_at": None},
        **{"announced": "", "alive": True, "left": False, "status": None, "error": ""},
        "finished": False,
    }
    return RankFacts(**(plain | fields))


def sample(at: float, *, pid: int = 1, cpu: float = 0.0, read: int = 0, started: int = 5) -> Sample:
    """A cheap reading of a process."""
    return Sample(at=at, pid=pid, started=started, state="S", cpu=cpu, read=read, written=0)


def look(at: float, pid: int = 100) -> Look:
    """A look that found nothing."""
    return Look(at=at, pid=pid, ppid=1, name="python", command=(), age=1.0, state="S", rung="proc")
