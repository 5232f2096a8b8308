"""What NCCL itself says, and the variables by which each rank decides how it sends.

It says versions that differ, and addresses that it cannot reach.
Its lines are read from the files that ranks print to (evidence/gpus/nccl_lines.py), so they may be
those of some ranks alone: what is said here is what these show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...base.identity import RankId
from ...base.rank_facts import RankFacts
from ...base.words import format_ranks
from .collective_places import waits_elsewhere_but
from .gpu import makes_nccl, meets_over_nccl
from .known_cause import Found, KnownCause, Scene, also, need, unless

# initTransportsRank of init.cc: the ranks are those of one communicator.
_MISMATCHED = re.compile(
    r"Mismatched NCCL version detected ?: rank (\d{1,7}) version (\d{4,6})"
    r" rank (\d{1,7}) version (\d{4,6})"
)


# ---- signs ---------------------------------------------------------------------------------------


def _versions_differ(scene: Scene) -> Found | None:
    """NCCL says another version on some ranks than on others."""
    found: dict[str, list[RankId]] = {}
    for facts in scene.ranks:
        if facts.nccl.version:
            found.setdefault(facts.nccl.version, []).append(facts.rank)
    if len(found) > 1:
        words = (f"{version} on {format_ranks(ranks)}" for version, ranks in sorted(found.items()))
        return Found(f"NCCL {', '.join(words)}")
    match = next((m for t in _list_warnings(scene.ranks) if (m := _MISMATCHED.search(t))), None)
    if match is None:
        return None
    one, other = (_format_version(int(match[at])) for at in (2, 4))
    return Found(
        f"NCCL says that rank {match[1]} of a communicator has {one}, and rank {match[3]} of it "
        f"{other}"
    )


def _list_warnings(ranks: Sequence[RankFacts]) -> Iterator[str]:
    yield from (text for facts in ranks for text in facts.nccl.warnings)


def _format_version(code: int) -> str:
    """Return "2.21.5" for 22105 (NCCL_VERSION of nccl.h: up to 2.8 it was 2708 for 2.7.8)."""
    major, rest = divmod(code, 10_000 if code >= 10_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _cannot_connect(scene: Scene) -> Found | None:
    """NCCL says that it cannot connect to another rank, and has made no communicator since."""
    found: dict[tuple[str, str], list[RankId]] = {}
    for facts in scene.ranks:
        for one in facts.nccl.unreached[-1:]:
            found.setdefault((one.address, one.reason), []).append(facts.rank)
    if not found:
        return None
    (address, reason), ranks = max(found.items(), key=lambda one: (bool(one[0][0]), len(one[1])))
    where = f"{address}{_say_who_is_there(scene, address)}" if address else "another rank"
    meets = "" if address else _say_where_they_meet(scene)
    values = {"where": address or "that address", "who": format_ranks(ranks)}
    return Found(
        f"NCCL on {format_ranks(ranks)} cannot connect to {where}{meets}: {reason}", values
    )


def _say_who_is_there(scene: Scene, address: str) -> str:
    """Return in words which ranks told that they meet by the host of an address."""
    host = address.partition("<")[0].partition("%")[0]
    there: dict[str, list[RankId]] = {}
    for facts in scene.ranks:
        if facts.nccl.address and facts.nccl.address.partition("%")[0] == host:
            there.setdefault(facts.nccl.interface, []).append(facts.rank)
    words = ", ".join(
        f"{format_ranks(ranks)} {'is' if len(ranks) == 1 else 'are'} ({name})"
        for name, ranks in there.items()
    )
    return f", where {words}" if words else ""


def _say_where_they_meet(scene: Scene) -> str:
    """Return in words where rank 0, which the others connect to first, told that it is."""
    first = scene.rank(0)
    if first is None or not first.nccl.address:
        return ""
    return f" (rank 0 is at {first.nccl.address}, {first.nccl.interface})"


# By these each rank decides for itself how it sends, and in how many parts (NCCL's user guide,
# Environment Variables). Interfaces, cards and files may be others on each node.
_SHARED_VARIABLES = (
    *("NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_NTHREADS", "NCCL_COLLNET_ENABLE"),
    *("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
    *("NCCL_NVLS_ENABLE", "NCCL_CROSS_NIC", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_IB_DISABLE"),
    *("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_P2P_NET_CHUNKSIZE"),
    *("NCCL_SOCKET_FAMILY", "NCCL_CUMEM_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_PXN_DISABLE"),
    *("NCCL_NET_OVERHEAD", "NCCL_TUNER_PLUGIN", "NCCL_LAUNCH_ORDER_IMPLICIT"),
)


def _variables_differ(scene: Scene) -> Found | None:
    """Variables of NCCL's that must be the same on all ranks are not."""
    known = [facts for facts in scene.ranks if facts.environment]
    for name in _SHARED_VARIABLES:
        found: dict[str, list[RankId]] = {}
        for facts in known:
            found.setdefault(facts.environment.get(name, "not set"), []).append(facts.rank)
        if len(found) > 1:
            by_size = sorted(found.items(), key=lambda one: -len(one[1]))
            words = (f"{value} on {format_ranks(ranks)}" for value, ranks in by_size)
            return Found(f"{name} is {', '.join(words)}", {"variable": name})
    return None


