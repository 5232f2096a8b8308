"""Rank 1 has fewer batches than rank 0, and is at the end of its epoch alone.

"Stuck at 96 %" (Lightning-AI/pytorch-lightning#9851, #11242, huggingface/accelerate#221). Rank
0 waits in the next backward for a partner that has left the loop. Here rank 1 goes on to work
of its own, as jobs do that write a report at the end; if it left, gloo would call it a crash.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

BATCHES = (3, 1)  # of rank 0 and of rank 1


def make_data(given: Any) -> Any:
    """Return the data module with a stream that is shorter on rank 1."""
    from hangbisect.zoo.in_rank import rank_number, run_usual_step
    from torch.utils.data import DataLoader, IterableDataset

    module = run_usual_step(given)
    batches = BATCHES[rank_number(given)]

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            for number in range(batches * module.batch_size):
                yield module.texts[number % len(module.texts)]

    class Streamed(type(module)):  # type: ignore[misc]
        def train_dataloader(self) -> Any:
            usually = super().train_dataloader()
            return DataLoader(Stream(), batch_size=self.batch_size, collate_fn=usually.collate_fn)

    module.__class__ = Streamed
    return module


def make_trainer(given: Any) -> Any:
    """Return the Trainer, for one epoch."""
    from hangbisect.zoo.in_rank import run_usual_step

    trainer = run_usual_step(given)
    trainer.fit_loop.max_epochs = 1
    return trainer


def add_report(given: Any) -> Any:
    """Add a callback that takes its time at the end."""
    import time

    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    class Report(pl.Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            if me == 1:
                time.sleep(1e7)

    return [run_usual_step(given), Report()]


CASE = Case(
    id="I27",
    title="rank 1 runs out of batches and leaves the loop",
    cluster="C13",
    reports=("Lightning-AI/pytorch-lightning#9851", "huggingface/accelerate#221"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("callbacks", "data", "fit"),
        waits_for=("sleep",),
        cause=("uneven-batches",),
    ),
    uses={
        "data_module": "make_data",
        "trainer": "make_trainer",
        "memory_callback": "add_report",
    },
    options=("--fast-dev-run", "3"),
)
