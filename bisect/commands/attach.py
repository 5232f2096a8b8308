"""Look at the job that hangs right now: which rank, in which call, and why.

hangbisect attach                    the job that runs here; several are listed
hangbisect attach PID                the job that a process belongs to (`hangbisect PID` does, too)
hangbisect attach PID PID            several processes that are one job
hangbisect attach PID --kill         then end it: every rank and all that belongs to it
hangbisect attach --slurm [JOBID]    on every node of a job; so do --hosts and --kubernetes

It changes nothing in the job and ends nothing, unless --kill says so. If the job moves, it
says so (status 0). If it hangs (status 3), or stands still without a proof that it hangs (status
4), it says why, and writes the same run folder as for a job that was watched from its start.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..attach.nodes import options as nodes
from ..base.argument_types import Parser, count, positive
from ..base.errors import UsageError
from . import make_parser

if TYPE_CHECKING:
    from ..attach.jobs import Job

SEVERAL = 2  # exit status: which job is meant has to be said


def run(argv: list[str]) -> int:
    """Find the job, look at it, and say what is found; return the exit status."""
    args = _parser().parse_all(argv)
    if nodes.asks_other_nodes(args):
        return asyncio.run(nodes.attach_to_nodes(args))
    return asyncio.run(_attach(args))


def _parser() -> Parser:
    parser = make_parser("attach", __doc__)
    add = parser.add_argument
    add("pids", nargs="*", metavar="PID", type=count("PID", 1), help="a process of the job")
    add("--pid", action="append", default=[], type=count("--pid", 1), help="the same")
    add("--run-dir", metavar="DIR", help="the run folder (runs/<UTC time>-<pid>)")
    add(
        "--for",
        dest="span",
        metavar="SECONDS",
        type=positive("--for"),
        help="time without movement before a job is said to stand still (2.1)",
    )
    add("--kill", dest="ends", action="store_true", help="then end the job, unless it moves")
    add("--json", action="store_true", help="the verdict as JSON")
    add("--facts", action="store_true", help="what is seen on this machine, as JSON, to be merged")
    nodes.add_options(parser)
    return parser


async def _attach(args: argparse.Namespace) -> int:
    from ..attach.job_list import choice_lines, no_job_lines
    from ..attach.job_looks import STILL_SPAN
    from ..attach.jobs import find_jobs
    from ..attach.session import AttachRequest, attach_to_job, print_facts

    pids = [*args.pids, *args.pid]
    found = await find_jobs(pids)
    jobs = found.jobs if pids else jobs_of_user(nodes.select_local_jobs(args, found))
    if not jobs and found.jobs and not args.only:
        raise UsageError(
            f"no job of yours runs here; of other users' {len(found.jobs)} do",
            "`hangbisect` alone lists them: sudo hangbisect attach PID",
        )
    if not jobs:
        raise UsageError(
            no_job_lines(found)[0],
            "Give the pid of one of its processes (hangbisect attach PID), or start it under the "
            "watch: hangbisect run -- COMMAND",
        )
    job = jobs[0] if len(jobs) == 1 else _ask_person(jobs, choice_lines(found, jobs))
    if job is None:
        return SEVERAL
    span = args.span or STILL_SPAN
    if args.facts:
        return await print_facts(found, job, span)
    run_dir = Path(os.path.abspath(args.run_dir)) if args.run_dir else None
    return await attach_to_job(found, job, AttachRequest(span, run_dir, args.ends, args.json))


def jobs_of_user(jobs: Sequence[Job]) -> Sequence[Job]:
    """Return this user's jobs of several ranks, or with a launcher; where there are none, the
    processes that have torch and stand alone. For root, those of all users.
    """
    me = os.geteuid()
    jobs = [job for job in jobs if me in (0, job.uid)]
    sure = [job for job in jobs if not job.ranks or any(r.by != "alone" for r in job.ranks)]
    return sure or jobs


def _ask_person(jobs: Sequence[Job], lines: Sequence[str]) -> Job | None:
    """Return which job a person at the terminal means; without a terminal, or an answer, None."""
    print("\n".join(lines), file=sys.stderr)
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    print("which? PID: ", end="", file=sys.stderr, flush=True)
    said = sys.stdin.readline().strip()
    return next((job for job in jobs if str(job.pid) == said), None)
