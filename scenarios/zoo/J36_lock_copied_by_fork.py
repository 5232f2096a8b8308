"""DataLoader workers inherit a lock that a thread of their rank had when they were forked.

fsspec/filesystem_spec#835, s3fs#914, DataDog/dd-trace-py PR 18900: fork copies locks, but not
the threads that have them. In the child it is locked for ever, by nobody.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


class Cached:
    """Texts through a cache that a thread keeps fresh."""

    def __init__(self, texts: Any) -> None:
        import threading

        self.texts = texts
        self.fresh = threading.Lock()
        started = threading.Event()

        def refresh() -> None:
            import time

            with self.fresh:
                started.set()
                time.sleep(1e7)

        threading.Thread(target=refresh, daemon=True, name="refresh").start()
        started.wait()

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        with self.fresh:
            return self.texts[index]


def make_data(given: Any) -> Any:
    """Return the data module with a cache."""
    from hangbisect.zoo.in_rank import run_usual_step

    module = run_usual_step(given)

    class WithCache(type(module)):  # type: ignore[misc]
        def setup(self, stage: str) -> None:
            super().setup(stage)
            self.texts: Any = Cached(self.texts)

    module.__class__ = WithCache
    return module


CASE = Case(
    id="J36",
    title="workers inherit a lock of a thread that they have not",
    cluster="C2",
    reports=("fsspec/filesystem_spec#835", "DataDog/dd-trace-py PR 18900"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="training",
        component=("data",),
        waits_for=("process",),
        detail="worker",
        cause=("lock-after-fork",),
    ),
    uses={"data_module": "make_data"},
    options=("--num-workers", "1"),
)
