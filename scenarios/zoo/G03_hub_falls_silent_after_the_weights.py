"""The hub serves everything but the last small file: from_pretrained hangs after its last shard.

transformers looks the generation config up itself, once the weights are loaded and before
from_pretrained returns. A hub, or a proxy before it, that falls silent in the minutes in between
leaves a bar at 100 % and no word.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def falls_silent(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    home = place.tmp / "hf"
    servers.fill_hub_cache(home)
    with servers.serve_hub(
        place.tmp, [servers.HubRule("generation_config", delay=10**6)]
    ) as served:
        yield Stage(environment={**served.environment, "HF_HOME": str(home)})


CASE = Case(
    id="G03",
    title="the hub falls silent after the last shard, and from_pretrained does not return",
    cluster="C7",
    reports=("invoke-ai/InvokeAI PR 8735",),
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        checkpoint="weights",
        component=("hub",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("hub-silent",),
        avoids=("generation_config=direct", "generation_config=local-files-only", "hub=offline"),
    ),
    pipeline="generation",
    ranks=1,
    launcher="python",
    options=(
        *("--model", "people/small", "--timeout", "after_shards=20"),
        *("--until", "generation_config"),
    ),
    stage=falls_silent,
    limit=240.0,
)
