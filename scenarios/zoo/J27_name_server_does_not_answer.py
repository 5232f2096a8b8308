"""The name server does not answer, and both ranks ask it for the hub's address.

pytorch/pytorch#67547, #80772, #159007. Ranks sit in getaddrinfo, in poll() on a UDP socket;
with the usual options of the resolver for 10 s a name, here (timeout:30 attempts:5) for
minutes. The names of this machine are in /etc/hosts, or the launcher itself would hang.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def dead_name_server(place: CasePlace) -> Iterator[Stage]:
    """A network of its own with a name server that swallows every question."""
    from hangbisect.zoo.parts import system

    resolver = place.tmp / "resolv.conf"
    resolver.write_text(f"nameserver {system.UNANSWERED}\noptions timeout:30 attempts:5\n")
    hosts = place.tmp / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n")
    switch = place.tmp / "nsswitch.conf"
    switch.write_text("hosts: files dns\n")
    mounts = system.own_mounts(
        [
            f"mount --bind {resolver} /etc/resolv.conf",
            f"mount --bind {hosts} /etc/hosts",
            f"test ! -e /etc/nsswitch.conf || mount --bind {switch} /etc/nsswitch.conf",
        ]
    )
    yield Stage(prefix=(*system.own_network(unanswered=True), *mounts))


def load_tokenizer(given: Any) -> Any:
    """Return the tokenizer, after a look at where the hub is."""
    import socket

    from hangbisect.zoo.in_rank import run_usual_step

    tokenizer = run_usual_step(given)
    socket.getaddrinfo("hub.example.org", 443)
    return tokenizer


CASE = Case(
    id="J27",
    title="a name server does not answer the ranks",
    cluster="C6",
    reports=("pytorch/pytorch#67547", "pytorch/pytorch#80772"),
    culprit_goes="everywhere",
    truth=Truth(
        outcome="hang",
        culprit=(0, 1),
        checkpoint="tokenizer",
        component=("hub",),
        waits_for=("socket",),
        detail=":53|resolver|name",
        cause=("name-server-silent",),
    ),
    stage=dead_name_server,
    uses={"tokenizer": "load_tokenizer"},
    needs=("root", "unshare", "network namespace"),
)
