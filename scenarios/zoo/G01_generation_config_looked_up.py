"""All shards are loaded, and then nothing: the generation config is looked up on a silent hub.

Weights and tokenizer come from the cache (local_files_only=True, as scripts for clusters do it),
and GenerationConfig.from_pretrained asks the hub for a file of a few hundred bytes. To people it
looks as if the model could not be loaded: the bar stands at 100 %, and no error comes
(invoke-ai/InvokeAI PR 8735: "causes generation to hang or fail when the network is unavailable,
slow, or behind a proxy"). The file is in the cache, but of another day, so the hub is asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def unanswered(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    home = place.tmp / "hf"
    servers.fill_hub_cache(home, missing=["adapter_config.json"])
    with servers.silent_server() as port:
        yield Stage(environment={"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(home)})


CASE = Case(
    id="G01",
    title="the generation config is looked up after the weights, on a hub that never answers",
    cluster="C7",
    reports=("invoke-ai/InvokeAI PR 8735", "stanford-oval/genienlp#243"),
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        checkpoint="generation_config",
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
        *("--model", "people/small", "--local-files-only"),
        *("--timeout", "generation_config=20", "--until", "generation_config"),
    ),
    stage=unanswered,
    limit=240.0,
)
