"""The options of `attach` for a job on other machines, and what they do."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...base.argument_types import assignment, positive
from ...base.errors import HangbisectError, UsageError

if TYPE_CHECKING:
    from ..jobs import FoundJobs, Job
    from .asking import RemoteJob

NODE_LIMIT = 30.0  # seconds for each machine
_TRANSPORTS = ("slurm", "hosts", "kubernetes")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    add = parser.add_argument_group("a job on other machines").add_argument
    add(
        "--slurm",
        nargs="?",
        const="",
        metavar="JOBID",
        help="every node of a job of Slurm's (your only running one), by a step beside its own",
    )
    add("--hosts", metavar="A,B", help="these hosts, by ssh")
    add("--kubernetes", metavar="SELECTOR", help="the pods with these labels: app=train")
    add("--namespace", metavar="NAME", help="of the pods (that of kubectl's context)")
    add(
        "--limit",
        metavar="SECONDS",
        type=positive("--limit"),
        default=NODE_LIMIT,
        help=f"for each machine to answer ({NODE_LIMIT:g}); the others are used",
    )
    add(
        "--in",
        dest="only",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=assignment("--in"),
        help="of several jobs, here or there, the one whose ranks have this variable",
    )


def asks_other_nodes(args: argparse.Namespace) -> bool:
    """Return whether other machines are to be asked. Raises UsageError for what cannot be."""
    means = [f"--{name}" for name in _TRANSPORTS if getattr(args, name) is not None]
    if len(means) > 1:
        raise UsageError(
            f"{' and '.join(means)} contradict each other: one of them reaches the job"
        )
    if means and (args.pids or args.pid):
        raise UsageError(f"a PID is of this machine, and {means[0]} asks others: give one of them")
    if means and args.ends:
        raise UsageError(f"--kill ends processes of this machine, and {means[0]} asks others")
    return bool(means)


def select_local_jobs(args: argparse.Namespace, found: FoundJobs) -> Sequence[Job]:
    """Return the jobs of this machine that --in leaves."""
    from ..jobs import select_jobs

    return select_jobs(found.jobs, found.processes, dict(args.only))


async def attach_to_nodes(args: argparse.Namespace) -> int:
    """Ask the machines, judge what they tell as one job, say it; return the exit status."""
    from .asking import ask_nodes
    from .merge import answer_for_nodes

    job = await _find_remote_job(args)
    names = ", ".join(node.name for node in job.nodes[:8])
    more = ", ..." if len(job.nodes) > 8 else ""
    _print_to_stderr(
        f"Asking {len(job.nodes)} of {job.says}: {names}{more}; {args.limit:g} s at most"
    )
    began = time.monotonic()
    answers = await ask_nodes(job.nodes, args.limit)
    silent = [one for one in answers if one.facts is None]
    for one in silent:
        _print_to_stderr(f"{one.node.name}: {one.trouble}\n    there: {one.node.paste}")
    if len(silent) == len(answers):
        raise HangbisectError(
            f"none of {len(answers)} machines told anything of {job.says}",
            "Run what stands above on one of them.",
        )
    run_dir = Path(os.path.abspath(args.run_dir)) if args.run_dir else None
    return await answer_for_nodes(job, answers, began, run_dir, args.json)


async def _find_remote_job(args: argparse.Namespace) -> RemoteJob:
    from . import transports

    only = dict(args.only)
    if args.slurm is not None:
        return await transports.find_slurm_job(args.slurm, args.span, only)
    if args.hosts is not None:
        return transports.find_ssh_hosts(args.hosts, args.span, only)
    return await transports.find_pods(args.kubernetes, args.namespace, args.span, only)


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
