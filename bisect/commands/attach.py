"""Look at the job that hangs right now: which rank, in which call, and why.

hangbisect attach                    the job that runs here; of several the only one that stands
                                     still, else they are listed
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
import gc
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..base.argument_types import Parser, assignment, count, positive
from ..base.errors import HangbisectError, UsageError
from ..base.host_names import check_one_word
from . import make_parser

if TYPE_CHECKING:
    from ..attach.job_search import FoundJobs
    from ..attach.jobs import Job
    from ..attach.nodes import NodeAnswer, RemoteJob

SEVERAL = 2  # exit status: which job is meant has to be said
NODE_LIMIT = 30.0  # seconds for each machine
_TRANSPORTS = ("slurm", "hosts", "kubernetes")


def run(argv: list[str]) -> int:
    """Find the job, look at it, and say what is found; return the exit status."""
    check_one_word(argv)
    args = _make_attach_parser().parse_all(argv)
    if asks_other_nodes(args):
        gc.disable()  # what they tell is kept to the end: to search it takes a quarter more time
        try:
            return asyncio.run(attach_to_nodes(args))
        finally:
            gc.enable()
    if args.answer:
        return asyncio.run(_answer(args))
    return asyncio.run(_attach(args))


def _make_attach_parser() -> Parser:
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
    add("--yes", action="store_true", help="do not ask before --kill ends ranks elsewhere")
    add("--json", action="store_true", help="the verdict as JSON")
    add(
        "--gpu-stacks",
        action="store_true",
        help="which kernels the GPUs of up to 8 ranks of this machine run, where the job was "
        "started with CUDA_ENABLE_USER_TRIGGERED_COREDUMP=1: stops them for the moment",
    )
    add(
        "--native-threads",
        action="store_true",
        help="the native frames of all threads of up to 2 ranks of this machine, those of NCCL and "
        "torch too, by pystack or gdb: pauses each for up to some seconds",
    )
    add("--answer", action="store_true", help="answer who asks from another machine")
    add_node_options(parser)
    return parser


async def _attach(args: argparse.Namespace) -> int:
    from ..attach.answer import choice_lines, describe_last_movements, find_only_still
    from ..attach.job_looks import STILL_SPAN
    from ..attach.job_search import find_jobs
    from ..attach.node_facts import Wanted
    from ..attach.session import AttachRequest, attach_to_job

    pids = [*args.pids, *args.pid]
    found = await find_jobs(pids)
    jobs = _choose_jobs(args, found, pids)
    job = jobs[0] if len(jobs) == 1 else None
    if job is None:
        last = await describe_last_movements(jobs)
        job = find_only_still(jobs, last, args.ends)
        if job is None:
            job = _ask_person(jobs, choice_lines(jobs, last))
        else:
            others = f"Of {len(jobs)} jobs that run here the others move: "
            print(f"{others}`hangbisect` alone lists them", file=sys.stderr, flush=True)
    if job is None:
        return SEVERAL
    span = args.span or STILL_SPAN
    run_dir = Path(os.path.abspath(args.run_dir)) if args.run_dir else None
    wanted = Wanted(args.gpu_stacks, args.native_threads)
    request = AttachRequest(span, run_dir, args.ends, args.json, wanted)
    return await attach_to_job(found, job, request)


def _choose_jobs(args: argparse.Namespace, found: FoundJobs, pids: Sequence[int]) -> Sequence[Job]:
    """Return the jobs of this machine that may be meant. Raises UsageError for none."""
    from ..attach.answer import no_job_lines
    from ..attach.node_answer import NoJob

    jobs = found.jobs if pids else jobs_of_user(select_local_jobs(args, found))
    if not jobs and found.jobs and not args.only:
        raise UsageError(
            f"no job of yours runs here; of other users' {len(found.jobs)} do",
            "`hangbisect` alone lists them: sudo hangbisect attach PID",
        )
    if not jobs:
        kind = UsageError if found.jobs else NoJob
        raise kind(
            no_job_lines(found)[0],
            "Give the pid of one of its processes (hangbisect attach PID), or start it under the "
            "watch: hangbisect run -- COMMAND",
        )
    return jobs


async def _answer(args: argparse.Namespace) -> int:
    """Answer who asks from another machine; say it where there is nothing to tell."""
    from ..attach.job_looks import STILL_SPAN
    from ..attach.job_search import find_jobs
    from ..attach.node_answer import SeveralJobs, answer_asker, say_trouble

    name = os.environ.get("SLURMD_NODENAME", "") if "SLURM_JOB_ID" in dict(args.only) else ""
    if name:
        args.only.append(("SLURMD_NODENAME", name))
    try:
        pids = [*args.pids, *args.pid]
        found = await find_jobs(pids)
        jobs = _choose_jobs(args, found, pids)
        if len(jobs) > 1:
            raise SeveralJobs(f"{len(jobs)} jobs run here")
        return await answer_asker(name, found, jobs[0], args.span or STILL_SPAN)
    except HangbisectError as error:
        say_trouble(name, error)
        return 0


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


# ---- a job on other machines ---------------------------------------------------------------------


def add_node_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for a job on other machines to a parser."""
    add = parser.add_argument_group("a job on other machines").add_argument
    add(
        "--slurm",
        nargs="?",
        const="",
        metavar="JOBID",
        help="every node of a job of Slurm's (your only running one), by a step beside its own",
    )
    add("--hosts", metavar="NAMES", help="these hosts, by ssh: a,n[01-16]")
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
    if args.kubernetes is not None and args.ends:
        raise UsageError(
            "--kill does not end what runs in pods: their controller would start it again",
            "kubectl delete, of what has made the pods",
        )
    if means and (args.pids or args.pid):
        raise UsageError(f"a PID is of this machine, and {means[0]} asks others: give one of them")
    return bool(means)


