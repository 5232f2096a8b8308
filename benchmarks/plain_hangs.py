"""A plain torch script that hangs in many ways; for what_people_use.py.

    torchrun --nproc_per_node=4 benchmarks/plain_hangs.py KIND WAY SECONDS

It does what start-ups do: import, load a tokenizer, make a process group, load a model, start W&B,
train. WAY is how it is looked after: "monitored barrier", "debug server", or "" for the library's
own time limits, which are SECONDS. The same KIND stands in hangbisect's pipeline by `--use`:
`load_tokenizer`, `load_model`, `start_logger` and `add_callback` below.

Each rank that hangs writes the time into a file $STAMPS/RANK right before.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

FOR_EVER = 1e7  # seconds
MODULE_FIFO = "PLAIN_FIFO"  # environment: a FIFO that nobody writes to
SILENT_PORT = "PLAIN_PORT"  # environment: a server that accepts and never answers


@dataclass(frozen=True)
class Kind:
    """A way to hang: on which ranks (of four), at which place, doing what."""

    title: str
    ranks: tuple[int, ...]
    place: str  # "import", "tokenizer", "model", "logger" or "train", in this order
    hang: Callable[[int], None]


def _sleep(rank: int) -> None:
    time.sleep(FOR_EVER)


def _ask_a_server(rank: int) -> None:
    import socket

    with socket.create_connection(("127.0.0.1", int(os.environ[SILENT_PORT]))) as server:
        server.recv(1)


def _open_a_fifo(rank: int) -> None:
    with open(os.environ[MODULE_FIFO]) as file:
        file.read()


def _hold_the_gil(rank: int) -> None:
    import ctypes

    ctypes.PyDLL(None).sleep(int(FOR_EVER))


def _stop(rank: int) -> None:
    import signal

    signal.raise_signal(signal.SIGSTOP)


def _leave(rank: int) -> None:
    sys.exit(0)


def _extra_gather(rank: int) -> None:
    import torch
    import torch.distributed as dist

    dist.all_gather([torch.zeros(1) for _ in range(dist.get_world_size())], torch.ones(1))


def _other_collective(rank: int) -> None:
    """Called on every rank: rank 1 broadcasts where the others sum."""
    import torch
    import torch.distributed as dist

    counts = torch.ones(100_000)
    if rank == 1:
        dist.broadcast(counts, src=1)
    else:
        dist.all_reduce(counts)
    dist.barrier()


def _wait_for_a_worker(rank: int) -> None:
    from torch.utils.data import DataLoader

    next(iter(DataLoader([_Stuck()], num_workers=1, collate_fn=_touch)))


class _Stuck:
    pass


def _touch(batch: Any) -> None:
    time.sleep(FOR_EVER)


def _start_wandb(rank: int) -> None:
    import wandb

    wandb.init(project="plain")


KINDS = {
    "import": Kind("an import opens a FIFO", (2,), "import", _open_a_fifo),
    "left": Kind("leaves with status 0", (3,), "tokenizer", _leave),
    "download": Kind("a download never answers", (1,), "tokenizer", _ask_a_server),
    "rank0": Kind("rank 0 asks a silent server", (0,), "model", _ask_a_server),
    "rank1": Kind("rank 1 asks a silent server", (1,), "model", _ask_a_server),
    "two": Kind("ranks 1 and 2 do", (1, 2), "model", _ask_a_server),
    "three": Kind("all but rank 2 do", (0, 1, 3), "model", _ask_a_server),
    "gil": Kind("a C call holds the GIL", (1,), "model", _hold_the_gil),
    "stopped": Kind("stopped", (2,), "model", _stop),
    "wandb": Kind("W&B's server is silent", (0,), "logger", _start_wandb),
    "callback": Kind("sleeps in a callback", (3,), "train", _sleep),
    "worker": Kind("its DataLoader worker sleeps", (2,), "train", _wait_for_a_worker),
    "gather": Kind("an extra collective of one rank", (0,), "train", _extra_gather),
    "mismatch": Kind("broadcast where others sum", (1,), "train", _other_collective),
}


def at(place: str, kind: Kind, rank: int) -> None:
    """Hang, if `kind` does so here on this rank."""
    everybody = kind.hang is _other_collective
    if kind.place == place and (everybody or rank in kind.ranks):
        Path(os.environ["STAMPS"], str(rank)).write_text(str(time.time()))
        kind.hang(rank)


# ---- a plain script ---------------------------------------------------------------------------


def main(name: str, way: str, seconds: float) -> None:
    """Start up and train a little."""
    kind, rank = KINDS[name], int(os.environ["RANK"])
    at("import", kind, rank)
    import torch
    import torch.distributed as dist

    if way == "debug server":
        from torch.distributed.debug import start_debug_server

        start_debug_server(port=int(os.environ["DEBUG_PORT"]))
    at("tokenizer", kind, rank)
    limit = timedelta(seconds=seconds)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30) if way else limit)

    def meet() -> None:
        if way == "monitored barrier":
            dist.monitored_barrier(timeout=limit, wait_all_ranks=True)
        else:
            dist.barrier()

    at("model", kind, rank)
    meet()
    at("logger", kind, rank)
    meet()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
    for step in range(3):
        if step == 1:
            at("train", kind, rank)
        model(torch.ones(4, 8)).sum().backward()
        meet()


# ---- the same, in hangbisect's pipeline -----------------------------------------------------


def load_tokenizer(given: Any) -> Any:
    """The places "import" and "tokenizer"."""
    _here(given, "import")
    _here(given, "tokenizer")
    return _usual(given)


def load_model(given: Any) -> Any:
    """The place "model"."""
    _here(given, "model")
    return _usual(given)


def start_logger(given: Any) -> Any:
    """The place "logger"; W&B itself is started by the pipeline."""
    kind = KINDS[os.environ["PLAIN_KIND"]]
    if kind.hang is _start_wandb:
        Path(os.environ["STAMPS"], str(given.context.place.rank)).write_text(str(time.time()))
    return _usual(given)


def add_callback(given: Any) -> Any:
    """The place "train"."""
    import pytorch_lightning as pl

    class AtTheSecondStep(pl.Callback):  # type: ignore[misc]
        def on_train_batch_start(
            self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
        ) -> None:
            if batch_idx == 1:
                _here(given, "train")

    return [_usual(given), AtTheSecondStep()]


USES = {
    "tokenizer": "load_tokenizer",
    "model": "load_model",
    "wandb_logger": "start_logger",
    "memory_callback": "add_callback",
}


def _here(given: Any, place: str) -> None:
    at(place, KINDS[os.environ["PLAIN_KIND"]], given.context.place.rank)


def _usual(given: Any) -> Any:
    from hangbisect.zoo.in_rank import run_usual_step

    return run_usual_step(given)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
