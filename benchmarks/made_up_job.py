"""The run folder of a job that nobody ran: as many ranks as one likes, with several stacks.

One rank reads from a server that does not answer, the others wait for it, in pairs of places that
differ as far in as one likes. The verdict and the graph are made from these looks as ever; events
are written as a monitor writes them, with a spread of some percent. For what reads run folders.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from hangbisect.base.checkpoints import STARTUP
from hangbisect.base.json_codec import to_json
from hangbisect.base.process_facts import (
    Descriptor,
    Frame,
    Kernel,
    Look,
    Sample,
    Socket,
    Syscall,
    Thread,
)
from hangbisect.base.rank_facts import JobFacts, RankFacts
from hangbisect.diagnosis.verdict import judge_job_with_graph
from hangbisect.report.run_reader.run_files import make_evidence

LIB = "/opt/venv/lib/python3.11/site-packages"
ZERO, WALL = 100.0, 1_795_000_000.0
NUMBERS = {row.name: row.number for row in STARTUP}
HANGS_AT = NUMBERS["wandb_logger"]
IMPORTS = {
    "tokenizer": ("torch", "transformers"),
    "model": ("transformers.models.llama",),
    "wandb_logger": ("wandb",),
}
TOOK = {  # seconds
    **{"script": 0.1, "arguments": 0.1, "logs_directory": 0.4, "tokenizer": 6.0, "model": 14.0},
    **{"lightning_module": 2.0, "data_module": 0.6, "accelerator": 0.2, "wandb_logger": 4.0},
}
OUTER = (
    *(
        Frame(f"_Loop{n}.advance", f"{LIB}/pytorch_lightning/loops/loop_{n}.py", 100 + n)
        for n in range(18)
    ),
    Frame("main", "/home/ada/train.py", 88),
    Frame("<module>", "/home/ada/train.py", 95),
)
NATIVE = tuple(
    Frame(f"gloo::transport::tcp::Buffer::waitRecv{n}", "libtorch_cpu.so", 0, native=True)
    for n in range(6)
)
COLLECTIVE = (
    Frame("all_reduce", f"{LIB}/torch/distributed/distributed_c10d.py", 3252),
    Frame("wrapper", f"{LIB}/torch/distributed/c10d_logger.py", 83),
)
READING = (
    Frame("SocketIO.readinto", "/usr/lib/python3.11/socket.py", 706),
    Frame("HTTPResponse.begin", "/usr/lib/python3.11/http/client.py", 292),
    Frame("init", f"{LIB}/wandb/sdk/wandb_init.py", 1012),
)


def write(folder: Path, ranks: int, stacks: int = 2, seed: int = 1) -> None:
    """Write the run folder of a job of so many ranks (at least 2), whose main threads stand in
    `stacks` different places.
    """
    random = Random(seed)
    culprit = ranks // 3
    facts = [_rank(number, culprit, stacks) for number in range(ranks)]
    job = JobFacts(
        ended="late",
        pipeline="startup",
        command=("torchrun", f"--nnodes={-(-ranks // 8)}", "--nproc_per_node=8", "train.py"),
        attempt=0,
        world_size=ranks,
        local_ranks=tuple(range(ranks)),
        table=STARTUP,
        now=ZERO + 95.0,
        started=ZERO,
        package=f"{LIB}/hangbisect",
        still=60.0,
        to_verdict=1.3,
        versions={"hangbisect": "0.1.0", "python": "3.11.7", "torch": "2.13.0"},
    )
    verdict, graph = judge_job_with_graph(job, facts)
    folder.mkdir(parents=True)
    _json(folder / "verdict.json", to_json(verdict))
    _json(folder / "evidence.json", to_json(make_evidence(facts, graph, job.machine)))
    environment = {str(one.rank): dict(one.environment) for one in facts}
    _json(
        folder / "environment.json",
        {"versions": dict(job.versions), "host": "n000", "processors": 64, "kernel": "6.18"}
        | {"ranks": environment},
    )
    events = sorted(_events(facts, culprit, random), key=lambda event: float(event["at"]))
    lines = [json.dumps({"wall": WALL + event["at"], **event}) for event in events]
    (folder / "events.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _json(path: Path, data: Any) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


def _rank(number: int, culprit: int, stacks: int) -> RankFacts:
    pid, host = 10_000 + 10 * number, f"n{number // 8:03}"
    kind = number % max(stacks - 1, 1)
    own = tuple(Frame(f"Model.block_{kind}_{n}", "/home/ada/model.py", 40 + n) for n in range(kind))
    frames = READING if number == culprit else (*NATIVE, *COLLECTIVE, *own)
    call = "recvfrom" if number == culprit else "futex"
    looks = tuple(_look(pid, ZERO + 92 + n, (*frames, *OUTER), call) for n in range(3))
    return RankFacts(
        number,
        number % 8,
        pid,
        host,
        reached=HANGS_AT - (number == culprit),
        held=number != culprit,
        entered=ZERO + 30,
        last_line="wandb: Currently logged in as: ada" if number == culprit else "",
        last_line_at=ZERO + 31,
        looks=looks,
        environment={
            "MASTER_ADDR": "n000",
            "RANK": str(number),
            "NCCL_SOCKET_IFNAME": "eth0" if number // 8 == culprit // 8 else "ib0",
        },
    )


def _look(pid: int, at: float, frames: tuple[Frame, ...], call: str) -> Look:
    peer = Socket(pid, "tcp", "10.0.0.2:5", "10.0.0.1:443", "ESTABLISHED", received=0)
    on = (Descriptor(3, "socket", f"socket:[{pid}]", socket=peer),) if call == "recvfrom" else ()
    kernel = Kernel(pid, "python3", "S", "", Syscall(0, call, (3,), descriptors=on, stack=pid))
    return Look(
        at=at,
        pid=pid,
        ppid=1,
        name="python3",
        command=("python", "train.py"),
        age=at - ZERO,
        state="S",
        rung="py-spy",
        threads=(Thread(pid, "MainThread", False, False, frames),),
        kernel=(kernel,),
        sockets=(peer,) if on else (),
        sample=Sample(at, pid, 1, "S", 9.5, 145_561_266, 28_672),
    )


# ---- events --------------------------------------------------------------------------------------


def _events(facts: list[RankFacts], culprit: int, random: Random) -> Iterator[dict[str, Any]]:
    yield {"t": "table", "at": ZERO, "numbers": NUMBERS}
    began = {one.rank: ZERO + random.uniform(0.5, 2.0) for one in facts}
    for place, one in enumerate(facts):
        hello = {"local_rank": one.local_rank, "node": place // 8, "host": one.host}
        yield {"t": "hello", "at": began[one.rank], "rank": one.rank, "pid": one.pid, **hello}
    opened = max(began.values())
    for name, took in TOOK.items():
        number = NUMBERS[name]
        arrived = []
        for one in facts:
            at = opened + random.uniform(0.0, 0.01)
            yield {"t": "enter", "at": at, "rank": one.rank, "n": number}
            if number == HANGS_AT and one.rank == culprit:
                continue
            for module in IMPORTS.get(name, ()):
                seconds = took * random.uniform(0.3, 0.5)
                at += seconds
                yield {"t": "import", "at": at, "rank": one.rank, "module": module} | {
                    "seconds": seconds,
                    "version": "1.0",
                }
            at += took * random.uniform(0.05, 0.5)
            yield {"t": "reached", "at": at, "rank": one.rank, "n": number}
            yield {"t": "arrive", "at": at, "rank": one.rank, "n": number, "held": True}
            arrived.append(at)
        opened = max(arrived) + 0.001
        if number < HANGS_AT:
            yield {"t": "opened", "at": opened, "n": number}
    yield {"t": "verdict", "at": ZERO + 95.0, "outcome": "hang", "ends": True}
