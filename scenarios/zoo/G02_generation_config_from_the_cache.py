"""The same silent hub, and a script that looks the generation config up in the cache alone.

A control: local_files_only=True asks nobody, although it was under suspicion.
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
    id="G02",
    title="with local_files_only=True the silent hub is not asked",
    cluster="C7",
    reports=("invoke-ai/InvokeAI PR 8735",),
    truth=Truth(outcome="ok"),
    pipeline="generation",
    ranks=1,
    launcher="python",
    options=(
        *("--model", "people/small", "--local-files-only", "--steps", "1"),
        *("--generation-config", "local-files-only", "--max-new-tokens", "8"),
    ),
    stage=unanswered,
    limit=240.0,
)
