"""Facts to judge, made up: short spellings of what evidence looks like."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.checkpoints import Checkpoint, Phase
from hangbisect.base.process_facts import Descriptor, Frame, Kernel, Look, Socket, Syscall, Thread
from hangbisect.base.rank_facts import Ended, JobFacts, RankFacts

PACKAGE = "/site-packages/hangbisect"
LIB = "/venv/lib/python3.11/site-packages"
STD = "/usr/lib/python3.11"

_ROWS = (
    *("launcher", "interpreter", "arguments", "filesystem", "hub", "model", "lightning", "data"),
    *("accelerator", "wandb", "callbacks", "trainer"),
)
_PHASES = (
    Phase("process_group", "strategy", 60),
    Phase("setup", "data", 60),
    Phase("first_batch", "data", 60),
    Phase("first_step", "fit", 60),
)
TABLE = (
    *(Checkpoint(c, c.title(), c, 30, number=n) for n, c in enumerate(_ROWS)),
    Checkpoint("training", "Training finished", "fit", 600, phases=_PHASES, number=12),
)


def stack(*frames: str) -> tuple[Frame, ...]:
    """Frames, innermost first, from "Condition.wait threading.py:327"; a file below torch/ and
    the like is a library's, "STD/x.py" the standard library's, any other the user's.
    """
    made = []
    for text in frames:
        name, _, place = text.partition(" ")
        file, _, line = place.rpartition(":")
        file = file.replace("STD", STD).replace("SP", LIB).replace("OURS", PACKAGE)
        made.append(Frame(name, file if file[0] in "/<" else f"/home/ada/{file}", int(line)))
    return tuple(made)


def look(
    *frames: str,
    pid: int = 100,
    call: str = "futex",
    state: str = "S",
    wchan: str = "",
    descriptors: tuple[Descriptor, ...] = (),
    args: tuple[int, ...] = (0, 0, 0, 0, 0, 0),
    path: str | None = None,
    gil: bool = False,
    **more: Any,
) -> Look:
    """One look at a process whose main thread has `frames` and is in system call `call`."""
    syscall = Syscall(0, call, args, path=path, descriptors=descriptors) if call else None
    thread = Thread(pid, "MainThread", False, gil, stack(*frames))
    made = Look(
        at=100.0,
        pid=pid,
        ppid=more.pop("ppid", 1),
        name=more.pop("name", "python"),
        command=("python", "train.py"),
        age=50.0,
        state=state,
        rung=more.pop("rung", "py-spy"),
        threads=(thread,) if frames else (),
        kernel=(Kernel(pid, "python", state, wchan, syscall),),
    )
    return replace(made, **more)


def rank(number: int, *looks: Look, reached: int = 8, **more: Any) -> RankFacts:
    """A living rank with pid 100 + number that finished checkpoint `reached`."""
    pid = 100 + number
    made = RankFacts(
        rank=number,
        local_rank=number,
        pid=pid,
        host="n01",
        reached=reached,
        held=False,
        phase=None,
        entered=60.0,
        last_line="About to call wandb.init...",
        last_line_at=60.0,
        announced="",
        alive=True,
        left=False,
        status=None,
        error="",
        finished=False,
        looks=tuple(replace(one, pid=pid, **_thread_of(one, pid)) for one in looks),
    )
    return replace(made, **more)


def _thread_of(one: Look, pid: int) -> dict[str, Any]:
    threads = [replace(t, os_id=pid) if t.name == "MainThread" else t for t in one.threads]
    kernel = [replace(k, tid=pid) for k in one.kernel]
    return {"threads": tuple(threads), "kernel": tuple(kernel)}


def held(number: int, reached: int = 9) -> RankFacts:
    """A rank that waits in our own barrier."""
    return rank(
        number, look("hold OURS/rank/link.py:9", call="recvfrom"), reached=reached, held=True
    )


def gone(number: int, status: int | None, error: str = "", **more: Any) -> RankFacts:
    """A rank that left early."""
    return rank(number, alive=False, left=True, status=status, error=error, **more)


def job(ended: Ended = "late", world: int = 2, **more: Any) -> JobFacts:
    """A job whose clock ran out, all of whose ranks are on this node."""
    made = JobFacts(
        ended=ended,
        pipeline="startup",
        command=("torchrun", "--nproc_per_node=2", "-m", "bisect"),
        attempt=0,
        world_size=world,
        local_ranks=tuple(range(world)),
        table=TABLE,
        now=120.0,
        started=20.0,
        package=PACKAGE,
    )
    return replace(made, **more)


def silent_peer(peer: str = "10.0.0.1:443", state: str = "ESTABLISHED", **more: Any) -> Descriptor:
    """A descriptor of a connection to `peer`."""
    socket = Socket(7, "tcp", local="10.0.0.2:5", peer=peer, state=state, **more)
    return Descriptor(3, "socket", "socket:[7]", socket=socket)


ALL_REDUCE = look(
    "all_reduce SP/torch/distributed/distributed_c10d.py:3252",
    "_exception_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:83",
    "Trainer.fit SP/pytorch_lightning/trainer/trainer.py:584",
    "training OURS/pipelines/training_step.py:10",
)
GROUP = look(
    "_new_process_group_helper SP/torch/distributed/distributed_c10d.py:2169",
    "init_process_group SP/torch/distributed/distributed_c10d.py:1899",
    "_time_logger.<locals>.wrapper SP/torch/distributed/c10d_logger.py:97",
    "training OURS/pipelines/training_step.py:10",
    call="poll",
    descriptors=(silent_peer("127.0.0.1:29500"),),
)
WANDB = look(
    "Condition.wait STD/threading.py:327",
    "Future.result STD/concurrent/futures/_base.py:451",
    "AsyncioManager.run SP/wandb/sdk/lib/asyncio_manager.py:145",
    "wait_with_progress SP/wandb/sdk/mailbox/wait_with_progress.py:24",
    "_WandbInit.init SP/wandb/sdk/wandb_init.py:948",
    "init SP/wandb/sdk/wandb_init.py:1536",
    "WandbLogger.experiment SP/pytorch_lightning/loggers/wandb.py:410",
    "wandb_logger OURS/pipelines/startup.py:30",
    "walk OURS/rank/walk.py:80",
    "<module> /usr/bin/hangbisect:8",
)
SLEEP = look("step train.py:5", "<module> train.py:9", call="clock_nanosleep")
RECV = look(
    "SocketIO.readinto STD/socket.py:706",
    "get SP/requests/api.py:87",
    "tokenizer OURS/pipelines/model_steps.py:7",
    call="recvfrom",
    descriptors=(silent_peer(),),
)


def wandb_core(rank_number: int) -> tuple[Look, ...]:
    """The looks at a rank's wandb-core, which waits for a server."""
    socket = Socket(9, "tcp", "127.0.0.1:5", "127.0.0.1:18080", "ESTABLISHED")
    return (
        look(pid=4899, ppid=100 + rank_number, name="wandb-core", sockets=(socket,), rung="proc"),
    )
