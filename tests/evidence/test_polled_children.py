"""Loops that are left only when a child has ended, and loops that may be left by anything."""

from __future__ import annotations

import textwrap

import pytest
from hangbisect.evidence.rank_parents import waits_for_ends

# The line that sleeps is the one with "sleep(".
ONLY_FOR_ENDS = {
    "any alive": """
        while any(p.poll() is None for p in procs):
            time.sleep(0.5)
        """,
    "one after another": """
        for p in procs:
            while p.poll() is None:
                print("waiting", flush=True)
                sleep(1)
        """,
    "alive": """
        while p.is_alive() or q.is_alive():
            time.sleep(0.1)
        """,
    "exit codes": """
        while None in [p.exitcode for p in self.workers.values()]:
            time.sleep(1)
        """,
    "left by a break": """
        while True:
            codes = [p.poll() for p in procs]
            if all(code is not None for code in codes):
                break
            if any(code is not None and code != 0 for code in codes):
                for p in procs:
                    p.terminate()
                raise RuntimeError("a rank failed")
            time.sleep(1)
        """,
    "by waitpid": """
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(1)
        """,
    "each in turn": """
        while True:
            for p in procs:
                if p.poll() is not None:
                    sys.exit(p.returncode)
            time.sleep(1)
        """,
    "alive ones counted": """
        while len([p for p in procs if p.poll() is None]) > 0:
            time.sleep(1)
        """,
}
# A parent that sleeps in these may start another rank after it, though all live.
FOR_MORE = {
    "between starts": """
        for rank in range(4):
            procs.append(subprocess.Popen(command(rank)))
            time.sleep(30)
        """,
    "until enough": """
        while len(procs) < 4:
            procs.append(start(len(procs)))
            time.sleep(30)
        """,
    "until it is ready": """
        while p.poll() is None and not os.path.exists("ready"):
            time.sleep(1)
        """,
    "until a time": """
        while p.poll() is None and time.time() < end:
            time.sleep(1)
        """,
    "for a while": """
        for _ in range(100):
            if p.poll() is not None:
                break
            time.sleep(1)
        """,
    "a flag": """
        while not started and p.poll() is None:
            time.sleep(1)
        """,
    "starts in the loop": """
        while any(p.poll() is None for p in procs):
            start_missing(procs)
            time.sleep(1)
        """,
    "starts where too few live": """
        while any(p.poll() is None for p in procs):
            if len([p for p in procs if p.poll() is None]) < 4:
                procs.append(start())
            time.sleep(1)
        """,
    "left by anything": """
        while p.poll() is None:
            if has_come():
                break
            time.sleep(1)
        """,
    "a message": """
        while not connection.poll():
            time.sleep(1)
        """,
    "a message that is kept": """
        while True:
            came = connection.poll()
            if came:
                break
            time.sleep(1)
        """,
    "not looked yet": """
        while True:
            time.sleep(60)
            if p.poll() is not None:
                break
        """,
    "for ever": """
        while True:
            time.sleep(1)
        """,
    "in no loop": """
        p.poll()
        time.sleep(60)
        """,
    "a loop around the function": """
        while any(p.poll() is None for p in procs):
            def pause():
                time.sleep(60)
            pause()
        """,
    "sleeps for what is read": """
        while any(p.poll() is None for p in procs):
            time.sleep(next_start())
        """,
}


def sleeps_in(loop: str) -> bool:
    source = "import subprocess\n" + textwrap.dedent(loop)
    lines = source.splitlines()
    line = next(n for n, text in enumerate(lines, 1) if "sleep(" in text)
    return waits_for_ends(source, line)


@pytest.mark.parametrize("loop", ONLY_FOR_ENDS)
def test_a_loop_that_is_left_only_when_a_child_has_ended(loop: str) -> None:
    assert sleeps_in(ONLY_FOR_ENDS[loop])


@pytest.mark.parametrize("loop", FOR_MORE)
def test_a_loop_that_may_be_left_while_all_live_or_starts_more(loop: str) -> None:
    assert not sleeps_in(FOR_MORE[loop])


def test_what_polls_something_besides_processes_is_no_such_loop() -> None:
    """A client of a message queue has a poll() that gives None as well."""
    loop = "while consumer.poll() is None:\n    time.sleep(1)\n"
    assert not waits_for_ends(loop, 2)
    assert waits_for_ends("from subprocess import Popen\n" + loop, 3)


@pytest.mark.parametrize("source", ["", "while (", "\0", "x = 1"])
def test_what_is_no_such_source_tells_nothing(source: str) -> None:
    assert not waits_for_ends(source, 1)
