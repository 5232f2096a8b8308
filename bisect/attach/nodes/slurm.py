"""A job of Slurm's: each node is asked by a step of its own, beside the job's.

`srun --overlap` shares what the job has (man srun, since 20.11); `--gres=none` takes no GPU from
it; `--time` ends a step that nobody waits for any more.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import HangbisectError, UsageError
from .asking import output_of
from .node import Elsewhere, Node
from .ourselves import asking

LIMIT = 10.0  # seconds for squeue and scontrol
_FIELDS = "%A|%N|%D|%M|%j"
_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS")


@dataclass(frozen=True)
class Running:
    """A running job, as squeue has it."""

    id: str
    nodes: str  # "n[1-3]"
    count: str
    age: str
    name: str


async def job_of(wanted: str, span: float | None, only: Mapping[str, str]) -> Elsewhere:
    """Return the job `wanted`, the user's only running one if it is ""; of its ranks those that
    have the variables in `only`.

    Raises UsageError where there is none, or several; HangbisectError where Slurm does not answer.
    """
    found = parse(await _ask(_squeue(wanted)))
    if not found:
        which = f"job {wanted} does not run" if wanted else "no job of yours runs"
        raise UsageError(f"{which} here, says squeue", "squeue --me lists your jobs.")
    if len(found) > 1:
        listed = "\n".join(
            f"  hangbisect attach --slurm {one.id}    {one.name}, {one.nodes}, {one.age}"
            for one in found
        )
        raise UsageError(f"{len(found)} jobs of yours run: which one?", listed)
    job = found[0]
    names = (await _ask(("scontrol", "show", "hostnames", job.nodes))).split()
    if not names:
        raise HangbisectError(f"job {job.id} has no nodes ({job.nodes!r}), says scontrol")
    nodes = tuple(node(name, job.id, span, os.environ, only) for name in names)
    return Elsewhere(nodes, f"Slurm's job {job.id} ({job.name})", f"scancel {job.id}", True)


def parse(printed: str) -> list[Running]:
    """Return the jobs that squeue printed."""
    rows = [line.strip().split("|", 4) for line in printed.splitlines() if line.strip()]
    return [Running(*row) for row in rows if len(row) == 5 and row[0].isdecimal()]


def node(
    name: str,
    job: str,
    span: float | None,
    environ: Mapping[str, str],
    only: Mapping[str, str] | None = None,
) -> Node:
    """Return a node with the step by which it is asked. Variables of a step or an allocation that
    we stand in ourselves would be taken for options of it: they are removed.
    """
    of_it = {**(only or {}), "SLURM_JOB_ID": job, "SLURMD_NODENAME": name}
    step = ("srun", *_step(name, job), *asking(span, of_it))
    ours = [n for n in sorted(environ) if n.startswith(("SLURM_", "SBATCH_")) and n not in _KEPT]
    hidden = [word for variable in ours for word in ("-u", variable)]
    command = ("env", *hidden, *step) if hidden else step
    typed = f"srun --overlap --jobid={job} --nodelist={name} -N1 -n1 --gres=none --pty"
    return Node(name, (command,), f"{typed} hangbisect attach")


def _step(name: str, job: str) -> Sequence[str]:
    return (
        *("--overlap", f"--jobid={job}", f"--nodelist={name}", "--nodes=1", "--ntasks=1"),
        *("--gres=none", "--input=none", "--unbuffered", "--quiet", "--time=2"),
        "--job-name=hangbisect",
    )


def _squeue(wanted: str) -> tuple[str, ...]:
    whose = (f"--jobs={wanted}",) if wanted else ("--me",)
    return ("squeue", *whose, "--noheader", "--states=RUNNING", f"--format={_FIELDS}")


async def _ask(command: Sequence[str]) -> str:
    """Return what a program of Slurm's prints."""
    elsewhere = "Run this where squeue works: a login node. On the job's node: hangbisect attach"
    printed = await output_of(command, LIMIT, elsewhere, "squeue --me lists your jobs.")
    return printed.decode(errors="replace")
