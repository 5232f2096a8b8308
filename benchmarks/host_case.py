"""A hang of several hosts, and what is right to be said of it (hang_on_hosts.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

STATIC = "--master-addr=n1 --master-port=29400 --node-rank=$NODE"
C10D = "--rdzv-backend=c10d --rdzv-endpoint=n1:29400 --rdzv-id=%s"


@dataclass(frozen=True)
class Case:
    """A hang, and what is right to be said of it."""

    name: str
    program: str  # of host_programs
    kind: str  # what one rank does: faults.py
    place: str
    nodes: int
    culprit: int  # a rank; -1: none is to blame
    causes: tuple[str, ...]
    a_node: int = 1  # ranks of a host
    agents: bool = (
        False  # started by torchrun; else each rank by its variables, as by srun; two by start.py
    )
    outcomes: tuple[str, ...] = ("hang", "silent")
    absent: int = -1  # the host that never starts
    c10d: bool = False  # its agents meet by c10d, and are numbered as they come
    says: str = ""  # a regular expression, found in what the verdict says


@dataclass(frozen=True, kw_only=True)
class OwnCase(Case):
    """A job as a user has it: a program of host_programs/own, started by a command on each host."""

    kind: str = ""
    place: str = ""
    culprit: int = -1
    causes: tuple[str, ...] = ()
    command: str  # $NODE is the number of the host, from 0
    commands: dict[int, str] = field(default_factory=dict)  # where a host has another one
    environ: dict[int, dict[str, str]] = field(default_factory=dict)  # variables of a host
    # Shell commands before the job, by host; one that ends in "&" goes on beside it.
    before: tuple[tuple[int, str], ...] = ()
    late: tuple[int, float] = (-1, 0.0)  # a host, and how many seconds it comes later
    or_blamed: tuple[tuple[int, ...], ...] = ()  # right as well: chance decides which it is
    at: str = ""  # a regular expression, found in the call or the step of who is to blame
    on_host: str = ""  # the host to blame, where the launcher decides which rank it has
    by_stacks: tuple[tuple[int, ...], ...] = ()  # right for attach, which sees no log, as well
    causes_by_stacks: tuple[str, ...] = ()
    # "ssh" or "slurm": what the first host's command, the only one, reaches the others by.
    by: str = ""
    unwatched: tuple[int, ...] = ()  # hosts on which `hangbisect run` is not in front
    healthy: bool = False  # it ends by itself: nothing hangs, however long it is silent
    ask_at: float = 0.0  # when attach asks a healthy one, or one whose steps take no time of a core


def torchrun(nodes: int, ranks: int, meets: str, program: str) -> str:
    """Return the command of a host whose agent meets the others so (STATIC, C10D)."""
    return f"torchrun --nnodes={nodes} --nproc-per-node={ranks} {meets} {program}.py"
