"""Where a watch is not passed on to the ranks of a command, by variables or for too old a Python:
what it must stand in front of then.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from itertools import takewhile

from ...base.launchers import SRUN, Launcher, find_typed_launcher

_BY_SSH = ("ssh", "pdsh", "clush")
# Programs that start what follows elsewhere, with other variables than their own.
_ELSEWHERE = {
    **dict.fromkeys(("docker", "podman", "nerdctl"), "a container has variables of its own"),
    **dict.fromkeys(_BY_SSH, "the other machine has variables of its own"),
    "kubectl": "a pod has variables of its own",
    "sudo": "sudo takes most variables away",
}
# Programs that do so with one of these flags.
_WITH_FLAGS = {
    **dict.fromkeys(
        ("apptainer", "singularity"), ("-e", "--cleanenv", "-c", "--contain", "-C", "--containall")
    ),
    **dict.fromkeys(("su", "runuser"), ("-", "-l", "--login")),
    "env": ("-", "-i", "--ignore-environment"),
}
_PYTHON = ("python", "python3")
_SETS_PATH = re.compile(r"(?:^|[\s;&|(])PYTHONPATH=")  # also in what a shell is given by -c
_KEEPS_PATH = re.compile(r"PYTHONPATH=\S*\$\{?PYTHONPATH")
_STARTS = re.compile(r"(python|torchrun|accelerate|deepspeed|mpirun|srun|uv|conda)\b|.*\.(py|sh)$")
# Flags of Python by which no start-up of ours is read, and what it says of itself then.
_CLOSED = {"I": "reads no variables", "E": "reads no variables", "S": "runs no start-up files"}


_OF_RAYS_SUPERVISOR = (
    "ray job submit: Ray's job supervisor starts the driver, below the cluster's head, with other "
    "variables; from here only ray itself is seen. Put the watch behind the dashes: ray job submit "
    "... -- hangbisect run -- COMMAND. Where the head is on this machine, hangbisect attach finds "
    "the driver and its actors."
)


def why_unreached(command: Sequence[str], environ: Mapping[str, str] = os.environ) -> str:
    """Return, in a sentence with the next step, why the ranks of a command may not be reached by
    variables; "" where nothing speaks against it. `environ` is that in which it is started.
    """
    for at, word in enumerate(command):
        name, words = os.path.basename(word), command[at + 1 :]
        if said := _explain_elsewhere(name, words) or _explain_slurm(name, word, words, environ):
            return said
        if name == "ray" and [*words[:2]] == ["job", "submit"]:
            return _OF_RAYS_SUPERVISOR
        launcher = find_typed_launcher(name)
        if launcher.passing and (flag := find_hosts_flag(launcher, words)):
            return (
                f"{name} {flag}: on another machine it sets only variables that {launcher.passing} "
                "names. Ranks there are looked at by ssh once nothing moves here; for their steps "
                "put `-m bisect watch` in front of the script: python -m bisect watch train.py."
            )
        if name.startswith(_PYTHON) and (letter := _find_closing_flag(words)):
            return (
                f"{name} -{letter} {_CLOSED[letter]}: its ranks are seen from outside alone. Leave "
                f"out -{letter}, or look when it hangs: hangbisect attach."
            )
        if old := find_older_python(word, environ):
            return (
                f"{name} is {old}, steps are told from Python {OLDEST[0]}.{OLDEST[1]} on: its "
                "ranks are seen from outside alone."
            )
        if _SETS_PATH.search(word) and not _KEEPS_PATH.search(word):
            return (
                "PYTHONPATH is set anew in the command, and the watch comes by it. Set it before: "
                "PYTHONPATH=DIR hangbisect run -- ..., or keep it: PYTHONPATH=DIR:$PYTHONPATH."
            )
        of_python = at and os.path.basename(command[at - 1]).startswith(_PYTHON)
        if word.endswith(".py") or word == "-m" or (word == "-c" and of_python):
            break  # what follows is the script's
    return ""


def _explain_elsewhere(name: str, words: Sequence[str]) -> str:
    if name in _ELSEWHERE:
        seen = f"from here only {name} itself is seen"
        if name in _BY_SSH:
            seen = "from here its ranks are looked at by ssh, once nothing moves"
        return (
            f"{_ELSEWHERE[name]}: what {name} starts may not be reached. Put `hangbisect run --` "
            f"in front of the command inside it; {seen}."
        )
    flags = _WITH_FLAGS.get(name)
    if flags is None:
        return ""
    own = takewhile(lambda word: not _STARTS.match(os.path.basename(word)), words)
    flag = next((word for word in own if word in flags), "")
    if not flag:
        return ""
    return (
        f"{name} {flag} takes variables away: what it starts may not be reached. Put `hangbisect "
        f"run --` behind it, in front of the command that it starts, or leave out {flag}."
    )


def find_hosts_flag(launcher: Launcher, words: Sequence[str]) -> str:
    """Return the flag of a launcher by which other machines are named, "" without one."""
    for at, word in enumerate(words):
        if word in launcher.hosts and not "".join(words[at + 1 : at + 2]).startswith("localhost"):
            return word
    return ""


def _explain_slurm(name: str, path: str, words: Sequence[str], environ: Mapping[str, str]) -> str:
    exports = _exports(words) if name in SRUN.clients else None
    if exports is not None:
        return (
            f"--export={exports} keeps variables from {name}'s tasks. Put `hangbisect run --` in "
            "front of the command that a task runs, or use --export=ALL."
        )
    inherited = environ.get("SLURM_EXPORT_ENV", "ALL")  # of sbatch --export: srun's default
    if name == "srun" and not _says_export(words) and "ALL" not in inherited.split(","):
        return (
            f"SLURM_EXPORT_ENV={inherited} keeps variables from srun's tasks: the job was "
            "submitted with --export. Use srun --export=ALL."
        )
    if name == "sbatch" and not _is_our_launcher(path):
        return (
            "sbatch returns once the job is queued. Put `hangbisect run --` in the batch script, "
            "in front of its srun or torchrun."
        )
    return ""


def _is_our_launcher(word: str) -> bool:
    """Return whether it is an executable of launchers/, which waits for the job."""
    return os.path.basename(os.path.dirname(word)) == "launchers"


def _says_export(words: Sequence[str]) -> bool:
    return any(word.partition("=")[0] == "--export" for word in words)


def _exports(words: Sequence[str]) -> str | None:
    """Return what --export of Slurm's says, if it leaves our variables out (man srun)."""
    for at, word in enumerate(words):
        if word.startswith("--export="):
            said = word.partition("=")[2]
        elif word == "--export" and at + 1 < len(words):
            said = words[at + 1]
        else:
            continue
        return None if "ALL" in said.split(",") else said
    return None


