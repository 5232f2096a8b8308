"""Rank 0 takes its batches from a queue, and the thread that filled it has died.

Prefetchers of one's own do this: an exception in a thread ends that thread alone, and Queue.get
has no time limit (huggingface/datasets#3148: "freezes before batch 1", cause unknown).
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def make_data(given: Any) -> Any:
    """Return the data module with batches through a prefetching thread."""
    import queue
    import threading

    from hangbisect.zoo.in_rank import rank_number, run_usual_step
    from torch.utils.data import DataLoader, IterableDataset

    module = run_usual_step(given)
    fails = rank_number(given) == 0

    class Prefetched(IterableDataset[Any]):
        def __iter__(self) -> Any:
            ahead: queue.Queue[str] = queue.Queue(maxsize=64)

            def read() -> None:
                for number in range(10_000):
                    if fails and number == 5:
                        raise SystemExit  # ends a thread, and only that, without a word
                    ahead.put(module.texts[number % len(module.texts)])

            threading.Thread(target=read, daemon=True).start()
            while True:
                yield ahead.get()

    class Streamed(type(module)):  # type: ignore[misc]
        def train_dataloader(self) -> Any:
            usually = super().train_dataloader()
            return DataLoader(
                Prefetched(), batch_size=self.batch_size, collate_fn=usually.collate_fn
            )

    module.__class__ = Streamed
    return module


CASE = Case(
    id="J06",
    title="rank 0 waits at a queue whose thread has died",
    cluster="C12",
    reports=("huggingface/datasets#3148",),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        waiting=(1,),
        checkpoint="training",
        component=("data",),
        waits_for=("lock",),
        cause=("dead-producer",),
    ),
    uses={"data_module": "make_data"},
)
