"""What launchers say of a process in its environment: which of them started it, and where they
contradict one another. Pure.

All variables of launchers.py are inherited, so a process may have those of several: torchrun in a
task of Slurm's, mpirun in a batch script, or RANK exported by hand.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from .launchers import BY_NAME, BY_STARTER, DIALECTS, NO_RANKS
from .lazy_dataclass import dataclass

# Lightning ignores Slurm under these job names too: an interactive shell has the variables of a
# step without being one (lightning SLURMEnvironment).
INTERACTIVE = {"bash", "interactive"}
_SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "csh", "tcsh", "fish", "busybox", "env"}
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?")
_WITH_VALUE = ("-X", "-W")  # options of Python's own that a word follows
# DeepSpeed's names, beside torchrun's RANK and LOCAL_RANK (deepspeed/launcher/launch.py).
_DEEPSPEED_SIZE, _DEEPSPEED_NODE = "LOCAL_SIZE", "CROSS_RANK"
_LOOPBACK = re.compile(r"localhost|127\.[\d.]+|::1|\[::1\]|")
_OF_A_TASK = ("rank", "local rank", "number of ranks")  # as Variables begin


@dataclass(frozen=True)
class Ancestor:
    """A process above us: the variables it was started with, and its words."""

    environ: Mapping[str, str]
    words: tuple[str, ...]

    @property
    def launcher(self) -> str | None:
        """The launcher that it is, None for any other program."""
        found = BY_STARTER.get(self._program)
        return found.name if found is not None else None

    @property
    def is_part_of_launcher(self) -> bool:
        """Whether it starts ranks or belongs to what does, and is no rank itself."""
        return self._program in NO_RANKS

    @property
    def _program(self) -> str:
        """What runs: the program, or the script or module that an interpreter was told to run. What
        else stands in a command (`timeout 9 torchrun`, `sh start.sh torchrun`) is another's name.
        """
        name = os.path.basename(self.words[0]).partition(":")[0] if self.words else ""
        if name not in _SHELLS and not _PYTHON.fullmatch(name):
            return name
        words = iter(self.words[1:])
        for word in words:
            if word == "-m":
                return next(words, "")
            if word == "-c":
                return ""
            if word in _WITH_VALUE:
                next(words, "")
            elif not word.startswith("-"):
                return os.path.basename(word)
        return ""

    @property
    def is_shell(self) -> bool:
        """It is a shell, or nothing is known of it."""
        return not self.words or os.path.basename(self.words[0]).lstrip("-") in _SHELLS


def number(environ: Mapping[str, str], name: str) -> int | None:
    """Return a variable that is a whole number from 0, None for any other."""
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def claimed(environ: Mapping[str, str], task_is_shell: bool) -> list[str]:
    """Return the dialects in which the environment names a rank: where some say how many ranks
    there are, those that do not are left out (a script sets one variable for a library's sake).

    `task_is_shell`: the task of Slurm's that this process belongs to is a person's shell.
    """
    named = [name for name, words in DIALECTS.items() if number(environ, words.rank) is not None]
    if task_is_shell and environ.get("SLURM_JOB_NAME") in INTERACTIVE and "srun" in named:
        named.remove("srun")
    whole = [
        name
        for name in named
        if not (size := DIALECTS[name].world_size) or number(environ, size) is not None
    ]
    return whole or named


def starter(
    environ: Mapping[str, str], named: Sequence[str], ancestors: Sequence[Ancestor]
) -> str | None:
    """Return which dialect is that of the launcher that started this process.

    It is that of the nearest launcher above us. Where none can be seen (in a container) it is the
    one whose rank variable was set last; there RANK counts only where a program set it, not a shell
    or a person, unless there is no other. `ancestors` from the parent on.
    """
    others = [name for name in named if name != "torchrun"]
    if len(named) < 2:
        return named[0] if named else None
    for ancestor in ancestors:
        if ancestor.launcher and (known := BY_NAME[ancestor.launcher].dialect) in named:
            return known
    depths = {name: _depth(environ, name, ancestors) for name in named}
    if "torchrun" in named:
        nearest = min(depths[name] for name in others)
        by_program = depths["torchrun"] < nearest and _is_program(depths["torchrun"], ancestors)
        at_once = depths["torchrun"] == nearest and "TORCHELASTIC_RUN_ID" in environ
        if by_program or at_once:
            return "torchrun"
    return min(others, key=lambda name: (depths[name], _preference(environ, name)))


def _depth(environ: Mapping[str, str], name: str, ancestors: Sequence[Ancestor]) -> int:
    """Return how far above us the process is that set a dialect's rank: 0 is the parent."""
    variable = DIALECTS[name].rank
    for depth, ancestor in enumerate(ancestors):
        if ancestor.environ.get(variable) != environ.get(variable):
            return depth
    return len(ancestors)


def _is_program(depth: int, ancestors: Sequence[Ancestor]) -> bool:
    return depth < len(ancestors) and not ancestors[depth].is_shell


def _preference(environ: Mapping[str, str], name: str) -> int:
    """Of two that were set at once mpirun's is the inner one, for Slurm starts its helpers; PMI is
    Slurm's or Flux's own where both say the same, and then says less.
    """
    launcher = BY_NAME[name]
    if any(_say_the_same(environ, name, other) for other in launcher.is_said_by):
        return 2
    return int(launcher.is_around)


def _say_the_same(environ: Mapping[str, str], one: str, other: str) -> bool:
    """Return whether two dialects name one rank, of as many."""
    mine, theirs = DIALECTS[one], DIALECTS[other]
    pairs = ((mine.rank, theirs.rank), (mine.world_size, theirs.world_size))
    return all(number(environ, a) == number(environ, b) for a, b in pairs)


def local_size(environ: Mapping[str, str], dialect: str) -> int | None:
    """Return how many ranks this node has, None where no variable says so."""
    said = number(environ, DIALECTS[dialect].local_world_size)
    if dialect == "torchrun" and said is None and _DEEPSPEED_NODE in environ:
        return number(environ, _DEEPSPEED_SIZE)
    if dialect == "flux" and environ.get("FLUX_JOB_NNODES") == "1":
        return number(environ, DIALECTS[dialect].world_size)
    if dialect != "srun":
        return said
    each: list[int] = []
    for part in environ.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):  # "2(x3),1": man srun
        match = re.fullmatch(r"(\d{1,9})(?:\(x(\d{1,6})\))?", part, re.ASCII)
        each += [int(match[1])] * int(match[2] or 1) if match else []
    node = number(environ, "SLURM_NODEID")
    return each[node] if node is not None and node < len(each) and each[node] else said


