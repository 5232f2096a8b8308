"""Everything is in the cache, local_files_only=True, and from_pretrained asks the hub all the same.

Where peft is installed, transformers first looks whether the repository is an adapter, and does not
hand local_files_only on to that lookup (AutoModelForCausalLM.from_pretrained, seen in 5.23). A hub
or a proxy that never answers then holds a load that should have asked nobody. What a download found
missing is remembered in the cache, so it shows where the cache was filled in another way: copied
file by file, by git, or without peft.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def unanswered(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    home = place.tmp / "hf"
    servers.fill_hub_cache(home)
    with servers.silent_server() as port:
        yield Stage(environment={"HF_ENDPOINT": f"http://127.0.0.1:{port}", "HF_HOME": str(home)})


CASE = Case(
    id="G05",
    title="local_files_only=True is not handed on to the lookup of an adapter",
    cluster="C7",
    reports=("stanford-oval/genienlp#243",),
    truth=Truth(
        outcome="hang",
        culprit=(0,),
        checkpoint="weights",
        component=("hub",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("hub-silent",),
        avoids=("hub=offline",),
    ),
    pipeline="generation",
    ranks=1,
    launcher="python",
    options=(
        *("--model", "people/small", "--local-files-only"),
        *("--timeout", "files=20", "--until", "generation_config"),
    ),
    stage=unanswered,
    needs=("peft",),
    limit=240.0,
)
