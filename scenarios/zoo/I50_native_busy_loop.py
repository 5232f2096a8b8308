"""Both ranks spin in native code in their first collective: 100 % busy, and nothing ever moves.

What a GPU job looks like whose peer-to-peer copies are broken (NVIDIA/nccl#631,
Lightning-AI/pytorch-lightning#19425: "100 % GPU, nothing happens"; NCCL_P2P_DISABLE=1 avoids it
there). Here a library of C stands for it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

LIBRARY = """
static volatile int arrived;
int wait_for_peers(void) {
    while (!arrived)
        ;
    return arrived;
}
"""


@contextlib.contextmanager
def library(place: CasePlace) -> Iterator[Stage]:
    """A transport that waits by looking."""
    from hangbisect.zoo.parts import processes

    made = processes.compile_library(place.folder, "transport", LIBRARY)
    yield Stage(environment={"TRANSPORT_LIBRARY": str(made)})


def add_transport(given: Any) -> Any:
    """Add a callback that meets the other ranks before the first batch."""
    import ctypes
    import os

    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import run_usual_step

    class Transport(pl.Callback):
        def on_train_batch_start(
            self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
        ) -> None:
            ctypes.CDLL(os.environ["TRANSPORT_LIBRARY"]).wait_for_peers()

    return [run_usual_step(given), Transport()]


CASE = Case(
    id="I50",
    title="both ranks spin in native code in a collective",
    cluster="C5",
    reports=("NVIDIA/nccl#631", "Lightning-AI/pytorch-lightning#19425"),
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="training",
        component=("callbacks", "fit"),
        waits_for=("itself",),
        cause=("busy-loop",),
        avoids=("callbacks=none",),
    ),
    stage=library,
    uses={"memory_callback": "add_transport"},
    options=("--timeout", "first_backward=6", "--slow-limit", "2"),
    needs=("gcc",),
    limit=120.0,
)
