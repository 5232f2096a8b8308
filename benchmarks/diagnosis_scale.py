"""How long a verdict on 1,000 ranks takes, and merging the stacks of 100,000, from made-up looks.

The looks are as deep as real ones (30 Python frames, 12 native ones, helper threads, two children
a rank); no rank shares an object with another. Required: 2 s, and 0.5 s.

    python benchmarks/diagnosis_scale.py [--ranks 1000] [--stacks 100000]
    python benchmarks/diagnosis_scale.py --against PYTHON PROGRAM [--rounds 5]

The second one runs this program in turn with another version's, PROGRAM, by the interpreter that
has that version, and compares the times.
"""

from __future__ import annotations

import argparse
import pickle
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from hangbisect.base.checkpoints import Checkpoint
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
from hangbisect.diagnosis.process.merged_stacks import merge_stacks
from hangbisect.diagnosis.verdict import judge_job
from hangbisect.report.stacks import merged_stacks_text
from pairs import describe_ratio, measure_pairs, read_cpu

T = TypeVar("T")
LIB = "/opt/venv/lib/python3.11/site-packages"
TABLE = tuple(
    Checkpoint(name, name.capitalize(), component, 60.0, number=n)
    for n, (name, component) in enumerate(
        [
            *(("launch", "launcher"), ("script", "interpreter"), ("tokenizer", "hub")),
            *(("model", "model"), ("logger", "wandb"), ("training", "strategy")),
        ]
    )
)
OUTER = (
    *(
        Frame(f"_Loop{n}.advance", f"{LIB}/pytorch_lightning/loops/loop_{n}.py", 100 + n)
        for n in range(26)
    ),
    Frame("main", "/home/ada/train.py", 88),
    Frame("<module>", "/home/ada/train.py", 95),
)
NATIVE = tuple(
    Frame(f"gloo::transport::tcp::Buffer::waitRecv{n}", "libtorch_cpu.so", 0, native=True)
    for n in range(12)
)
COLLECTIVE = (
    Frame("all_reduce", f"{LIB}/torch/distributed/distributed_c10d.py", 3252),
    Frame("wrapper", f"{LIB}/torch/distributed/c10d_logger.py", 83),
)
READING = (
    Frame("SocketIO.readinto", "/usr/lib/python3.11/socket.py", 706),
    Frame("get", f"{LIB}/requests/api.py", 87),
)
POOL = (
    Frame("_worker", "/usr/lib/python3.11/concurrent/futures/thread.py", 81),
    Frame("Thread.run", "/usr/lib/python3.11/threading.py", 982),
    Frame("Thread._bootstrap", "/usr/lib/python3.11/threading.py", 1002),
)


def look(
    pid: int, at: float, frames: tuple[Frame, ...], call: str, ppid: int = 1, **more: Any
) -> Look:
    """Return one look at a rank or a child."""
    peer = Socket(pid, "tcp", "10.0.0.2:5", "10.0.0.1:443", "ESTABLISHED", received=0)
    descriptor = Descriptor(3, "socket", f"socket:[{pid}]", socket=peer)
    syscall = Syscall(0, call, (3, 0, 0, 0, 0, 0), descriptors=(descriptor,), stack=pid)
    idle = [Thread(pid + n, f"pool-{n}", False, False, POOL) for n in range(1, 5)]
    made = Look(
        at=at,
        pid=pid,
        ppid=ppid,
        name="python3",
        command=("python", "train.py"),
        age=60.0,
        state="S",
        rung="py-spy",
        threads=(Thread(pid, "MainThread", False, False, frames), *idle),
        kernel=(Kernel(pid, "python3", "S", "", syscall),),
        sockets=(peer,),
        sample=Sample(at, pid, 1, "S", 1.0, 1, 1),
    )
    return replace(made, **more)


def rank(number: int, *, stuck: bool, alive: bool = True) -> RankFacts:
    """Return a rank that reads from a silent server (`stuck`), or is in a collective."""
    pid = 10_000 + 10 * number
    frames, call = (READING, "recvfrom") if stuck else ((*NATIVE, *COLLECTIVE), "futex")
    looks = tuple(look(pid, 100.0 + n, (*frames, *OUTER), call) for n in range(4))
    workers = tuple(
        (look(pid + n, 100.0, (*READING, *OUTER), "read", ppid=pid, name="pt_data_worker"),)
        for n in (7, 8)
    )
    return RankFacts(
        number,
        number % 8,
        pid,
        f"n{number // 8:03}",
        reached=4,
        entered=40.0,
        alive=alive,
        left=not alive,
        status=None if alive else -9,
        looks=looks if alive else (),
        children=workers if alive else (),
        environment={"MASTER_PORT": "29500", "RANK": str(number)},
    )


