"""Control: the hub refuses the connection. That is an error in the end, and no hang.

huggingface_hub tries a few times, with pauses, and then says that it cannot connect.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def refused(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.refusing_port() as port:
        yield Stage(environment={"HF_ENDPOINT": f"http://127.0.0.1:{port}"})


CASE = Case(
    id="I19c",
    title="the hub refuses connections",
    cluster="C7",
    reports=("huggingface/setfit#495",),
    truth=Truth(outcome="crash", culprit=(0, 1), checkpoint="tokenizer"),
    options=("--tokenizer", "people/small", "--until", "tokenizer", "--stall", "20"),
    stage=refused,
    limit=150.0,
)
