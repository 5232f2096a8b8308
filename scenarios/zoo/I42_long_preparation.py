"""Rank 0 prepares the data for longer than anybody expected; the others wait in a barrier.

It only looks like a hang: half an hour later the library's watchdog ends a healthy job
(JIA-Lab-research/LongLoRA#45, huggingface/transformers#17106, Lightning-AI/pytorch-lightning PR
19448). A control: it moves, so it must be called slow, whatever the deadline says.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

SECONDS = 24.0


def make_data(given: Any) -> Any:
    """Return the data module whose rank 0 tokenizes a corpus first."""
    import os
    import time

    from hangbisect.zoo.in_rank import run_usual_step

    module = run_usual_step(given)

    class Prepared(type(module)):  # type: ignore[misc]
        def prepare_data(self) -> None:
            super().prepare_data()
            end = time.monotonic() + SECONDS
            with open(self.path, encoding="utf-8") as corpus, open("shards", "wb") as shards:
                lines = [line for line in corpus if line.strip()]
                number = 0
                while time.monotonic() < end:
                    line = lines[number % len(lines)]
                    ids = self.tokenizer(line)["input_ids"]
                    shards.write(b"".join(i.to_bytes(4, "little") for i in ids))
                    if number % 50 == 0:
                        os.fsync(shards)
                    number += 1

    module.__class__ = Prepared
    return module


CASE = Case(
    id="I42",
    title="rank 0 prepares the data for long: slow, not hung",
    cluster="C14",
    reports=("JIA-Lab-research/LongLoRA#45", "huggingface/transformers#17106"),
    truth=Truth(outcome="ok", slow="prepare_data"),
    uses={"data_module": "make_data"},
    options=("--timeout", "prepare_data=6"),
    limit=120.0,
)