def _is_in_nccl(scene: Scene) -> Found | None:
    """A rank is where NCCL makes its communicator, or waits in an operation of NCCL's."""
    return makes_nccl(scene) or meets_over_nccl(scene)


# What a rank waits for in the middle of NCCL, as far as its stack does not show where it is.
_waits_for_its_own = waits_elsewhere_but("socket", "thread", "kernel")


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id="nccl-versions-differ",
        title="ranks have different versions of NCCL",
        signs=(need(_versions_differ, 0.9, proves=True), unless(_waits_for_its_own)),
        why="NCCL of one version does not understand what another one sends while they make a "
        "communicator: ranks wait for more bytes than come, or fail.",
        avoid=(
            "the same environment on all nodes: `python -c 'import torch; "
            "print(torch.cuda.nccl.version())'` says the version on each",
            "no other libnccl in LD_LIBRARY_PATH or LD_PRELOAD",
        ),
        references=("NVIDIA/nccl#1328", "pytorch/pytorch#122571"),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="nccl-variables-differ",
        title="variables of NCCL's are others on some ranks",
        signs=(
            need(_variables_differ, 0.6),
            need(_is_in_nccl, 0.4),
            also(makes_nccl, 0.2),
            unless(_waits_for_its_own),
        ),
        why="By {variable} each rank decides for itself how it sends; where ranks decide "
        "differently, each waits for what the other never sends.",
        avoid=(
            "the same {variable} on all ranks: srun --export=ALL, mpirun -x {variable}, or set "
            "in the script itself before torch is imported",
            "NCCL 2.31 and later compares them itself: NCCL_RUN_RAS_DIAGNOSTICS=1",
        ),
        references=("NVIDIA/nccl#260", "NVIDIA/nccl#1136"),
    ),
    KnownCause(
        id="nccl-cannot-connect",
        title="NCCL cannot connect to another rank",
        signs=(need(_cannot_connect, 0.9, proves=True), unless(_waits_for_its_own)),
        why="Each rank tells the others the address of an interface that NCCL chose, and any free "
        "port; on {who} nothing answers at {where}, and NCCL tries again for minutes.",
        avoid=(
            "NCCL_SOCKET_IFNAME=<the interface to the other nodes>, on all nodes (^docker,veth "
            "leaves those out)",
            "no firewall between the nodes of a job: NCCL takes any port of "
            "net.ipv4.ip_local_port_range",
            "NCCL_DEBUG=INFO says which interface each rank chose (Bootstrap : Using ...)",
        ),
        references=(
            "pytorch/pytorch#68893",
            "NVIDIA/nccl#975",
            "NVIDIA/nccl#1515",
            "horovod/horovod#666",
        ),
        outcomes=("hang", "interrupted", "crash"),
    ),
)
