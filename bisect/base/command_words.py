"""The words of a command: the program in it, its launcher, and the flags of either."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from . import process_roles
from .launchers import BY_PROGRAM, LAUNCHERS, Launcher

OURS = ("bisect", "hangbisect")
SPAWNED = "--multiprocessing-fork"  # is among the words of what multiprocessing spawns
# Options without a value that may stand right before a program.
_SWITCHES = (
    *("-u", "-P", "-I", "-s", "-E", "-O", "-B", "-S", "-x", "--"),
    *(switch for one in LAUNCHERS for switch in one.switches),
)


def own_words_of_ours(command: Sequence[str]) -> int | None:
    """Return the index at which the arguments of a pipeline of ours begin, None without one."""
    at = _find_ours(command)
    return at + 1 if at is not None and _walks(command, at) else None


def starts_no_rank(command: Sequence[str]) -> bool:
    """Return whether a process with these words is one of ours that is no rank: `hangbisect run --
    ...` and other commands walk nothing.
    """
    at = _find_ours(command)
    return at is not None and not _walks(command, at)


def _find_ours(command: Sequence[str]) -> int | None:
    """Return the index of the word that names our program, None if another one is started."""
    at = program(command)
    return at if at is not None and _get_base_name(command[at]) in OURS else None


def _walks(command: Sequence[str], at: int) -> bool:
    following = command[at + 1 : at + 2]
    return not following or following[0][:1] == "-" or following[0] == "walk"


def own_words(command: Sequence[str]) -> int:
    """Return the index at which the program's own arguments begin, as far as one can tell."""
    at = program(command)
    return min(1, len(command)) if at is None else at + 1


def program(command: Sequence[str]) -> int | None:
    """Return the index of the word that names the program: a script, a module, or ours."""
    for at, word in enumerate(command):
        if _names_a_module(command, at):
            if word not in BY_PROGRAM:
                return at
        elif _ends_in(word, ".py") or (
            _get_base_name(word) in OURS and not _is_a_value(command, at)
        ):
            return at
    # A shell script is the program only where it starts no other one: launchers/mine.sh train.py.
    shell = (at for at, word in enumerate(command) if _ends_in(word, ".sh", ".bash"))
    return next(shell, None)


def name_program(command: Sequence[str]) -> str:
    """Return the file, or the module, that a Python or a shell runs, without its folder; "" for
    what multiprocessing has started, and for none.
    """
    at = None if starts_for_multiprocessing(command) else program(command)
    return "" if at is None else command[at].rpartition("/")[2]


def _ends_in(word: str, *endings: str) -> bool:
    return word.endswith(endings) and not word.startswith("-")


def _names_a_module(command: Sequence[str], at: int) -> bool:
    return at > 0 and command[at - 1] in ("-m", "--module")


def _is_a_value(command: Sequence[str], at: int) -> bool:
    """Return whether a word belongs to the option before it: `srun --job-name bisect`."""
    before = command[at - 1] if at else ""
    takes_one = before.startswith("--") or (before.startswith("-") and len(before) == 2)
    return takes_one and "=" not in before and before not in _SWITCHES


def _get_base_name(word: str) -> str:
    return word.rstrip("/").rpartition("/")[2]


ENV = "--env"
PIPELINE, FIRST_PIPELINE = "--pipeline", "startup"


def given(command: Sequence[str], flag: str) -> str | None:
    """Return what a flag is set to, in either spelling, None if it is not there.

    Of several the last one counts.
    """
    value = None
    for word, following in zip(command, [*command[1:], ""], strict=False):
        name, equals, rest = word.partition("=")
        if name in _spellings(flag):
            value = rest if equals else following
    return value


def pipeline_of(command: Sequence[str]) -> str:
    """Return the name of the pipeline of ours that a command walks, whether there is one or not."""
    return given(command, PIPELINE) or FIRST_PIPELINE


def without(command: tuple[str, ...], flag: str, value: str = "") -> tuple[str, ...]:
    """Return a command without a flag of ours and its value, in either spelling.

    With a `value` only where the flag's value begins with it.
    """
    begin = own_words_of_ours(command) or 0
    kept, at = list(command[:begin]), begin
    while at < len(command):
        name, equals, rest = command[at].partition("=")
        words = 1 if equals else 2
        given_value = rest if equals else "".join(command[at + 1 : at + 2])
        if name in _spellings(flag) and given_value.startswith(value):
            at += words
        else:
            kept.append(command[at])
            at += 1
    return tuple(kept)


