"""Control: the hub answers each request after three seconds.

The same stack at every look, a socket in recv, and yet each answer comes: slow, not hung.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def takes_its_time(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    with servers.serve_hub(place.tmp, [servers.HubRule(".*", delay=3.0)]) as served:
        yield Stage(environment=served.environment)


CASE = Case(
    id="H14",
    title="control: a hub that takes 3 s for each answer",
    cluster="control",
    reports=("huggingface/setfit#495",),
    truth=Truth(outcome="ok", slow="tokenizer"),
    options=("--tokenizer", "people/small", "--timeout", "tokenizer=12", "--until", "tokenizer"),
    stage=takes_its_time,
    limit=240.0,
)
