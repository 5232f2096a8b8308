"""Where in a command the program is named: a pipeline of ours, a script, a module.

After it come its own arguments alone: `torchrun --nproc_per_node=2 train.py --lr 0.1`.
"""

from __future__ import annotations

from collections.abc import Sequence

OURS = ("bisect", "hangbisect")
# Modules that start another program.
_LAUNCHERS = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed.launcher.runner",
)
# Options without a value that may stand right before a program.
_SWITCHES = (
    *("-u", "-P", "-I", "-s", "-E", "-O", "-B", "-S", "-x", "--"),
    *("--standalone", "--no_python", "--no-python", "--use_env", "--use-env", "--oversubscribe"),
    *("--allow-run-as-root", "--exclusive", "--overlap", "--pty", "--unbuffered", "--label"),
    *("--multi_gpu", "--cpu", "--wait"),
)


def own_words_of_ours(command: Sequence[str]) -> int | None:
    """Return the index at which the arguments of a pipeline of ours begin, None without one."""
    at = program(command)
    if at is None or _name(command[at]) not in OURS:
        return None
    following = command[at + 1 : at + 2]
    # `hangbisect run -- ...` and other commands walk nothing.
    walks = not following or following[0][:1] == "-" or following[0] == "walk"
    return at + 1 if walks else None


def own_words(command: Sequence[str]) -> int:
    """Return the index at which the program's own arguments begin, as far as one can tell."""
    at = program(command)
    return min(1, len(command)) if at is None else at + 1


def program(command: Sequence[str]) -> int | None:
    """Return the index of the word that names the program: a script, a module, or ours."""
    for at, word in enumerate(command):
        if _names_a_module(command, at):
            if word not in _LAUNCHERS:
                return at
        elif _ends_in(word, ".py") or (_name(word) in OURS and not _is_a_value(command, at)):
            return at
    # A shell script is the program only where it starts no other one: launchers/mine.sh train.py.
    shell = (at for at, word in enumerate(command) if _ends_in(word, ".sh", ".bash"))
    return next(shell, None)


def _ends_in(word: str, *endings: str) -> bool:
    return word.endswith(endings) and not word.startswith("-")


def _names_a_module(command: Sequence[str], at: int) -> bool:
    return at > 0 and command[at - 1] in ("-m", "--module")


def _is_a_value(command: Sequence[str], at: int) -> bool:
    """Return whether a word belongs to the option before it: `srun --job-name bisect`."""
    before = command[at - 1] if at else ""
    takes_one = before.startswith("--") or (before.startswith("-") and len(before) == 2)
    return takes_one and "=" not in before and before not in _SWITCHES


def _name(word: str) -> str:
    return word.rstrip("/").rpartition("/")[2]
