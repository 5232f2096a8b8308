"""The first process of a host that hosts.py makes: its own files, and its end."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys

_ETC = ("hosts", "nsswitch.conf", "resolv.conf", "ssh/ssh_config")


def _be_the_first(name: str, root: str, folder: str) -> None:
    """Make the host's file system, and then end only with who started it."""
    subprocess.run(["hostname", name], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    hold = "/dev/shm/hold"
    mounts = [("tmpfs", "/dev/shm", "-t", "tmpfs", "-o", "mode=1777")]
    # The folders are below the /tmp that is hidden.
    held = [(f"{root}/etc", "etc"), (folder, "folder")]
    mounts += [(source, f"{hold}/{there}", "--bind") for source, there in held]
    mounts += [(f"{hold}/etc/{file}", f"/etc/{file}", "--bind") for file in _ETC]
    mounts += [("tmpfs", "/tmp", "-t", "tmpfs", "-o", "mode=1777")]
    mounts += [("tmpfs", "/run", "-t", "tmpfs", "-o", "mode=755")]
    mounts += [(f"{hold}/{there}", f"{root}/{there}", "--move") for _, there in held]
    for source, target, *how in mounts:
        if not target.startswith("/etc/"):
            os.makedirs(target, exist_ok=True)
        if os.path.exists(source) or source == "tmpfs":
            target = os.path.realpath(target)
            subprocess.run(["mount", *how, source, target], check=os.path.exists(target))
    shutil.rmtree(hold)
    os.makedirs("/run/sshd", exist_ok=True)
    signal.signal(signal.SIGCHLD, _take_in_orphans)
    print("ready", flush=True)
    sys.stdin.buffer.read()


def _take_in_orphans(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    _be_the_first(*sys.argv[1:])
