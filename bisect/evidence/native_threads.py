"""The native frames of all threads of a process, those that are none of Python's too: NCCL's proxy,
torch's watchdog, autograd's of each device. Asked for by `attach --native-threads` alone, for it
pauses the process for seconds.

py-spy shows threads of Python alone. pystack's `--native-all` and gdb's "thread apply all bt" show
all of them; either stops the process by ptrace(2), and the kernel lets it go on when they end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..base.deadline import call_with_limit, run_command
from ..base.masking import mask_text
from .external_tools import find_program

# gdb reads the symbols of torch's libraries first: 3 s of a core, 10 s on a busy machine.
LIMIT = 60.0
_MOST_FRAMES = 24  # of a thread
_CONTROL = re.compile(r"\x1b\[[0-9;]*m|[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def list_tools(pid: int) -> list[tuple[str, ...]]:
    """Return the commands that show all threads of a process, of the tools that are here."""
    gdb = ("set pagination off", "set print frame-arguments none", "set debuginfod enabled off")
    asks = [
        word for text in (*gdb, f"thread apply all bt {_MOST_FRAMES}") for word in ("-ex", text)
    ]
    known = (
        ("pystack", ("--no-color", "remote", "--native-all", str(pid))),
        ("gdb", ("-nx", "-batch", *asks, "-p", str(pid))),
    )
    found = ((find_program(name), words) for name, words in known)
    return [(path, *words) for path, words in found if path is not None]


async def read_native_threads(
    pid: int, tools: Sequence[Sequence[str]], limit: float = LIMIT
) -> tuple[str, str]:
    """Return what the first of these commands that does not fail prints of a process, within
    `limit` seconds for each; and why there is nothing, "" if there is something.
    """
    why = "neither pystack nor gdb is here"
    for command in tools:
        name = command[0].rpartition("/")[2]
        try:
            ran = await call_with_limit(
                run_command, command, limit, limit=limit + 1.0, key=("native threads", pid)
            )
        except TimeoutError:
            why = f"{name} did not start, or did not end"
        except (OSError, RuntimeError) as error:
            why = f"{name} could not be started ({error})"
        else:
            text = _clean(ran.out)
            if ran.status == 0 and text:
                return text, ""
            why = f"{name} gave no answer within {ran.seconds:.0f} s"
            if ran.status is not None:
                why = f"{name} ended with status {ran.status}: {_read_last_line(ran.err)}"
    return "", why


def _clean(printed: bytes) -> str:
    """Return the text from the first thread on, without secrets and what is for a terminal."""
    lines = mask_text(_CONTROL.sub("", printed.decode(errors="replace"))).splitlines()
    first = next((n for n, line in enumerate(lines) if re.match(r"Thread |Traceback", line)), None)
    return "" if first is None else "\n".join(line.rstrip() for line in lines[first:]).strip()


def _read_last_line(printed: str) -> str:
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no message"
