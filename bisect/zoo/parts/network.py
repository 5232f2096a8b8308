"""Networks of a job's own: namespaces, and addresses that nobody answers at. They need root."""

from __future__ import annotations

from collections.abc import Sequence

UNANSWERED = "10.255.255.1"  # packets to it leave, and nothing comes back

# A pair of virtual cables: what goes into one end comes out at the other, where nobody has that
# address. The neighbour is told by hand, so that ARP does not fail first.
CABLE = (
    "ip link add cable type veth peer name far-end",
    "ip addr add 10.255.255.2/24 dev cable",
    "ip link set far-end up",
    "ip link set cable up",
    f"ip neigh replace {UNANSWERED} lladdr 02:00:00:00:00:01 dev cable",
)


def own_network(unanswered: bool = False, also: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the words in front of a command that give it a network of its own, loopback only.

    With `unanswered`: also an address that swallows whatever is sent to it. `also`: further
    commands for the shell, in the new namespace.
    """
    commands = ["ip link set lo up", *(CABLE if unanswered else ()), *also, 'exec "$@"']
    return ("unshare", "--net", "--", "sh", "-e", "-c", "\n".join(commands), "sh")


def own_mounts(also: Sequence[str] = (), network: bool = False) -> tuple[str, ...]:
    """Return the words in front of a command that give it mounts of its own.

    `also`: commands for the shell in there, to mount something that nobody else sees.
    """
    kinds = ("--mount", "--net") if network else ("--mount",)
    commands = [*also, 'exec "$@"']
    return ("unshare", *kinds, "--", "sh", "-e", "-c", "\n".join(commands), "sh")
