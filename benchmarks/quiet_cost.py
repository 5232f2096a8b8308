"""What our processes use once a training runs, on a machine with thousands of processes.

A training of two ranks is started below `hangbisect run`, beside so many processes that wait; once
its ranks have been quiet for a while, the CPU time of each of ours is counted. Aim: below 0.1 % of
a core each, and no more with more processes on the machine.

    python benchmarks/quiet_cost.py [--processes 4000] [--seconds 60] [--settle 20] [--silent]

--silent watches a program that tells no steps, as one in a language of its own: only the process
around it looks.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import jobs
from light_programs import FAKE_TORCH, PROGRAMS
from our_processes import ours

LIMIT = 0.001  # of a core
# Each of its children waits for a signal, and has no memory of its own.
_WAITING = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>
int main(int count, char **words) {
    int wanted = atoi(words[1]), made = 0;
    for (; made < wanted; made++) {
        pid_t pid = fork();
        if (pid < 0) break;
        if (!pid) { prctl(PR_SET_PDEATHSIG, SIGKILL); for (;;) pause(); }
    }
    printf("%d\\n", made);
    fflush(stdout);
    for (;;) pause();
}
"""
_TRAINS = """
import sys, time, torch
optimizer = torch.optim.SGD()
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    time.sleep(0.1)
    optimizer.step()
"""
_SILENT = """
import sys, time
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    sum(range(100000)); time.sleep(0.1)
"""


@contextlib.contextmanager
def waiting(count: int) -> Iterator[int]:
    """Have so many processes wait; yield how many there are."""
    with tempfile.TemporaryDirectory() as base:
        source, program = Path(base) / "waiting.c", Path(base) / "waiting"
        source.write_text(_WAITING)
        subprocess.run(("gcc", "-O2", "-static", str(source), "-o", str(program)), check=True)
        words = (str(program), str(count))
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
            try:
                assert parent.stdout is not None
                yield int(parent.stdout.readline())
            finally:
                parent.kill()


def used(pid: int) -> float | None:
    """Return the CPU seconds that a process has used, with those of children that it reaped."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return sum(map(int, words[11:15])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Print what each of ours used; return 1 if one used too much."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--settle", type=float, default=20.0, help="before it is counted")
    parser.add_argument("--silent", action="store_true")
    options = parser.parse_args()
    jobs.heed_signals()
    with jobs.folder() as folder, waiting(options.processes) as count:
        (folder / "train.py").write_text(_SILENT if options.silent else _TRAINS)
        environ = {**jobs.clean_environ(), "PYTHONPATH": str(FAKE_TORCH)}
        seconds = options.settle + options.seconds + 30
        ranks = ("bash", str(PROGRAMS / "ranks.sh"), "2")
        front = str(Path(sys.executable).with_name("hangbisect"))
        words = (front, "run", "--run-dir", str(folder / "run"), "--", *ranks)
        command = (*words, sys.executable, "train.py", str(seconds))
        running = jobs.Running(command, folder, environ)
        jobs.until(lambda: False, options.settle, running.process)
        found = {"front": [running.process.pid], **ours(running)}
        before = {pid: used(pid) for pids in found.values() for pid in pids}
        began = time.monotonic()
        jobs.until(lambda: False, options.seconds, running.process)
        elapsed = time.monotonic() - began
        print(f"{count} processes wait; {elapsed:.0f} s, {options.settle:.0f} s after the start")
        most = 0.0
        for who, pids in found.items():
            for pid in pids:
                after, first = used(pid), before[pid]
                if after is None or first is None:
                    print(f"{who:10} pid {pid:7}  has ended")
                    continue
                share = (after - first) / elapsed
                most = max(most, share)
                print(f"{who:10} pid {pid:7}  {share:8.3%} of a core")
        for pid in running.marked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        running.end(10)
    met = most < LIMIT
    print(f"the most is {most:.3%} of a core, the limit {LIMIT:.1%}: {'met' if met else 'NOT MET'}")
    return int(not met)


if __name__ == "__main__":
    raise SystemExit(main())
