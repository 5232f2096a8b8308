"""What the tests of causes share: a scene from made-up facts, and short spellings of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import Descriptor, Look, Socket
from hangbisect.base.rank_facts import JobFacts, MachineFacts, RankFacts
from hangbisect.base.verdict_facts import Cause
from hangbisect.diagnosis.case import make_case
from hangbisect.diagnosis.causes.catalogue import match_causes
from hangbisect.diagnosis.causes.known_cause import Scene
from hangbisect.diagnosis.snapshot import Snapshot
from hangbisect.diagnosis.verdict import judge_snapshot

from ..made_up import ALL_REDUCE, gone, job, rank

Facts = tuple[JobFacts, Sequence[RankFacts]]
Shows = Mapping[str, Callable[[], Facts]]

TORCHRUN = {
    "GROUP_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "WORLD_SIZE": "2",
}
MAKES_GROUP = (
    "_new_process_group_helper SP/torch/distributed/distributed_c10d.py:2169",
    "init_process_group SP/torch/distributed/distributed_c10d.py:1899",
    "_init_dist_connection SP/lightning_fabric/utilities/distributed.py:283",
    "DDPStrategy.setup_environment SP/pytorch_lightning/strategies/ddp.py:155",
    "Trainer.fit SP/pytorch_lightning/trainer/trainer.py:584",
    "<module> train.py:30",
)
MAKES_STORE = (
    "_create_c10d_store SP/torch/distributed/rendezvous.py:199",
    "_env_rendezvous_handler SP/torch/distributed/rendezvous.py:281",
    "init_process_group SP/torch/distributed/distributed_c10d.py:1860",
    "<module> train.py:12",
)


def scene_of(facts: Facts) -> Scene:
    """Return the scene as a verdict on `facts` makes it."""
    about, ranks = facts
    snapshot = Snapshot(ranks)
    case = make_case(about, snapshot)
    verdict, graph = judge_snapshot(about, snapshot)
    return Scene(case.job, case.ranks, verdict, case.rank_waits, graph)


def causes_of(facts: Facts) -> dict[str, Cause]:
    """Return every cause that made-up facts show, by its id."""
    failed: list[str] = []
    found = {cause.id: cause for cause in match_causes(scene_of(facts), failed)}
    assert failed == []
    return found


def tcp(peer: str, state: str = "ESTABLISHED", inode: int = 71, **more: Any) -> Socket:
    """A connection to `peer`."""
    return Socket(inode, "tcp", local="10.0.0.2:40000", peer=peer, state=state, **more)


def on(socket: Socket, fd: int = 9) -> tuple[Descriptor, ...]:
    """The descriptors of a system call about `socket`."""
    return (Descriptor(fd, "socket", f"socket:[{socket.inode}]", socket=socket),)


def with_native(one: Look, *names: str) -> Look:
    """The same look with native frames of these names, innermost first, on its main thread."""
    main = one.threads[0]
    frames = tuple(
        replace(main.frames[0], name=name, file="/usr/lib/libnative.so", line=0, native=True)
        for name in names
    )
    return replace(one, threads=(replace(main, frames=frames + main.frames), *one.threads[1:]))


def with_locals(one: Look, function: str, **values: object) -> Look:
    """The same look with locals on the frames of `function` on its main thread."""
    main = one.threads[0]
    told = tuple((name, repr(value)) for name, value in values.items())
    frames = tuple(
        replace(frame, locals=told) if frame.name == function else frame for frame in main.frames
    )
    return replace(one, threads=(replace(main, frames=frames), *one.threads[1:]))


def ended(error: str, status: int = 1, **more: Any) -> Facts:
    """A job whose rank 0 failed while rank 1 waited for it."""
    machine = more.pop("machine", MachineFacts())
    crashed = gone(0, status, error, left_at=90.0, **more)
    return job("crash", machine=machine), [crashed, rank(1, ALL_REDUCE)]
