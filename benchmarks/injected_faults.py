"""Faults of ours in a job that runs: each does one harm to what watches, and nothing to the job."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

import jobs
from our_processes import its_shared_memory, ours

PAUSE = 12.0  # seconds for which a whole job is stopped: longer than its --stall
_BASES = ("x", "t")  # for sockets and temporary files (jobs.Running)
Inject = Callable[[jobs.Running], str]

# For every process of a job, ours and its own: the machine has one clock.
CLOCK_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long more(void) {
    long seconds = 0;
    char path[4096];
    const char *home = getenv("HOME");  /* each job has its own (script_jobs.py) */
    snprintf(path, sizeof path, "%s/../job/clock", home ? home : "");
    FILE *file = fopen(path, "re");
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, time);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) time->tv_sec += more();
    return result;
}
time_t time(time_t *result) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (result) *result = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}
"""


def _send(who: str, number: int) -> Inject:
    def inject(running: jobs.Running) -> str:
        return _to_each(_victims(running, who), lambda pid: os.kill(pid, number))

    return inject


def _victims(running: jobs.Running, who: str, limit: float = 5.0) -> list[int]:
    """Return processes of ours of a kind, "all" for each, waiting for one to appear."""

    def found() -> list[int]:
        each = ours(running)
        return [*chain(*each.values())] if who == "all" else each[who]

    return jobs.until(found, limit, running.process) or []


def _to_each(pids: Iterable[int], do: Callable[[int], object]) -> str:
    done = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError):
            do(pid)
            done += 1
    return "done" if done else "nobody there"


def _stop_for_a_while(who: str) -> Inject:
    def inject(running: jobs.Running) -> str:
        pids = _victims(running, who)
        how = _to_each(pids, lambda pid: os.kill(pid, signal.SIGSTOP))
        jobs.until(lambda: False, 3.0, running.process)
        _to_each(pids, lambda pid: os.kill(pid, signal.SIGCONT))
        return how

    return inject


def _kill_probes(running: jobs.Running) -> str:
    """Kill each py-spy that is started from now on; have one be started."""
    killed = 0
    while running.process.poll() is None:
        for pid in ours(running)["probe"]:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                killed += 1
        time.sleep(0.005)
    return f"{killed} killed"


def _fill_stage(running: jobs.Running) -> str:
    with contextlib.suppress(OSError), open(its_shared_memory(running) / "full", "wb") as file:
        while True:
            file.write(b"x" * 65536)
            file.flush()
    return "done"


def _our_files(running: jobs.Running) -> Iterator[Path]:
    here = running.run_dir.parent
    places = [its_shared_memory(running), *(here / name for name in _BASES)]
    for place in places:
        with contextlib.suppress(OSError):
            yield from (entry for entry in place.iterdir() if "hangbisect" in entry.name)


def _remove_stage(running: jobs.Running) -> str:
    found = [*_our_files(running)]
    for path in found:
        shutil.rmtree(path, ignore_errors=True)
    return "done" if found else "nothing there"


def _remove_sockets(running: jobs.Running) -> str:
    done = 0
    for folder in _our_files(running):
        for path in folder.rglob("*"):
            with contextlib.suppress(OSError):
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()
                    done += 1
    return f"{done} removed"


def _remove_run_folder(running: jobs.Running) -> str:
    shutil.rmtree(running.run_dir, ignore_errors=True)
    return "done"


def _jump(seconds: int) -> Inject:
    def inject(running: jobs.Running) -> str:
        clock = running.run_dir.parent / "clock"
        clock.write_text(str(seconds))
        jobs.until(lambda: False, 3.0, running.process)
        clock.write_text(str(-2 * seconds))
        return "done"

    return inject


def _lower(limit: int, what: Callable[[int], int]) -> Inject:
    def inject(running: jobs.Running) -> str:
        def lower(pid: int) -> None:
            resource.prlimit(pid, limit, (what(pid), what(pid)))

        return _to_each(_victims(running, "all"), lower)

    return inject


def _open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _memory(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _pause_all(running: jobs.Running) -> str:
    """Stop the job, its launcher and our front, as Ctrl-Z does, and let them go on."""
    watching = {*chain(*ours(running).values())}
    pids = [pid for pid in running.marked() if pid not in watching]
    how = _to_each(pids, lambda pid: os.kill(pid, signal.SIGSTOP))
    time.sleep(PAUSE)
    _to_each(pids, lambda pid: os.kill(pid, signal.SIGCONT))
    return how


FAULTS: dict[str, Inject] = {
    "monitor-killed": _send("monitor", signal.SIGKILL),
    "monitor-stopped": _send("monitor", signal.SIGSTOP),
    "monitor-paused": _stop_for_a_while("monitor"),
    "monitor-usr1": _send("monitor", signal.SIGUSR1),
    "monitor-usr2": _send("monitor", signal.SIGUSR2),
    "monitor-hup": _send("monitor", signal.SIGHUP),
    "monitor-quit": _send("monitor", signal.SIGQUIT),
    "monitor-segv": _send("monitor", signal.SIGSEGV),
    "watcher-killed": _send("watcher", signal.SIGKILL),
    "watcher-stopped": _send("watcher", signal.SIGSTOP),
    "watcher-usr1": _send("watcher", signal.SIGUSR1),
    "watcher-quit": _send("watcher", signal.SIGQUIT),
    "stand-in-killed": _send("stand-in", signal.SIGKILL),
    "stand-in-stopped": _send("stand-in", signal.SIGSTOP),
    "all-killed": _send("all", signal.SIGKILL),
    "all-stopped": _send("all", signal.SIGSTOP),
    "probes-killed": _kill_probes,
    "stage-full": _fill_stage,
    "stage-removed": _remove_stage,
    "sockets-removed": _remove_sockets,
    "run-folder-removed": _remove_run_folder,
    "clock-forward": _jump(7200),
    "clock-back": _jump(-7200),
    "descriptors-used-up": _lower(resource.RLIMIT_NOFILE, _open_files),
    "memory-used-up": _lower(resource.RLIMIT_AS, _memory),
    "disk-used-up": _lower(resource.RLIMIT_FSIZE, lambda pid: 0),
    "processes-used-up": _lower(resource.RLIMIT_NPROC, lambda pid: 0),
    "job-paused": _pause_all,
}