def node(environ: Mapping[str, str], dialect: str) -> int | None:
    """Return the number that the launcher gives this node, None where it gives none: Open MPI."""
    said = number(environ, DIALECTS[dialect].node)
    return number(environ, _DEEPSPEED_NODE) if said is None and dialect == "torchrun" else said


def are_in_order(environ: Mapping[str, str], dialect: str) -> bool:
    """Return whether the launcher numbers the ranks of a node one after the other: torchrun's agent
    and DeepSpeed do (_assign_worker_ranks, global_rank_mapping), mpirun need not (--map-by node).
    """
    return dialect == "torchrun" and bool({"GROUP_RANK", _DEEPSPEED_NODE} & environ.keys())


def is_on_one_machine(environ: Mapping[str, str]) -> bool:
    """Return whether ranks that were not counted for each node are taken to be all on this one: no
    other machine reaches the master. In a pod of Kubernetes the master itself gets such a name.
    """
    master = environ.get("MASTER_ADDR", "")
    return bool(_LOOPBACK.fullmatch(master)) and "KUBERNETES_SERVICE_HOST" not in environ


def neighbours(environ: Mapping[str, str], rank: int) -> tuple[int, ...]:
    """Return the numbers of this node's tasks, () where Slurm does not say so (SLURM_GTIDS)."""
    if "SLURM_STEP_ID" not in environ:  # a batch script, which is a task of its own
        return ()
    words = environ.get("SLURM_GTIDS", "").split(",")
    if not all(word.isascii() and word.isdigit() and len(word) < 10 for word in words):
        return ()
    numbers = tuple(sorted({int(word) for word in words}))
    return numbers if rank in numbers else ()


