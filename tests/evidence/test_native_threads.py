"""All threads of a process with their native frames, as pystack and gdb show them."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time

import pytest
from hangbisect.base.proc import read_stat
from hangbisect.evidence.native_threads import list_tools, read_native_threads

# A thread of C's: Python knows nothing of it.
STARTS_A_THREAD = """
import ctypes, time
libc = ctypes.CDLL(None)
sleep = ctypes.cast(libc.sleep, ctypes.c_void_p)
libc.pthread_create(ctypes.byref(ctypes.c_ulong()), None, sleep, ctypes.c_void_p(300))
print("started", flush=True)
time.sleep(300)
"""


@pytest.mark.parametrize("tool", ["pystack", "gdb"])
def test_threads_that_are_none_of_pythons_are_shown_and_the_process_goes_on(tool: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_THREAD], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            tools = [one for one in list_tools(process.pid) if one[0].endswith(tool)]
            if not tools:
                pytest.skip(f"{tool} is not here")
            assert process.stdout is not None
            assert process.stdout.readline() == "started\n"
            text, why = asyncio.run(read_native_threads(process.pid, tools))
            assert why == ""
            head = r"^Traceback for thread " if tool == "pystack" else r"^Thread \d+ \("
            threads = re.split(head, text, flags=re.MULTILINE)[1:]
            assert len(threads) == 2
            assert all("nanosleep" in one for one in threads)
            assert sum("time_sleep" in one or "pysleep" in one for one in threads) <= 1
            time.sleep(0.2)
            about = read_stat(process.pid)
            assert about is not None
            assert about.state == "S"
        finally:
            process.kill()


def asked(*scripts: str, limit: float = 20.0) -> tuple[str, str]:
    """What is read where these scripts of a shell are the tools."""
    tools = [("/bin/sh", "-c", script) for script in scripts]
    return asyncio.run(read_native_threads(1, tools, limit))


def test_what_is_for_a_terminal_and_what_is_secret_is_left_out() -> None:
    lines = r"read symbols\n\033[1mThread 2 (LWP 7)\033[0m\n#0 WANDB_API_KEY=0123456789abcdef\a"
    text, why = asked(f"printf '{lines}'")
    assert text.startswith("Thread 2 (LWP 7)\n#0 ")
    assert "0123456789abcdef" not in text
    assert why == ""


def test_where_the_first_tool_fails_the_next_one_is_asked() -> None:
    assert asked("exit 3", "echo Thread 1") == ("Thread 1", "")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo no permission >&2; exit 1", "sh ended with status 1: no permission"),
        ("echo nothing of use", "sh ended with status 0: no message"),
        ("exec sleep 60", "sh gave no answer within"),
    ],
)
def test_why_there_is_nothing_is_said(script: str, why: str) -> None:
    text, said = asked(script, limit=2.0)
    assert text == ""
    assert said.startswith(why)


def test_without_a_tool_it_is_said_which_would_do() -> None:
    assert asked() == ("", "neither pystack nor gdb is here")
