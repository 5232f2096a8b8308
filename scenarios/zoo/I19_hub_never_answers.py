"""The hub accepts the connection and never answers: every rank sits in recv.

"no timeout, no retry, no error, no log output" (huggingface/xet-core#850): requests do have a limit
of ten seconds each, but with retries for every file that may exist it takes many minutes until the
first error is seen (huggingface/setfit#495: "about five minutes").
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
    id="I19",
    title="the hub never answers",
    cluster="C7",
    reports=("huggingface/setfit#495", "huggingface/xet-core#850", "espnet/espnet_model_zoo#76"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("hub-silent",),
        avoids=("hub=offline",),
        call=r"AutoTokenizer\.from_pretrained$",
        chain=(r"rank \d+ -> 127\.0\.0\.1:\d+",),
        explained_by=(r"127\.0\.0\.1:\d+",),
    ),
    options=("--tokenizer", "people/small", "--timeout", "tokenizer=20", "--until", "tokenizer"),
    stage=unanswered,
    limit=150.0,
)
