"""Real process groups: what ranks log of their collectives, and who is blamed for a hang."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.rank_facts import Collective, CollectiveLog, RankFacts
from hangbisect.diagnosis.collectives.log_divergence import find_mismatch
from hangbisect.evidence.ring_reader import read_ring
from hangbisect.rank.collective_records import open_ring
from jobs import Ended

from .test_monitor_never_harms import watched
from .verdicts import REACHED, check
from .whole_jobs import Jobs, write_launcher

DEADLINE = 120.0
Start = Callable[..., Any]

RANK = """
import os, runpy, sys
runpy.run_path(sys.argv[1] + "/__main__.py")
from hangbisect.rank.collective_log import CollectiveLog
log = CollectiveLog()
log.install()
import torch
import torch.distributed as dist
from torch.distributed import all_reduce as taken_before
rank, world = int(sys.argv[3]), int(sys.argv[4])
print(log.ring.fd, flush=True)
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + sys.argv[2], rank=rank,
                        world_size=world)
"""
STEPS = """
tensor = torch.ones(4)
for _ in range(3):
    taken_before(tensor)
if rank == 0:
    dist.barrier()
dist.barrier()
taken_before(tensor)
"""


def start_ranks(start: Start, package: Path, code: str, world: int = 2) -> list[tuple[int, int]]:
    """Start ranks, and return (pid, our own descriptor of its ring) for each."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    found = []
    for rank in range(world):
        process = start(sys.executable, "-c", RANK + code, package, port, rank, world)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        found.append((process.pid, open_ring(process.pid, int(line))))
    return found


def read_until(ring: int, good: Callable[[list[Collective]], Any]) -> CollectiveLog:
    """Read a ring until it is good, or until the deadline."""
    end = time.monotonic() + DEADLINE
    while True:
        log = read_ring(ring).log
        assert log is not None
        if good(list(log.operations)) or time.monotonic() > end:
            return log
        time.sleep(0.05)


def test_an_extra_barrier_is_read_from_ranks_that_are_stopped_and_dead(
    start: Start, package: Path
) -> None:
    (first, its_ring), (second, other_ring) = start_ranks(start, package, STEPS)
    for ring in (its_ring, other_ring):
        read_until(ring, lambda ops: ops and ops[-1].done is False and len(ops) > 5)
    os.kill(first, signal.SIGSTOP)
    os.kill(second, signal.SIGKILL)
    logs = [read_ring(ring).log for ring in (its_ring, other_ring)]
    os.kill(first, signal.SIGKILL)
    ranks = [RankFacts(rank=r, collectives=(log,)) for r, log in enumerate(logs) if log]
    assert [o.kind for o in ranks[0].collectives[0].operations] == [
        *("init_process_group", "all_reduce", "all_reduce", "all_reduce"),
        *("barrier", "barrier"),
    ]
    found = find_mismatch(ranks)
    assert found is not None
    assert (found.kind, found.ranks) == ("extra", (0,))
    assert found.operation.site == f"<string>:{_line('if rank == 0:') + 1} <module>"
    assert ranks[0].collectives[0].groups["0"] == (0, 1)


def _line(text: str) -> int:
    return (RANK + STEPS).splitlines().index(text) + 1


UNCHANGED = """
import inspect, pickle, warnings
warnings.simplefilter("error", UserWarning)
assert dist.all_reduce is taken_before is torch.distributed.distributed_c10d.all_reduce
assert pickle.loads(pickle.dumps(dist.all_reduce)) is dist.all_reduce
assert list(inspect.signature(dist.broadcast).parameters)[:2] == ["tensor", "src"]
assert dist.P2POp(dist.isend, torch.ones(1), 0, tag=0) if world > 1 else True
x = torch.ones(3)
work = dist.all_reduce(x, async_op=True)
assert isinstance(work, dist.Work)
work.wait()
out = [None]
dist.all_gather_object(out, {"a": 1})
assert out == [{"a": 1}]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
model(x).sum().backward()
assert model.module.weight.grad is not None
assert "device_ids" in inspect.signature(torch.nn.parallel.DistributedDataParallel).parameters
def step(t):
    t = t + 1
    dist.all_reduce(t)
    return t * 2
compiled = torch.compile(step, backend="eager", fullgraph=True)
assert compiled(torch.ones(2)).tolist() == [4.0, 4.0]
def with_barrier(t):
    dist.barrier()
    return t * 2
assert torch.compile(with_barrier, backend="eager")(torch.ones(1)).tolist() == [2.0]
child = os.fork()
if child == 0:
    log.is_on and os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert log.is_on
try:
    dist.broadcast(x, 0, group="no group")
except Exception as error:
    assert "hangbisect" not in str(error)
dist.destroy_process_group()
print("unchanged", flush=True)
"""


