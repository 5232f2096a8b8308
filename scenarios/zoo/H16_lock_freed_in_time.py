"""Control: a lock of the hub's cache is held for a dozen seconds and then freed.

Another job downloads the same model. Waiting for it is right, and no hang.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def held_for_a_while(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import processes, servers

    home = place.tmp / "hf"
    with (
        servers.serve_hub(place.tmp) as served,
        # From now on: importing torch and transformers takes some of it.
        processes.hold_flock(served.lock(home, "tokenizer.json"), seconds=22.0),
    ):
        yield Stage(environment={**served.environment, "HF_HOME": str(home)})


CASE = Case(
    id="H16",
    title="control: a lock that is freed in time",
    cluster="control",
    reports=("huggingface/huggingface_hub#2543",),
    truth=Truth(outcome="ok"),
    options=("--tokenizer", "people/small", "--stall", "20", "--until", "tokenizer"),
    stage=held_for_a_while,
)
