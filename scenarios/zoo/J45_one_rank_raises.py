"""Rank 2 of four raises an exception; the launcher ends the others.

A control: a crash must be called a crash, and rank 2 named, not the ones that SIGTERM hit.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def load_tokenizer(given: Any) -> None:
    """Read the vocabulary that rank 2 has not."""
    from hangbisect.zoo.in_rank import rank_number

    if rank_number(given) == 2:
        with open("vocabulary of another node") as file:
            file.read()


CASE = Case(
    id="J45",
    title="rank 2 of 4 raises: a crash",
    cluster="C12",
    reports=(),
    truth=Truth(
        outcome="crash",
        culprit=(2,),
        checkpoint="tokenizer",
        component=("hub",),
    ),
    ranks=4,
    uses={"tokenizer": "load_tokenizer"},
    options=("--until", "tokenizer"),
)
