"""The nodes among which a bad one is searched: those that a person names, those of the Slurm
allocation that we are started in, or those of a Ray cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..attach.host_names import read_host_names
from ..attach.nodes import SLURM_LIMIT, run_program
from ..base.deadline import run_command
from ..base.errors import HangbisectError, UsageError
from ..base.json_codec import from_json
from ..trials.ray_tasks import RayOrders, RayWord, make_ray_words

RAY_LIMIT = 60.0  # seconds for Ray to be imported, and to say which nodes it has
_HELP = "hangbisect nodes --hosts n1,n2,n[05-16]"


def read_named_nodes(text: str) -> tuple[str, ...]:
    """Return the nodes in "n[1-3,07],m", in their order.

    Raises UsageError for less than two, a name that stands twice or is none, and a range that is
    wrong or too large.
    """
    return check_nodes(read_host_names(text), "--hosts")


def check_nodes(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the names. Raises UsageError for less than two, or one that stands twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"{source} names {', '.join(twice[:4])} twice", "Name each node once.")
    if len(names) < 2:
        named = f"only {names[0]}" if names else "no node"
        raise UsageError(
            f"{source} names {named}: to tell a bad node from a good one takes two at least, and "
            "three to tell it from a link",
            _HELP,
        )
    return tuple(names)


def read_slurm_nodes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes of the allocation that we are started in.

    Raises UsageError where there is none, or only one node in it; HangbisectError where scontrol
    does not answer.
    """
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not environ.get("SLURM_JOB_ID") or not listed:
        raise UsageError(
            "this is no allocation of Slurm's (no SLURM_JOB_ID), and --hosts names no nodes",
            "Start it in one (salloc --nodes=4 hangbisect nodes), or name nodes: "
            "hangbisect nodes --hosts n1,n2,n3",
        )
    command = ("scontrol", "show", "hostnames", listed)
    printed = asyncio.run(run_program(command, SLURM_LIMIT, "Name the nodes with --hosts."))
    return check_nodes(printed.decode(errors="replace").split(), f"Slurm's {listed}")


def read_ray_nodes() -> tuple[str, ...]:
    """Return the addresses of the nodes of the Ray cluster that RAY_ADDRESS names, or that this
    machine is in.

    Raises UsageError where there are fewer than two, HangbisectError where no Ray answers.
    """
    ended = run_command(make_ray_words(RayOrders(lists_nodes=True)), RAY_LIMIT)
    words = []
    for line in ended.out.splitlines():
        with suppress(ValueError, RecursionError):
            words.append(from_json(RayWord, json.loads(line)))
    refused = next((word.why for word in words if word.ray == "refused"), "")
    if refused or ended.status != 0:
        why = refused or f"no Ray cluster answers within {RAY_LIMIT:.0f} s"
        raise HangbisectError(why, "RAY_ADDRESS names a cluster; `ray status` asks it.")
    return check_nodes([word.node for word in words if word.ray == "node"], "Ray")
