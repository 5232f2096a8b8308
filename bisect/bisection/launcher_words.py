"""How many ranks a command starts, in its launcher's own words, and the same command with others.

`torchrun --nproc_per_node=4`, `srun -n 4`, `mpirun -np 4`, `deepspeed --num_gpus 4`,
`accelerate launch --num_processes 4`, `NPROC_PER_NODE=4 launchers/NAME`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .program_words import own_words_of_ours, program

VARIABLE, NODES = "NPROC_PER_NODE", "NNODES"  # what an executable in launchers/ is told
FOLDER = "launchers"
PORTS = ("PET_MASTER_PORT", "MASTER_PORT")  # torchrun reads the first, others the second


@dataclass(frozen=True)
class Launcher:
    """A known launcher: its names, and its flags for ranks, for nodes, and for the port that ranks
    meet at, which may stand after the name of a host.
    """

    names: tuple[str, ...]
    ranks: tuple[str, ...]
    nodes: tuple[str, ...]
    default: int | None = None  # ranks where nothing says how many
    allocation: str = ""  # the variable that says how many nodes, where no flag does
    ports: tuple[str, ...] = ()
    default_port: int | None = None  # None: a free one, or whatever a variable says


LAUNCHERS = (
    Launcher(
        ("torchrun", "torch.distributed.run", "torch.distributed.launch"),
        ("--nproc_per_node", "--nproc-per-node"),
        ("--nnodes",),
        1,
        ports=("--master_port", "--master-port", "--rdzv_endpoint", "--rdzv-endpoint"),
    ),
    Launcher(("srun",), ("-n", "--ntasks"), ("-N", "--nodes"), allocation="SLURM_NNODES"),
    Launcher(("mpirun", "mpiexec", "orterun"), ("-n", "-np", "--np", "--n"), ()),
    Launcher(
        ("deepspeed", "deepspeed.launcher.runner"),
        ("--num_gpus",),
        ("--num_nodes",),
        ports=("--master_port",),
        default_port=29500,
    ),
    Launcher(
        ("accelerate", "accelerate.commands.launch", "accelerate.commands.accelerate_cli"),
        ("--num_processes",),
        ("--num_machines",),
        ports=("--main_process_port", "--main-process-port"),
        default_port=29500,
    ),
)
_OURS = Launcher((), ("--devices",), (), 1)  # without a launcher Lightning starts the ranks


def ranks(command: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Return how many ranks a command starts, None where that cannot be told."""
    if _by_variable(command, environ):
        return _number(environ.get(VARIABLE, "1"))
    found = _launcher(command)
    if found is None:
        return None
    launcher, at, end = found
    span = _span(command, launcher.ranks, at, end)
    return launcher.default if span is None else _number(span[2])


def port(command: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Return the port that ranks meet at, None where nothing names it."""
    found = _launcher(command)
    flags = [flag for launcher in LAUNCHERS for flag in launcher.ports]
    span = _span(command, flags, 0, len(command))
    named = span[2] if span else next((environ[n] for n in PORTS if environ.get(n)), "")
    if not named and found is not None:
        return found[0].default_port
    number = _number(named.rpartition(":")[2])
    return number if number and number < 1 << 16 else None


def why_not(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return why the number of ranks cannot be changed, "" if it can."""
    if not _by_variable(command, environ) and _launcher(command) is None:
        return "no launcher that is known starts it"
    return several_nodes(command, environ)


def several_nodes(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return what says that a command starts several nodes, "" if nothing does."""
    words, nodes = _nodes(command, environ)
    return "" if nodes in ("", "1", "1:1") else f"{words}: it starts several nodes"


def _nodes(command: Sequence[str], environ: Mapping[str, str]) -> tuple[str, str]:
    """Return the words that say how many nodes it starts, and how many; ("", "") if none do."""
    variable = NODES
    if not _by_variable(command, environ):
        found = _launcher(command)
        if found is None:
            return "", ""
        launcher, at, end = found
        span = _span(command, launcher.nodes, at, end)
        if span is not None:
            return " ".join(command[span[0] : span[0] + span[1]]), span[2]
        variable = launcher.allocation
    return f"{variable}={environ.get(variable, '')}", environ.get(variable, "")


def with_ranks(
    command: Sequence[str], count: str, environ: Mapping[str, str]
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command with so many ranks, and what is to be set in its environment.

    Only where why_not() finds no reason against it.
    """
    if _by_variable(command, environ):
        return tuple(command), {VARIABLE: count}
    found = _launcher(command)
    if found is None:
        return tuple(command), {}
    launcher, at, end = found
    span = _span(command, launcher.ranks, at, end)
    if span is None:
        return (*command[:at], launcher.ranks[0], count, *command[at:]), {}
    first, words, _ = span
    word, flag = command[first], _flag(command[first], launcher.ranks)
    if words == 2:
        return (*command[: first + 1], count, *command[first + 2 :]), {}
    sign = "=" if word.startswith(f"{flag}=") else ""
    return (*command[:first], f"{flag}{sign}{count}", *command[first + 1 :]), {}


def by_torchrun(command: Sequence[str]) -> bool:
    """Return whether torchrun, or what it replaced, starts the ranks."""
    found = _launcher(command)
    return found is not None and found[0] is LAUNCHERS[0]


def _by_variable(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether an executable of the folder launchers/ starts it."""
    if any(word.split("/")[-2:-1] == [FOLDER] for word in command[: _program_or_end(command)]):
        return True
    return VARIABLE in environ and _launcher(command) is None


def _launcher(command: Sequence[str]) -> tuple[Launcher, int, int] | None:
    """Return the launcher, and the span of its own words."""
    for at, word in enumerate(command[: _program_or_end(command)]):
        name = word.rpartition("/")[2]
        for launcher in LAUNCHERS:
            if name in launcher.names:
                first = at + (2 if [*command[at + 1 : at + 2]] == ["launch"] else 1)
                return launcher, first, _end_of_options(command, first)
    ours = own_words_of_ours(command)
    return None if ours is None else (_OURS, ours, len(command))


def _end_of_options(command: Sequence[str], at: int) -> int:
    """Return where the program that a launcher starts begins: an interpreter, a script, -m."""
    end = _program_or_end(command)
    for index in range(at, end):
        word = command[index]
        if word in ("-m", "--module") or word.rpartition("/")[2].startswith("python"):
            return index
    return end


def _program_or_end(command: Sequence[str]) -> int:
    at = program(command)
    return len(command) if at is None else at


def _span(
    command: Sequence[str], flags: Sequence[str], at: int, end: int
) -> tuple[int, int, str] | None:
    """Return where a flag first stands, how many words it takes, and its value."""
    for index in range(at, end):
        flag = _flag(command[index], flags)
        rest = command[index][len(flag) :] if flag else ""
        if rest:
            return index, 1, rest.removeprefix("=")
        if flag and index + 1 < end:
            return index, 2, command[index + 1]
    return None


def _flag(word: str, flags: Sequence[str]) -> str | None:
    """Return the flag that a word is: `--ntasks`, `--ntasks=4`, `-n`, `-n4`."""
    for flag in flags:
        if word == flag or word.startswith(f"{flag}="):
            return flag
        if len(flag) == 2 and word.startswith(flag) and word[2:].isdigit():
            return flag
    return None


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
