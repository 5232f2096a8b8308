"""Ranks that wait for peers as on GPUs, with stand-ins on gloo: is the one that differs named.

    python benchmarks/gpu_stand_ins.py [--world 8] [--jobs 40] [--attach] [NAME ...]

Each job is a world of ranks that hand an operation out and wait for it in one of five ways: a spin
on its handle, `Work.wait()`, a native call again and again, a helper thread that calls it, an event
that a helper thread sets. One rank does something else before it, in one of eight ways. The truth
of each is that rank and nobody else. A "loop" computes, and is slow for two minutes first. NAME is
"way" or "way/what". With --attach the job is started plainly and left to hang, then `hangbisect
attach` is asked. Aim: all of 40 named; never all ranks.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jobs

LIMIT = 300.0  # seconds for one job: eight ranks start slowly on a busy machine
SETTLES = 6.0  # seconds after a verdict in which it may still be taken back
_TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
_HANGBISECT = [sys.executable, "-m", "hangbisect"]
_ROUNDS = 6
_JOB = f"""
import ctypes, os, queue, socket, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import torch
import torch.distributed as dist

WAY, WHAT, WHO, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
libc = ctypes.CDLL(None)
helpers = ThreadPoolExecutor(1)
tensor = torch.ones(4)

def spin(work):
    while not work.is_completed():
        pass

def native(work):
    while not work.is_completed():
        libc.usleep(20000)

def event(work):
    done = threading.Event()
    def watch():
        work.wait()
        done.set()
    helpers.submit(watch)
    done.wait()

def reduce_once():
    if WAY == "helper":
        helpers.submit(dist.all_reduce, tensor).result()
        return
    work = dist.all_reduce(tensor, async_op=True)
    {{"spin": spin, "native": native, "event": event, "wait": lambda w: w.wait()}}[WAY](work)

def differ():
    if WHAT == "server":
        connection = socket.create_connection(("127.0.0.1", PORT))
        connection.sendall(b"next batch")
        connection.recv(1)
    elif WHAT == "sleep":
        time.sleep(10000)
    elif WHAT == "lock":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()
    elif WHAT == "pipe":
        os.mkfifo("feed")
        os.read(os.open("feed", os.O_RDWR), 1)
    elif WHAT == "child":
        subprocess.run(["sleep", "10000"])
    elif WHAT == "file":
        while not os.path.exists("shard.ready"):
            time.sleep(0.2)
    elif WHAT == "loop":
        flag = [False]
        while not flag[0]:
            pass

def train():
    for number in range({_ROUNDS}):
        if dist.get_rank() == WHO and number == {_ROUNDS} // 2:
            if WHAT == "skip":
                continue
            differ()
        reduce_once()

dist.init_process_group("gloo")
train()
queue.Queue().get()
"""
WAYS = ("spin", "wait", "native", "helper", "event")
WHATS = ("server", "sleep", "lock", "pipe", "child", "file", "loop", "skip")


def judge(
    way: str, what: str, who: int, port: int, options: argparse.Namespace
) -> tuple[dict[str, Any], float]:
    """Start one job; return its verdict, {} if there was none, and the seconds it took."""
    with jobs.folder() as here:
        (here / "job.py").write_text(_JOB)
        command = [_TORCHRUN, "--standalone", f"--nproc_per_node={options.world}", "job.py"]
        command += [way, what, str(who), str(port)]
        began = time.monotonic()
        if options.attach:
            return _attach(command, here), time.monotonic() - began
        ours = [*_HANGBISECT, "run", "--run-dir", "run", "--stall", "8", "--keep-watching"]
        running = jobs.Running([*ours, "--", *command], here, jobs.clean_environ())
        verdict = jobs.until(lambda: jobs.verdict_of(running.run_dir), LIMIT, running.process)
        seconds = time.monotonic() - began
        if verdict:
            time.sleep(SETTLES)
            verdict = jobs.verdict_of(running.run_dir)
        running.end(0.1)
        return verdict or {}, seconds


def _attach(command: list[str], here: Path) -> dict[str, Any]:
    running = jobs.Running(command, here, jobs.clean_environ())
    try:
        time.sleep(45.0)  # it has come to where it hangs
        found = subprocess.run(
            [*_HANGBISECT, "attach", "--json", "--run-dir", "seen", str(running.process.pid)],
            cwd=here,
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
        verdict: dict[str, Any] = json.loads(found.stdout or b"{}")
        return verdict
    finally:
        running.end(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--world", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=len(WAYS) * len(WHATS))
    parser.add_argument("--attach", action="store_true")
    options = parser.parse_args()
    jobs.heed_signals()
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections, and says nothing
    chosen = [
        (way, what)
        for way, what in itertools.product(WAYS, WHATS)
        if not options.names or way in options.names or f"{way}/{what}" in options.names
    ][: options.jobs]
    widths = (16, 4, 24, 9, 12, 24, 6)
    print(jobs.wide(("job", "who", "named", "outcome", "waits for", "cause", "s"), widths))
    right = 0
    for number, (way, what) in enumerate(chosen):
        who = (3 * number + 1) % options.world
        verdict, seconds = judge(way, what, who, silent.getsockname()[1], options)
        named = (verdict.get("ranks") or {}).get("culprit", [])
        right += named == [who]
        waits = (verdict.get("waits_for") or {}).get("kind")
        cause = (verdict.get("cause") or {}).get("id")
        mark = "" if named == [who] else "  WRONG"
        row = (f"{way}/{what}", who, named, verdict.get("outcome"), waits, cause, seconds)
        print(jobs.wide(row, widths) + mark, flush=True)
    print(f"{right} of {len(chosen)} named, and nobody else")
    return 0 if right == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
