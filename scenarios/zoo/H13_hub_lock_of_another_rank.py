"""Rank 1 downloads from a hub that stops in the middle, and rank 0 waits for its lock.

Both want the same file; the first has the cache's lock and sits in recv, the second polls for the
lock with sleeps. Two stacks, one hang (huggingface/huggingface_hub#2543, huggingface/xet-core#850).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


def tokenizer(given: Any) -> Any:
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    given.context.imports("transformers")
    if rank_number(given) == 0:
        time.sleep(4)
    return run_usual_step(given)


@contextlib.contextmanager
def stops(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    home = place.tmp / "hf"
    servers.fill_hub_cache(home)
    rule = servers.HubRule(r"GET .*/tokenizer\.json", stops_at=4096)
    with servers.serve_hub(place.tmp, [rule]) as served:
        # Its own limit of ten seconds for each recv would make it try again.
        limit = {"HF_HUB_DOWNLOAD_TIMEOUT": "600"}
        yield Stage(environment={**served.environment, **limit, "HF_HOME": str(home)})


CASE = Case(
    id="H13",
    title="rank 1's download stops, rank 0 waits for its lock",
    cluster="C7",
    reports=("huggingface/huggingface_hub#2543", "huggingface/xet-core#850"),
    culprit_goes="anywhere",
    truth=Truth(
        outcome="hang",
        culprit=(1,),
        waiting=(0,),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("hub-silent",),
        # No toggle avoids it: the download that stopped has moved refs/main to a snapshot without
        # this file, and offline the job ends with an error.
    ),
    uses={"tokenizer": "tokenizer"},
    options=("--tokenizer", "people/small", "--until", "tokenizer"),
    stage=stops,
)