def test_torch_works_as_without_the_log(start: Start, package: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    process = start(sys.executable, "-c", RANK + UNCHANGED, package, port, 0, 1)
    out, err = process.communicate(timeout=DEADLINE)
    assert out.endswith("unchanged\n"), err


CALLBACK = """
import pytorch_lightning as pl
import torch.distributed as dist

class Extra(pl.Callback):
    def on_fit_start(self, trainer, module):
        if trainer.global_rank == 0:
            dist.barrier()

def make(given):
    return Extra()
"""


def test_a_barrier_of_one_rank_is_blamed_on_it_though_it_waits_elsewhere_by_then(
    light_jobs: Jobs,
) -> None:
    """Also by a second monitor: it hears of the logs again when the first one was killed."""
    folder = light_jobs.folder()
    (folder / "extra_barrier.py").write_text(CALLBACK)
    job = light_jobs.start(
        *("--fast-dev-run", "1", "--wandb", "off", "--stall", "5"),
        *("--use", "memory_callback=extra_barrier:make"),
        folder=folder,
    )
    job.until(REACHED["logs_directory"])
    job.monitor().kill()
    ended = job.end()
    check(ended, "hang", culprit=[0], checkpoint="training")
    assert "This monitor goes on for one that died" in ended.err
    assert ended.verdict["ranks"]["waiting"] == [1]
    ranks = ranks_of(ended)
    sources = [[log["source"] for log in rank["collectives"]] for rank in ranks]
    assert sources == [["ring", "torch"], ["ring", "torch"]]
    sites = [one["site"] for one in ranks[0]["collectives"][0]["operations"]]
    assert "extra_barrier.py:8 Extra.on_fit_start" in sites
    assert "extra_barrier.py:8" in json.dumps(ended.verdict["cause"])


def ranks_of(ended: Ended) -> list[dict[str, Any]]:
    """Return the ranks as evidence.json has them."""
    evidence = json.loads((ended.run_dir / "evidence.json").read_text())
    ranks: list[dict[str, Any]] = evidence["ranks"]
    return ranks


# Rank 1 stops where rank 0 waits for it: in backward, which C++ does.
STOPS = """
import ctypes, os, signal, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
loss = model(torch.ones(3)).sum()
if dist.get_rank() == 1 and sys.argv[1] == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
if dist.get_rank() == 1:
    ctypes.PyDLL(None).pause()  # with the GIL
loss.backward()
"""


@pytest.mark.parametrize(("kind", "outcome"), [("stop", "hang"), ("gil", "silent")])
def test_a_rank_that_cannot_answer_has_its_ring_read_all_the_same(
    kind: str, outcome: str, jobs_here: Jobs
) -> None:
    folder = jobs_here.folder()
    (folder / "train.py").write_text(STOPS)
    command = (write_launcher(folder), "train.py", kind)
    job = watched(jobs_here, folder, command, "--stall", "5")
    job.until("still running, still watched")
    ended = job.end(limit=0)
    assert (ended.verdict["outcome"], ended.verdict["ranks"]["culprit"]) == (outcome, [1])
    ranks = ranks_of(ended)
    assert [log["source"] for log in ranks[1]["collectives"]] == ["ring"]
    assert "ddp" in [one["kind"] for one in ranks[1]["collectives"][0]["operations"]]