def variables_given(command: Sequence[str]) -> dict[str, str]:
    """Return what --env sets, inside each rank, by name."""
    words = command[own_words_of_ours(command) or 0 :]
    found = {}
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, rest = word.partition("=")
        variable, sign, value = (rest if equals else following).partition("=")
        if name == ENV and sign:
            found[variable] = value
    return found


def _spellings(flag: str) -> tuple[str, str]:
    return flag, "--" + flag[2:].replace("-", "_")


# torch/distributed: run.py and elastic/rendezvous/c10d_rendezvous_backend.py.
_MASTER_PORT, _ENDPOINT_PORT = 29500, 29400
VARIABLE, NODES = "NPROC_PER_NODE", "NNODES"  # what an executable in launchers/ reads
FOLDER = "launchers"
PORTS = ("PET_MASTER_PORT", "MASTER_PORT")  # torchrun reads the first, others the second


# Without a launcher Lightning starts the ranks.
_OURS = Launcher("", (), ranks=("--devices",), default_ranks=1)


def ranks(command: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Return how many ranks a command starts, None where that is not known."""
    if _by_variable(command, environ):
        return _parse_number(environ.get(VARIABLE, "1"))
    found = _launcher(command)
    if found is None:
        return None
    launcher, at, end = found
    span = _span(command, launcher.ranks, at, end)
    return launcher.default_ranks if span is None else _parse_number(span[2])


def port(command: Sequence[str], environ: Mapping[str, str]) -> int | None:
    """Return the port that ranks meet at, None where nothing names it."""
    found = _launcher(command)
    flags = [flag for launcher in LAUNCHERS for flag in launcher.ports]
    span = _span(command, flags, 0, len(command))
    named = span[2] if span else next((environ[n] for n in PORTS if environ.get(n)), "")
    if not named and found is not None:
        return found[0].default_port
    number = _parse_number(named.rpartition(":")[2])
    return number if number and number < 1 << 16 else None


def count_nodes(command: Sequence[str]) -> int:
    """Return how many nodes a command needs at the least, 0 where it does not say so."""
    return _parse_number(_nodes(command, {})[1].partition(":")[0]) or 0


def starts_one_node(command: Sequence[str]) -> str:
    """Return the words by which a command starts the ranks of one node, and counts on others that
    are started elsewhere ("--nnodes=2"), "" where it starts the whole job.
    """
    found = _launcher(command)
    # deepspeed itself goes to the other nodes, by ssh (deepspeed/launcher/runner.py).
    if found is None or not found[0].is_on_each_node or found[0].name == "deepspeed":
        return ""
    return _nodes(command, {})[0] if count_nodes(command) > 1 else ""


def find_meeting_place(command: Sequence[str]) -> str:
    """Return "host:port" at which the agents of torchrun's nodes meet, "" where the command does
    not say it (`--rdzv-endpoint`, or `--master-addr` and `--master-port`).
    """
    endpoint = given(command, "--rdzv-endpoint")
    if endpoint:
        return endpoint if ":" in endpoint else f"{endpoint}:{_ENDPOINT_PORT}"
    host, number = given(command, "--master-addr"), given(command, "--master-port")
    return f"{host}:{number or _MASTER_PORT}" if host else ""


def why_not(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return why the number of ranks cannot be changed, "" if it can."""
    if not _by_variable(command, environ) and _launcher(command) is None:
        return "no launcher that is known starts it"
    return several_nodes(command, environ)


def starts_all_nodes(command: Sequence[str]) -> bool:
    """Return whether a command starts the ranks of all nodes that there are, by one launcher."""
    found = _launcher(command)
    return found is not None and found[0] is not _OURS and not found[0].is_on_each_node


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


def sets_threads(command: Sequence[str]) -> bool:
    """Return whether the launcher sets OMP_NUM_THREADS to 1, where it starts several ranks."""
    found = _launcher(command)
    return found is not None and found[0].sets_threads


def _by_variable(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Return whether an executable of the folder launchers/ starts it."""
    if any(word.split("/")[-2:-1] == [FOLDER] for word in command[: _program_or_end(command)]):
        return True
    return VARIABLE in environ and _launcher(command) is None


def has_launcher(command: Sequence[str]) -> bool:
    """Return whether a command starts its program by a launcher that is known, or by ours."""
    return _launcher(command) is not None


def _launcher(command: Sequence[str]) -> tuple[Launcher, int, int] | None:
    """Return the launcher, and the span of its own words."""
    for at, word in enumerate(command[: _program_or_end(command)]):
        launcher = BY_PROGRAM.get(word.rpartition("/")[2])
        if launcher is not None:
            first = at + 1 + any(word in launcher.subcommands for word in command[at + 1 : at + 2])
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


def _parse_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None


def is_resource_tracker(words: Sequence[str]) -> bool:
    """Return whether a command is the helper that multiprocessing starts beside a job's own
    processes, with the variables that the one who started it has just then.
    """
    return any("multiprocessing.resource_tracker" in word for word in words)


def starts_for_multiprocessing(words: Sequence[str]) -> bool:
    """Return whether a command is a process of multiprocessing's, or a server that forks these
    (multiprocessing/spawn.py, get_command_line; multiprocessing/forkserver.py).
    """
    return any("multiprocessing.forkserver" in word for word in words) or (SPAWNED in words)


def can_be_typed(words: Sequence[str]) -> bool:
    """Return whether these are the words of a command that starts a process again: a title is none,
    nor is what Ray or multiprocessing start for themselves.
    """
    return not (
        process_roles.is_title(words)
        or process_roles.is_worker(words)
        or starts_for_multiprocessing(words)
    )


def has_title(words: Sequence[str]) -> bool:
    """Return whether a Python process has a title in place of the words that started it
    (setproctitle): a single one, which names no file and no interpreter.
    """
    return len(words) == 1 and "/" not in words[0] and not words[0].startswith("python")


_SHELLS = frozenset(["sh", "bash", "dash", "ash", "zsh", "ksh"])


def is_shell(words: Sequence[str]) -> bool:
    """Return whether a process is a shell: it takes the exit status of each program that it has
    started, whoever asks for it (POSIX.1-2017, XCU 2.12).
    """
    return bool(words) and _get_base_name(words[0]).removeprefix("-") in _SHELLS


_NUMBER = re.compile(r"\d+")
# How the flag is called by which a program is told its number among others of its kind.
_RANK_FLAG = re.compile(
    r"-(?:\w*[-_])?(?:rank|(?:process|proc|worker|node)(?:[-_]?(?:id|index|idx))?)\b"
)


class Numbering(NamedTuple):
    """The numbers that the commands of some processes give them."""

    numbers: tuple[int, ...]  # in the order of the commands
    by_flag: bool  # the flag says that it is the number of a process: --process-id=1


def mask_numbers(command: Sequence[str]) -> tuple[str, ...]:
    """Return the words of a command with "#" for each number in them."""
    return tuple(_NUMBER.sub("#", word) for word in command)


def number_programs(
    commands: Sequence[Sequence[str]],
    others: int = 0,
    environs: Sequence[Mapping[str, str] | None] = (),
) -> Numbering | None:
    """Return the numbers by which commands of one program tell it which of several it is: they are
    alike but for numbers, and those at one place, or of one variable in their `environs`, are the
    numbers from 0 on, but for those of so many `others`. None where they are no such commands, or
    two places number them otherwise.
    """
    if environs:
        commands = _add_variables(commands, environs)
    if len(commands) < 2 or program(commands[0]) is None:
        return None
    if len({*map(mask_numbers, commands)}) != 1:
        return None
    found: dict[tuple[int, ...], bool] = {}
    for at in range(len(commands[0])):
        for values in zip(*(_NUMBER.findall(words[at]) for words in commands), strict=True):
            numbers = tuple(map(int, values))
            if len({*numbers}) == len(commands) and {*numbers} <= {*range(len(commands) + others)}:
                flag = commands[0][at] if "=" in commands[0][at] else commands[0][max(at - 1, 0)]
                by_flag = _RANK_FLAG.search(flag) is not None
                found[numbers] = found.get(numbers, False) or by_flag
    named = [numbers for numbers, by_flag in found.items() if by_flag]
    chosen = named if len(named) == 1 else [*found]
    return Numbering(chosen[0], found[chosen[0]]) if len(chosen) == 1 else None


# They give a program its GPU: runs that have nothing to do with each other have them too.
_GPU_VARIABLES = "_VISIBLE_DEVICES"


def _add_variables(
    commands: Sequence[Sequence[str]], environs: Sequence[Mapping[str, str] | None]
) -> list[tuple[str, ...]]:
    """Return the commands with a word for each variable that has a number in the environment of all
    of them, and not the same, as an argument would be: `--worker_id=1` for WORKER_ID.
    """
    known = [environ or {} for environ in environs]
    names = set[str]().union(*known).intersection(*known)
    differing = [
        name
        for name in sorted(names)
        if not name.endswith(_GPU_VARIABLES)
        if all(_NUMBER.fullmatch(one[name]) for one in known)
        if len({one[name] for one in known}) > 1
    ]
    return [
        (*command, *(f"--{name.lower()}={one[name]}" for name in differing))
        for command, one in zip(commands, known, strict=True)
    ]
