"""Rank 1 has one batch less, and waits for rank 0 in the barrier after the loop.

"Stuck at 96 %" as it mostly is (Lightning-AI/pytorch-lightning#11242, #20404;
huggingface/accelerate#221): rank 0 waits for rank 1 in a backward that rank 1 will never do,
rank 1 for rank 0 in a barrier that rank 0 has not come to. Both are in collectives, of one
group; what tells is that one has done fewer steps.

Both waits are right: it is in a collective, and of that the one other rank is not there.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

BATCHES = (3, 2)  # of rank 0 and of rank 1


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
    """Add a callback that lets the ranks meet at the end."""
    import pytorch_lightning as pl
    from hangbisect.zoo.in_rank import run_usual_step

    class Report(pl.Callback):
        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.strategy.barrier("all are done")

    return [run_usual_step(given), Report()]


CASE = Case(
    id="J49",
    title="rank 1 in the barrier after the loop, a batch too early",
    cluster="C13",
    reports=("Lightning-AI/pytorch-lightning#11242", "huggingface/accelerate#221"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="training",
        component=("callbacks", "data", "fit", "strategy"),
        waits_for=("collective", "rank"),
        cause=("uneven-batches",),
    ),
    uses={
        "data_module": "make_data",
        "trainer": "make_trainer",
        "memory_callback": "add_report",
    },
    options=("--fast-dev-run", "3"),
)
