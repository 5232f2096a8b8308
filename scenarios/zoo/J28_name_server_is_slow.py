"""Three name servers do not answer, one after the other; then the name is looked up elsewhere.

The resolver's own patience (resolv.conf(5)) makes 12 s of it, in which nothing moves and nobody
is hung. A control: longer than --stall, shorter than the looks that follow.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def dead_name_servers(place: CasePlace) -> Iterator[Stage]:
    """A network of its own with three name servers that swallow every question."""
    from hangbisect.zoo.parts import system

    resolver = place.tmp / "resolv.conf"
    servers = f"nameserver {system.UNANSWERED}\n" * 3
    resolver.write_text(f"{servers}options timeout:4 attempts:1\n")
    hosts = place.tmp / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n")
    mounts = system.own_mounts(
        [f"mount --bind {resolver} /etc/resolv.conf", f"mount --bind {hosts} /etc/hosts"]
    )
    yield Stage(prefix=(*system.own_network(unanswered=True), *mounts))


def load_tokenizer(given: Any) -> Any:
    """Return the tokenizer, whether the hub has a name or not."""
    import contextlib
    import socket

    from hangbisect.zoo.in_rank import run_usual_step

    tokenizer = run_usual_step(given)
    with contextlib.suppress(OSError):
        socket.getaddrinfo("hub.example.org", 443, socket.AF_INET)
    return tokenizer


CASE = Case(
    id="J28",
    title="names take 12 s to fail: slow, not hung",
    cluster="C6",
    reports=("pytorch/pytorch#159007",),
    truth=Truth(outcome="ok"),
    stage=dead_name_servers,
    uses={"tokenizer": "load_tokenizer"},
    options=("--until", "tokenizer"),
    needs=("root", "unshare", "network namespace"),
)
