"""The hub is well, but the way there leads through a proxy that accepts and never answers.

`https_proxy` comes with the cluster's profile, and nobody thinks of it: curl from the login node
works, the job sits in recv at an address that nobody asked for (huggingface/huggingface_hub#1020,
InternLM/Tutorial#142).
Excepting the one host is enough, and so is no proxy at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def detour(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    home = place.tmp / "hf"
    servers.fill_hub_cache(home)
    with servers.serve_hub(place.tmp) as served, servers.silent_server() as port:
        proxy = f"http://127.0.0.1:{port}"
        proxies = {"http_proxy": proxy, "https_proxy": proxy}
        limit = {"HF_HUB_ETAG_TIMEOUT": "600"}  # seconds; ten by default, for each of many files
        yield Stage(
            environment={**served.environment, **proxies, **limit, "HF_HOME": str(home)},
        )


CASE = Case(
    id="L04",
    title="the proxy to the hub never answers",
    cluster="C7",
    reports=("huggingface/huggingface_hub#1020", "InternLM/Tutorial#142"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("socket",),
        detail="ESTABLISHED",
        cause=("proxy-silent",),
        avoids=("proxy=excepted:127.0.0.1", "proxy=off", "hub=offline"),
        call=r"AutoTokenizer\.from_pretrained$",
        chain=(r"rank \d+ -> 127\.0\.0\.1:\d+",),
        explained_by=(r"127\.0\.0\.1:\d+", "proxy|PROXY"),
    ),
    options=("--tokenizer", "people/small", "--until", "tokenizer"),
    stage=detour,
)
