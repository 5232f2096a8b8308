"""The name server does not answer, and torchrun itself hangs before any rank exists.

torchrun's store looks addresses up backwards, only to write them into a log line; with a name
server that is silent this takes minutes, at each of its steps (getnameinfo below
c10d::formatSockAddr). No rank is ever started, even with --master_addr 127.0.0.1, so nothing that
lives in a rank can say a word (pytorch/pytorch#150532, #159007).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def silent_name_server(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.system import CABLE, UNANSWERED, own_mounts

    file = place.tmp / "resolv.conf"
    file.write_text(f"nameserver {UNANSWERED}\noptions timeout:30 attempts:5\n")
    bind = f"mount --bind {file} /etc/resolv.conf"
    yield Stage(prefix=own_mounts(("ip link set lo up", *CABLE, bind), network=True))


CASE = Case(
    id="I09",
    title="torchrun waits for a name server, no rank exists",
    cluster="C6",
    reports=("pytorch/pytorch#150532", "pytorch/pytorch#159007", "pytorch/pytorch#80772"),
    truth=Truth(
        outcome="hang",
        checkpoint="launcher",
        component=("launcher",),
        waits_for=("socket",),
        cause=("name-server-silent",),
    ),
    stage=silent_name_server,
    needs=("root", "unshare", "network namespace"),
    # In the pipeline only ranks start the watch, and none is started.
    under=("run", "attach"),
)