def _find_closing_flag(words: Sequence[str]) -> str:
    """Return the letter of the flag by which Python reads nothing of ours, "" without one."""
    skip = False
    for word in words:
        if skip:
            skip = False
            continue
        if not word.startswith("-") or word == "-" or word.startswith("--"):
            return ""
        for at, letter in enumerate(word[1:], 1):
            if letter in "XW":  # what follows is its value
                skip = at == len(word) - 1
                break
            if letter in _CLOSED:
                return letter
            if letter in "cm":
                return ""
    return ""


OLDEST = (3, 9)  # a Python of a job in which steps are told
_PYTHON_VERSION = re.compile(r"(?:python|pypy)([0-9]+)\.([0-9]+)")
_LONGEST_SHEBANG = 256  # characters of a script's first line; the kernel takes as many (execve(2))
_EXEC, _LONGEST_EXEC = b"'''exec' ", 4096  # of pip's and uv's scripts (distlib/scripts.py)


def find_older_python(word: str, environ: Mapping[str, str]) -> str:
    """Return "Python 3.8" if `word` is started by one that is older than OLDEST, "" otherwise.

    Its file says so, or the first line of a script: nothing is started.
    """
    try:
        path = shutil.which(word, path=environ.get("PATH", ""))
    except OSError:  # the current folder is gone
        path = None
    if path is None:
        return ""
    named = _read_version(path) or _read_version(read_interpreter(path))
    return "" if named is None or named >= OLDEST else f"Python {named[0]}.{named[1]}"


def _read_version(path: str) -> tuple[int, int] | None:
    """Return the version that is part of a program's name once its links are followed."""
    found = _PYTHON_VERSION.fullmatch(os.path.basename(os.path.realpath(path)))
    return (int(found[1]), int(found[2])) if found else None


def read_interpreter(script: str, path: str | None = None) -> str:
    """Return the program that a script names in its first line (`#!`), "" for none; where it names
    a shell, and its second line is the `exec` by which installers name a program whose path is
    long or has a space, that one. `path`: the PATH in which names are looked up, None: ours.
    """
    try:
        with open(script, "rb") as file:
            line, following = file.readline(_LONGEST_SHEBANG), file.readline(_LONGEST_EXEC)
    except OSError:
        return ""
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if words and following.startswith(_EXEC):
        with contextlib.suppress(ValueError):
            words = shlex.split(os.fsdecode(following[len(_EXEC) :]))
    if words and os.path.basename(words[0]) == "env":
        words = words[1:]
    return (shutil.which(words[0], path=path) or "") if words else ""
