"""Workers are forked after threads were used, and a callback then asks a tracker that is silent.

Both happen in the set-up of fit: the data module measures its texts with a DataLoader whose worker
tokenizes, after the rank did (huggingface/tokenizers#187); next a callback says that training
begins to a server that accepts and never answers, and urllib has no time limit of its own.
Who heals the data finds the same step hanging.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def make_data(given: Any) -> Any:
    """Return the data module, which measures its texts before it is used."""
    from hangbisect.zoo.in_rank import run_usual_step

    module = run_usual_step(given)

    class Measured(type(module)):  # type: ignore[misc]
        def setup(self, stage: str) -> None:
            super().setup(stage)
            self.longest = max(len(batch["input_ids"][0]) for batch in self.few())

        def few(self) -> Any:
            import itertools

            return itertools.islice(self.train_dataloader(), 2)

    module.__class__ = Measured
    return module


def make_callback(given: Any) -> Any:
    """Return a callback that tells a tracker that training begins."""
    import pytorch_lightning as pl

    class Tells(pl.Callback):
        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            import urllib.request

            with urllib.request.urlopen(os.environ["TRACKER_URL"]) as answer:
                answer.read()

    return Tells()


@contextlib.contextmanager
def silent_tracker(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        yield Stage(environment={"TRACKER_URL": f"http://127.0.0.1:{port}/begin"})


CASE = Case(
    id="L02",
    title="workers after the fork, and a tracker that is silent",
    cluster="C2",
    reports=("huggingface/tokenizers#187",),
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="training",
        component=("data",),
        waits_for=("process",),
        detail="worker",
        cause=("tokenizers-after-fork",),
        avoids=(
            *("num_workers=0 callbacks=none", "tokenizers_parallelism=off callbacks=none"),
            *("worker_start=forkserver callbacks=none", "worker_start=spawn callbacks=none"),
        ),
    ),
    uses={"data_module": "make_data", "memory_callback": "make_callback"},
    options=(
        *("--wandb", "off", "--skip", "wandb_logger"),
        *("--num-workers", "1", "--tokenizers-parallelism", "on"),
    ),
    stage=silent_tracker,
)
