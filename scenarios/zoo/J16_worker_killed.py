"""A DataLoader worker of rank 1 is killed, as the out-of-memory killer does.

torch notices: "DataLoader worker (pid ...) is killed by signal: Killed". A control: a crash
must be called a crash, and rank 1 named (meta-pytorch/data#1173 is one where it went
unnoticed).
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


class Large:
    """Texts that take more memory than there is."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        import os
        import signal

        from torch.utils.data import get_worker_info

        if get_worker_info():
            os.kill(os.getpid(), signal.SIGKILL)
        return self.texts[index]


def make_data(given: Any) -> Any:
    """Return the data module, too large on rank 1."""
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    module = run_usual_step(given)
    if rank_number(given) == 1:

        class Augmented(type(module)):  # type: ignore[misc]
            def setup(self, stage: str) -> None:
                super().setup(stage)
                self.texts: Any = Large(self.texts)

        module.__class__ = Augmented
    return module


CASE = Case(
    id="J16",
    title="a DataLoader worker of rank 1 is killed: a crash",
    cluster="C12",
    reports=("meta-pytorch/data#1173",),
    truth=Truth(
        outcome="crash",
        culprit=(1,),
        checkpoint="training",
        component=("data",),
        cause=("worker-killed",),
        avoids=("num_workers=0",),
    ),
    uses={"data_module": "make_data"},
    options=("--num-workers", "1"),
)