def master(environ: Mapping[str, str], dialect: str | None) -> str | None:
    """Return the host on which rank 0 listens, None where no variable says so.

    Without MASTER_ADDR that is the first node of Slurm's step, as Lightning has it.
    """
    if environ.get("MASTER_ADDR"):
        return environ["MASTER_ADDR"]
    nodes = environ.get("SLURM_STEP_NODELIST") if dialect == "srun" else None
    if not nodes:
        return None
    # "n[001-003,7],m1": the first of the first group.
    first = re.match(r"([^\[,]*)(?:\[(\d+)[^\]]*\]([^,\[]*))?", nodes)
    return "".join(part or "" for part in first.groups()) or None if first else None


def impossible(environ: Mapping[str, str], dialect: str | None) -> str:
    """Return a sentence where the numbers of one launcher cannot be a rank of any job, else "".

    A rank with such numbers would wait for others that never come.
    """
    if dialect is None:
        return ""
    mine, local = DIALECTS[dialect].rank, DIALECTS[dialect].local_rank
    rank, within = number(environ, mine), number(environ, local)
    if rank is not None and within is not None and within > rank:
        return (
            f"{local}={within} and {mine}={rank} contradict each other: no rank's number on its "
            "node is higher than its number"
        )
    return _outside(environ, dialect)


def contradictions(
    environ: Mapping[str, str], named: Sequence[str], dialect: str | None
) -> tuple[str, ...]:
    """Return a sentence for each variable that speaks against those of the launcher that started
    this process. torchrun in a task of another launcher's is no contradiction.
    """
    if dialect is None:
        return ()
    found = [_outside(environ, dialect)]
    if dialect == "srun" and "SLURM_STEP_ID" not in environ:
        found.append(_no_step(environ))
    others = [] if dialect == "torchrun" else ["torchrun"]
    # One task alone is what starts mpirun, or helps it.
    if (
        dialect not in ("torchrun", "srun")
        and "srun" in named
        and environ.get("SLURM_NTASKS") != "1"
    ):
        others.append("srun")
    for other in others:
        found += [
            _differs(environ, what, dialect, mine, theirs)
            for what, mine, theirs in zip(_OF_A_TASK, DIALECTS[dialect][:3], DIALECTS[other][:3])
            if other == "torchrun" or what != "local rank"
        ]
    return tuple(sentence for sentence in found if sentence)


def _differs(environ: Mapping[str, str], what: str, dialect: str, mine: str, theirs: str) -> str:
    true, other = number(environ, mine), number(environ, theirs)
    if true is None or other is None or true == other:
        return ""
    who = BY_NAME[dialect].word or dialect
    return (
        f"{theirs}={other} and {mine}={true} contradict each other: {who} started this process, "
        f"so its {what} is {true}"
    )


def _outside(environ: Mapping[str, str], dialect: str) -> str:
    mine, size = DIALECTS[dialect].rank, DIALECTS[dialect].world_size
    rank, world = number(environ, mine), number(environ, size)
    if rank is None or world is None or rank < world:
        return ""
    return f"{mine}={rank} and {size}={world} contradict each other: ranks are counted from 0"


def _no_step(environ: Mapping[str, str]) -> str:
    tasks = number(environ, "SLURM_NTASKS") or 1
    if tasks == 1:
        return ""
    return (
        f"SLURM_NTASKS={tasks}, and this process is no task that srun started (SLURM_STEP_ID is "
        "not set): nobody starts the others"
    )
