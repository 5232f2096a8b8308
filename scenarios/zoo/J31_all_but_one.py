"""Three of four ranks wait for a server that does not answer; rank 1 has its answer already.

"The odd one out" is a good rule until most are stuck: here the majority is at fault, and the
one that is different only waits for it (huggingface/setfit#495: an API call without a time
limit).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def endpoint(place: CasePlace) -> Iterator[Stage]:
    """A server that does not answer."""
    from hangbisect.zoo.parts import servers

    with servers.silent_server() as port:
        yield Stage(environment={"ENDPOINT_PORT": str(port)})


def load_tokenizer(given: Any) -> None:
    """Ask for a vocabulary by HTTP; rank 1 has it."""
    import http.client
    import os

    from hangbisect.zoo.in_rank import rank_number

    if rank_number(given) != 1:
        connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["ENDPOINT_PORT"]))
        connection.request("GET", "/vocab.txt")
        connection.getresponse()


CASE = Case(
    id="J31",
    title="all but rank 1 of 4 wait for a silent server",
    cluster="C7",
    reports=("huggingface/setfit#495",),
    truth=Truth(
        outcome="hang",
        culprit=(0, 2, 3),
        waiting=(1,),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("socket",),
        detail="127.0.0.1",
        cause=("endpoint-silent",),
    ),
    ranks=4,
    stage=endpoint,
    uses={"tokenizer": "load_tokenizer"},
    options=("--until", "tokenizer"),
)
