"""Find which node of several is bad, or which link between two of them.

hangbisect nodes --hosts n1,n2,n[03-16]              a probe on the nodes, by ssh
salloc --nodes=8 hangbisect nodes                    on the nodes of an allocation of Slurm's
hangbisect nodes --ray                               on the nodes of a Ray cluster
hangbisect nodes --kubernetes app=idle               on the nodes of these pods, one pod on each
hangbisect nodes -- torchrun --nproc_per_node=8 train.py    your job in place of the probe
hangbisect nodes --resume runs/nodes-...             go on after an interruption

It starts the probe, or your command, on each node alone, then in pairs, then on suspects with nodes
that are good, and at last searches for a link. A node is named after three failures at least, and
only where the others pass. Exit status: 0 found, or it is said from how many nodes on it fails; 1
nothing failed; 3 something failed and no name explains it; 5 nothing could be started; 130
interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..base.argument_types import Parser, around_dashes, count, dashes_missing, positive
from ..base.errors import UsageError
from ..base.host_names import check_one_word
from . import make_parser

if TYPE_CHECKING:
    from ..attach.pods import Pod
    from ..nodes.engines import EngineName
    from ..nodes.session import NodesRequest

_NAMES_NODES = ("hosts", "ray", "kubernetes")  # options
MOST_REPEATS = 100  # more starts of each set nobody waits for


def run(argv: list[str]) -> int:
    """Search for bad nodes; return what the answer comes to."""
    ours, command = around_dashes(argv)
    parser = _make_nodes_parser()
    check_one_word(ours)
    _, rest = parser.parse_first(ours)
    if "--" not in argv and rest and not rest[0].startswith("-"):
        raise dashes_missing("nodes", argv, rest[0])
    args = parser.parse_all(ours)
    from ..nodes.engines import make_engine, read_pods
    from ..nodes.session import find_bad_nodes

    pods: Sequence[Pod] = ()
    if args.kubernetes:
        pods = read_pods(args.kubernetes, args.namespace)
    request = _resume(args, command) if args.resume else _request(args, command, pods)
    if request.selector and not pods:
        pods = _find_pods_again(request)
    engine = make_engine(request.engine, os.environ, pods, request.namespace)
    return find_bad_nodes(request, engine)


def _make_nodes_parser() -> Parser:
    parser = make_parser("nodes", __doc__)
    add = parser.add_argument
    hosts = "these nodes, by ssh, names with ranges: n1,n[05-16] (the nodes of the allocation)"
    add("--hosts", metavar="NAMES", help=hosts)
    add("--ray", action="store_true", help="the nodes of the Ray cluster that RAY_ADDRESS names")
    add("--kubernetes", metavar="SELECTOR", help="the nodes of the pods with these labels")
    add("--namespace", metavar="NAME", help="of the pods (that of kubectl's context)")
    add("--resume", metavar="DIR", help="go on with the search in DIR; repeat no start")
    add("--run-dir", metavar="DIR", help="the search's folder (runs/nodes-<UTC time>-<id>)")
    add("--yes", action="store_true", help="do not ask before a command of yours is started")
    add("--plain", action="store_true", help="only lines as in a log")
    add("--json", action="store_true", help="the answer as JSON on standard output")
    add = parser.add_argument_group("the search").add_argument
    for flag, metavar, read, help in (
        (
            "--limit",
            "SECONDS",
            positive("--limit"),
            "of a start (90; of a command 600)",
        ),
        ("--confirm", "N", count("--confirm", 1), "failures before a node is named (3)"),
        ("--repeats", "N", _repeats, "starts until a set passes; 8 if it comes and goes (1)"),
        ("--max-rounds", "N", count("--max-rounds", 1), "end after this many rounds"),
        ("--max-time", "SECONDS", positive("--max-time"), "end after this time of starts"),
    ):
        add(flag, metavar=metavar, type=read, help=help)
    add("--without-torch", action="store_true", help="the probe only: no process group, no GPU")
    return parser


def _repeats(value: str) -> int:
    found = count("--repeats", 1)(value)
    if found > MOST_REPEATS:
        raise UsageError(f"--repeats cannot be {value!r}: it is at most {MOST_REPEATS}")
    assert isinstance(found, int)
    return found


def _request(args: argparse.Namespace, command: Sequence[str], pods: Sequence[Pod]) -> NodesRequest:
    from ..nodes.session import NodesRequest
    from ..search.node_search import CONFIRM

    engine, nodes = _choose_nodes(args, pods)
    return NodesRequest(
        nodes=nodes,
        engine=engine,
        command=tuple(command),
        limit=args.limit,
        confirm=args.confirm or CONFIRM,
        repeats=args.repeats or 1,
        max_rounds=args.max_rounds,
        max_time=args.max_time,
        torch=not args.without_torch,
        folder=args.run_dir,
        started_in=os.getcwd(),
        selector=args.kubernetes or "",
        namespace=args.namespace,
        yes=args.yes,
        json=args.json,
        plain=args.plain or not sys.stdout.isatty() or "NO_COLOR" in os.environ,
    )


def _choose_nodes(
    args: argparse.Namespace, pods: Sequence[Pod]
) -> tuple[EngineName, tuple[str, ...]]:
    from ..nodes.engines import list_pod_nodes, read_named_nodes, read_ray_nodes, read_slurm_nodes

    named = [name for name in _NAMES_NODES if getattr(args, name) not in (None, False)]
    if len(named) > 1:
        both = " and ".join(f"--{name}" for name in named)
        raise UsageError(f"{both} both name nodes", "One of them.")
    if args.namespace is not None and not args.kubernetes:
        raise UsageError("--namespace is of pods", "--kubernetes SELECTOR names them.")
    if args.kubernetes:
        return "kubernetes", list_pod_nodes(pods, args.kubernetes)
    if args.hosts is not None:
        return "hosts", read_named_nodes(args.hosts)
    if args.ray:
        return "ray", read_ray_nodes()
    return "slurm", read_slurm_nodes(os.environ)


def _resume(args: argparse.Namespace, command: Sequence[str]) -> NodesRequest:
    """Return what was asked for when it began; how long it may take can be said anew."""
    from ..nodes.engines import read_slurm_nodes
    from ..nodes.session import read_nodes_answer, resume_request

    if any(getattr(args, name) not in (None, False) for name in (*_NAMES_NODES, "run_dir")):
        raise UsageError(
            "--resume goes on with what was begun: no --hosts, --ray, --kubernetes or --run-dir "
            "beside it"
        )
    answer = read_nodes_answer(args.resume)
    if answer.engine == "slurm":
        gone = set(answer.nodes) - set(read_slurm_nodes(os.environ))
        if gone:
            some = ", ".join(sorted(gone)[:4])
            raise UsageError(
                f"{args.resume} is a search among nodes that this allocation has not: {some}",
                f"salloc --nodelist={','.join(answer.nodes)} and the same again",
            )
    was = resume_request(answer, args.resume, tuple(command))
    return replace(
        was,
        limit=args.limit or was.limit,
        max_rounds=args.max_rounds or None,
        max_time=args.max_time or None,
        yes=args.yes,
        json=args.json,
        plain=args.plain or not sys.stdout.isatty() or "NO_COLOR" in os.environ,
    )


def _find_pods_again(request: NodesRequest) -> Sequence[Pod]:
    """Return the pods of a search that was begun. Raises UsageError where a node has none now."""
    from ..nodes.engines import read_pods

    pods = read_pods(request.selector, request.namespace)
    gone = [node for node in request.nodes if node not in {pod.node for pod in pods}]
    if gone:
        raise UsageError(
            f"no pod with {request.selector!r} runs on {', '.join(gone[:4])} any more",
            "Start one there, or begin anew without --resume.",
        )
    return pods
