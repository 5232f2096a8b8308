"""Control: a file comes from the hub a little at a time, for half a minute.

One recv after the other in the same place; what moves are the bytes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def trickles(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    rule = servers.HubRule(r"GET .*/tokenizer\.json", chunk=1500, every=1.5)
    with servers.serve_hub(place.tmp, [rule]) as served:
        yield Stage(environment=served.environment)


CASE = Case(
    id="H15",
    title="control: a download that trickles",
    cluster="control",
    reports=("huggingface/xet-core#883",),
    truth=Truth(outcome="ok", slow="tokenizer"),
    options=("--tokenizer", "people/small", "--timeout", "tokenizer=15", "--until", "tokenizer"),
    stage=trickles,
    limit=240.0,
)
