"""Both ranks wait for threads of theirs, and these for a server that does not answer.

snapshot_download and its friends work so: the main thread's stack says Future.result, the
answer is in a thread named ThreadPoolExecutor-0_0 (huggingface/xet-core#850,
huggingface/huggingface_hub#4508: "no timeout, no retry, no error, no log").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def mirror(place: CasePlace) -> Iterator[Stage]:
    """A server that does not answer."""
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        yield Stage(environment={"MIRROR": f"http://127.0.0.1:{port}"})


def load_tokenizer(given: Any) -> Any:
    """Return the tokenizer, after its files have come, several at once."""
    import os
    import urllib.request
    from concurrent.futures import ThreadPoolExecutor

    from hangbisect.zoo.in_rank import run_usual_step

    def fetch(name: str) -> bytes:
        with urllib.request.urlopen(f"{os.environ['MIRROR']}/{name}") as answer:
            body: bytes = answer.read()
            return body

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(fetch, ["vocab.json", "merges.txt"]))
    return run_usual_step(given)


CASE = Case(
    id="J37",
    title="threads of both ranks wait for a silent server",
    cluster="C7",
    reports=("huggingface/xet-core#850", "huggingface/huggingface_hub#4508"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("thread",),
        detail="[Tt]hread",
        cause=("endpoint-silent",),
    ),
    stage=mirror,
    uses={"tokenizer": "load_tokenizer"},
)