SHAPES: dict[str, Callable[[int, int], RankFacts]] = {
    "one stuck": lambda r, world: rank(r, stuck=r == world // 3),
    "half stuck": lambda r, world: rank(r, stuck=r % 2 == 0),
    "all in a collective": lambda r, world: rank(r, stuck=False),
    "at our barrier but one": lambda r, world: replace(
        rank(r, stuck=r == 1), held=r != 1, reached=4 if r == 1 else 5
    ),
    "none alive": lambda r, world: rank(r, stuck=False, alive=False),
}


def job(world: int, ended: str) -> JobFacts:
    return JobFacts(
        ended=ended,  # type: ignore[arg-type]  # one of the literals
        pipeline="startup",
        command=("torchrun", "--nproc_per_node=8", "-m", "bisect"),
        attempt=0,
        world_size=world,
        local_ranks=tuple(range(world)),
        table=TABLE,
        now=160.0,
        started=20.0,
        package=f"{LIB}/hangbisect",
    )


def apart(ranks: Iterable[RankFacts]) -> list[RankFacts]:
    """Return copies of `ranks` of which none shares an object with another."""
    return [pickle.loads(pickle.dumps(one)) for one in ranks]


def timed(call: Callable[..., T], *given: object) -> tuple[float, T]:
    """Return how many seconds a call took, and what it returned."""
    began = time.perf_counter()
    found = call(*given)
    return time.perf_counter() - began, found


def stacks(count: int, kinds: int = 12) -> list[tuple[int, tuple[str, ...]]]:
    """Return `count` stacks of 30 lines, of `kinds` kinds, each with strings of its own."""
    outer = [f"{f.name} ({f.file.rpartition('/')[2]}:" for f in reversed(OUTER)]
    return [
        (
            rank,
            (
                *(f"{line}{number})" for number, line in enumerate(outer)),
                f"own{rank % kinds} (train.py:{rank % kinds})",
                f"wait{rank % kinds} (train.py:{rank % kinds})",
            ),
        )
        for rank in range(count)
    ]


_TIME = re.compile(r"(judged in|again|one tree|merged in) +([\d.]+) s")


def _compare(old: list[str], new: list[str], count: int) -> None:
    """Print each time of the two programs, and their ratio: medians over `count` pairs."""
    times: dict[tuple[str, str], list[float]] = {}

    def run(side: str, command: list[str]) -> float:
        before = read_cpu()
        text = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
        for line in text.splitlines():
            for what, seconds in _TIME.findall(line):
                name = f"{line.strip().partition('  ')[0][:24]}, {what}"
                times.setdefault((side, name), []).append(float(seconds))
        return read_cpu() - before

    whole = measure_pairs(
        lambda _: run("old", old), lambda _: run("new", new), count, lambda *_: None
    )
    for side, name in list(times):
        if side == "old":
            before, after = times["old", name], times["new", name]
            print(
                f"{name:<44} {statistics.median(before):5.2f} s  {statistics.median(after):5.2f} s"
            )
    print(f"CPU of the whole program: {describe_ratio(*whole)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--stacks", type=int, default=100_000)
    parser.add_argument("--against", nargs=2, metavar=("PYTHON", "PROGRAM"))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    if given.against:
        size = ["--ranks", str(given.ranks), "--stacks", str(given.stacks)]
        _compare([*given.against, *size], [sys.executable, __file__, *size], given.rounds)
        return
    print(f"{given.ranks} ranks; the first verdict also fills the caches")
    for name, shape in SHAPES.items():
        ranks = apart(shape(r, given.ranks) for r in range(given.ranks))
        facts = job(given.ranks, "crash" if name == "none alive" else "late")
        first, verdict = timed(judge_job, facts, ranks)
        again, _ = timed(judge_job, facts, ranks)
        text, _ = timed(merged_stacks_text, ranks)
        blamed, cause = len(verdict.ranks.culprit), verdict.cause
        print(
            f"  {name:<24} judged in {first:4.2f} s, again {again:4.2f} s; {blamed} to blame, "
            f"{cause.id if cause else 'cause unknown'}; stacks as one tree {text:4.2f} s"
        )
    took, tree = timed(merge_stacks, stacks(given.stacks))
    print(f"{given.stacks} stacks of 30 lines merged in {took:.2f} s, {len(tree)} branches")


if __name__ == "__main__":
    main()
