"""Where a watch is not passed on by variables: what it must stand in front of then. Pure."""

from __future__ import annotations

import os
from collections.abc import Sequence

# Programs that start what follows elsewhere, with other variables than their own.
_ELSEWHERE = {
    **dict.fromkeys(("docker", "podman", "nerdctl"), "a container has variables of its own"),
    **dict.fromkeys(("ssh", "pdsh", "clush"), "the other machine has variables of its own"),
    "kubectl": "a pod has variables of its own",
    "sudo": "sudo takes most variables away",
}
_SLURM = ("srun", "sbatch", "salloc")
_PYTHON = ("python", "python3")


def why_unreached(command: Sequence[str]) -> str:
    """Return, in a sentence with the next step, why the ranks of a command may not be reached by
    variables; "" where nothing speaks against it.
    """
    names = [os.path.basename(word) for word in command]
    for at, name in enumerate(names):
        if name in _ELSEWHERE:
            return (
                f"{_ELSEWHERE[name]}: what {name} starts may not be reached. Put `hangbisect run "
                f"--` in front of the command inside it; from here only {name} itself is seen."
            )
        exports = _exports(command[at + 1 :]) if name in _SLURM else None
        if exports is not None:
            return (
                f"--export={exports} keeps variables from {name}'s tasks. Put `hangbisect run --` "
                "in front of the command that a task runs, or use --export=ALL."
            )
        if name == "sbatch" and not _is_our_launcher(command[at]):
            return (
                "sbatch returns once the job is queued. Put `hangbisect run --` in the batch "
                "script, in front of its srun or torchrun."
            )
        if name.startswith(_PYTHON) and (flag := _closed(command[at + 1 :])):
            return (
                f"{name} {flag} reads no variables: its ranks are seen from outside alone. Leave "
                f"out {flag}, or look when it hangs: hangbisect attach."
            )
    return ""


def _is_our_launcher(word: str) -> bool:
    """Return whether it is an executable of launchers/, which waits for the job."""
    return os.path.basename(os.path.dirname(word)) == "launchers"


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


def _closed(words: Sequence[str]) -> str:
    """Return the flag by which Python ignores its environment, "" without one."""
    for word in words:
        if not word.startswith("-") or word in ("-", "-c", "-m") or word.startswith("--"):
            return ""
        if flag := next((f"-{letter}" for letter in "IE" if letter in word), ""):
            return flag
    return ""
