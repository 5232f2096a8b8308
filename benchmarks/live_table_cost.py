"""What the live table costs: the CPU seconds of the process that draws it, and the wait at the end.

A drawer on a terminal of its own gets news of 8 ranks every two seconds, for a minute. Figures: CPU
seconds until the first table is there, those of the minute after it, what was written to the
terminal, the memory, and the time from the end to a clean terminal.

    python benchmarks/live_table_cost.py [--seconds 60]
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import resource
import select
import subprocess
import sys
import termios
import time
from pathlib import Path

from hangbisect.base.words import format_bytes

PACKAGE = Path(__file__).parents[1] / "bisect"
RANKS, EVERY = 8, 2.0
LIMIT = 0.01  # of one core


def main() -> int:
    """Print the figures; return 1 if drawing takes more than a hundredth of a core."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    ours, theirs = pty.openpty()
    job = os.fork()
    if job == 0:  # what stands for the job on its terminal
        os.login_tty(theirs)
        time.sleep(3600)
    told = json.dumps({"path": sys.path, "ranks": [job], "launcher": 0})
    command = [sys.executable, "-I", "-S", str(PACKAGE), "live_table", told]
    drawer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=theirs)
    os.set_blocking(ours, False)
    written = 0
    try:
        termios.tcsetwinsize(theirs, (24, 80))
        while not written:
            _tell(drawer)
            written += _read(ours)
        before = _cpu(drawer.pid)
        until = time.monotonic() + options.seconds
        while time.monotonic() < until:
            _tell(drawer)
            written += _read(ours)
        used = _cpu(drawer.pid) - before
        memory = _memory(drawer.pid)
        ended = time.monotonic()
        assert drawer.stdin is not None
        drawer.stdin.close()
        select.select([ours], [], [], 10.0)
        clean = time.monotonic() - ended
        drawer.wait(10)
    finally:
        drawer.kill()
        os.kill(job, 9)
        os.waitpid(job, 0)
    whole = resource.getrusage(resource.RUSAGE_CHILDREN)
    share = used / options.seconds
    print(f"until the first table  {before:.2f} s of CPU")
    speed = written / options.seconds
    print(f"while it is there      {share:.2%} of a core, {speed:.0f} bytes a second")
    print(
        f"memory                 {format_bytes(memory)}; all in all {whole.ru_utime:.2f} s of CPU"
    )
    print(f"gone after             {clean * 1000:.0f} ms")
    return int(share > LIMIT)


def _tell(drawer: subprocess.Popen[bytes]) -> None:
    now = time.monotonic()
    rows = [
        {
            **{"ranks": str(rank), "state": "works", "place": "9 WandbLogger ready"},
            **{"since": now - rank, "until": now + 60, "still_since": None, "moves": ""},
        }
        for rank in range(RANKS)
    ]
    news = {"rows": rows, "ranks": RANKS, "began": now - 60, "stall": 20.0}
    assert drawer.stdin is not None
    drawer.stdin.write(json.dumps(news).encode() + b"\n")
    drawer.stdin.flush()


def _read(terminal: int) -> int:
    taken = 0
    until = time.monotonic() + EVERY
    while select.select([terminal], [], [], max(0.0, until - time.monotonic()))[0]:
        taken += len(os.read(terminal, 1 << 16))
    return taken


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    raise SystemExit(main())