def select_local_jobs(args: argparse.Namespace, found: FoundJobs) -> Sequence[Job]:
    """Return the jobs of this machine that --in leaves."""
    from ..attach.job_search import select_jobs

    return select_jobs(found.jobs, found.processes, dict(args.only))


async def attach_to_nodes(args: argparse.Namespace) -> int:
    """Ask the machines, judge what they tell as one job, say it; return the exit status."""
    from ..attach.inquiry import Inquiry
    from ..attach.session import answer_for_nodes, end_ranks_of_nodes

    job = await _find_remote_job(args)
    ends = getattr(args, "ends", False)
    if ends and not job.together and len(job.nodes) > job.window:
        raise UsageError(
            f"--kill reaches {job.window} hosts at most, and --hosts names {len(job.nodes)}",
            "Name some of them at a time.",
        )
    names = ", ".join(node.name for node in job.nodes[:8])
    more = ", ..." if len(job.nodes) > 8 else ""
    _print_to_stderr(
        f"Asking {len(job.nodes)} of {job.says}: {names}{more}; {args.limit:g} s at most"
    )
    began = time.monotonic()
    inquiry = Inquiry(job, args.limit)
    try:
        answers = await inquiry.ask()
        _report_silent_nodes(job, answers)
        if not ends:
            await inquiry.close()
        run_dir = Path(os.path.abspath(args.run_dir)) if args.run_dir else None
        status, found = await answer_for_nodes(job, answers, began, run_dir, args.json, ends)
        if ends:
            await end_ranks_of_nodes(inquiry, answers, found, args.yes)
    finally:
        await inquiry.close()
    return status


def _report_silent_nodes(job: RemoteJob, answers: Sequence[NodeAnswer]) -> None:
    """Say which machines did not answer, why, and how to look there, and which did and are not
    well all the same. Raises HangbisectError where none did.
    """
    for one in answers:
        if one.facts is not None and one.node.said:
            _print_to_stderr(f"{one.node.name}: {one.node.said}")
    silent = [one for one in answers if one.facts is None]
    for one in silent:
        _print_to_stderr(f"{one.node.name}: {one.trouble}\n    there: {one.node.paste}")
    if len(silent) == len(answers):
        raise HangbisectError(
            f"none of {len(answers)} machines told anything of {job.says}",
            "Run what stands above on one of them.",
        )


async def _find_remote_job(args: argparse.Namespace) -> RemoteJob:
    from ..attach import nodes, pods

    only = dict(args.only)
    if args.slurm is not None:
        return await nodes.find_slurm_job(args.slurm, args.span, only)
    if args.hosts is not None:
        return nodes.find_ssh_hosts(args.hosts, args.span, only)
    return await pods.find_pods(args.kubernetes, args.namespace, args.span, only)


def _print_to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
