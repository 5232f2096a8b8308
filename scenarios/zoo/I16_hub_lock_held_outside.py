"""A file of the hub's cache is locked by a process that does not belong to the job.

huggingface_hub takes a lock for each file that it downloads, and waits for it without a limit. A
download that was forgotten in another terminal, or one that hangs itself, holds it
(huggingface/huggingface_hub#2543; "Lock not acquired" in huggingface/datasets#3983). The lock is
asked for again and again with sleeps in between, so no system call says what is waited for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def held(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import processes, servers

    home = place.tmp / "hf"
    servers.fill_hub_cache(home)
    with (
        servers.serve_hub(place.tmp) as served,
        processes.hold_flock(served.lock(home, "tokenizer.json")),
    ):
        yield Stage(environment={**served.environment, "HF_HOME": str(home)})


CASE = Case(
    id="I16",
    title="the hub's cache is locked by a stranger",
    cluster="C9",
    reports=("huggingface/huggingface_hub#2543", "huggingface/datasets#3983"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("lock",),
        detail=r"\.lock",
        cause=("file-lock-held",),
        avoids=("hub=offline", "caches=own"),
        call=r"AutoTokenizer\.from_pretrained$",
        chain=(r"-> lock .*\.lock",),
        explained_by=(r"\.lock",),
    ),
    options=("--tokenizer", "people/small", "--until", "tokenizer"),
    stage=held,
)
