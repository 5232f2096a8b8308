"""The rank computes with OpenMP, forks its DataLoader workers, and these compute with OpenMP too.

libgomp's pool of threads does not exist in a forked child, but the child believes that it does
and waits for it for ever (pytorch/pytorch#1355, #45198; albumentations-team/albumentations#1825
with OpenCV). The rank waits in poll() for a batch. torchrun sets OMP_NUM_THREADS=1, which hides
it until some code asks for more. TRAP for advice: `spawn` runs a script without a main guard
once more, and hangs again.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


class Augmented:
    """Texts, each after some arithmetic on all cores, as augmentations do."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        import torch

        torch.set_num_threads(2)
        torch.rand(1000, 1000).exp().sum()
        return self.texts[index]


def make_data(given: Any) -> Any:
    """Return the data module, with arithmetic before the fork and after it."""
    import torch
    from hangbisect.zoo.in_rank import run_usual_step

    module = run_usual_step(given)

    class Normalized(type(module)):  # type: ignore[misc]
        def setup(self, stage: str) -> None:
            super().setup(stage)
            torch.set_num_threads(2)
            torch.rand(3000, 3000).exp().sum()
            self.texts: Any = Augmented(self.texts)

    module.__class__ = Normalized
    return module


CASE = Case(
    id="I28",
    title="DataLoader workers use OpenMP after their rank did",
    cluster="C2",
    reports=("pytorch/pytorch#1355", "pytorch/pytorch#45198"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="training",
        component=("data",),
        waits_for=("process",),
        detail="worker",
        cause=("openmp-after-fork",),
        avoids=("num_workers=0", "worker_start=forkserver", "worker_start=spawn"),
    ),
    uses={"data_module": "make_data"},
    options=("--num-workers", "1"),
)
