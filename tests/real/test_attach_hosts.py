"""`attach --hosts` by real ssh: two daemons, each in a container with a rank that hangs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from hangbisect.zoo.case_files import find_missing

from ..conftest import Start
from .verdicts import schema

DEADLINE = 60.0  # seconds
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
HOSTS = {"a": "127.0.0.2", "b": "127.0.0.3", "gone": "127.0.0.4"}
CONFIG = """\
ListenAddress {address}:{port}
HostKey {folder}/key
AuthorizedKeysFile {folder}/key.pub
StrictModes no
PermitRootLogin yes
UsePAM no
PidFile none
"""
CLIENT = """\
Host {name}
  HostName {address}
  Port {port}
  IdentityFile {folder}/key
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking accept-new
"""
# Beside the daemon, as torchrun on two nodes starts it.
NODE = """\
RANK={rank} LOCAL_RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 GROUP_WORLD_SIZE=2 GROUP_RANK={rank} \\
MASTER_ADDR=a MASTER_PORT=29500 TORCHELASTIC_RUN_ID=run7 {python} {folder}/train.py &
exec {sshd} -D -f {folder}/sshd-{name}
"""
TRAIN = """\
import os, pathlib, time

def read_the_index():
    time.sleep(1000)

pathlib.Path(__file__).with_name("ready-" + os.environ["RANK"]).touch()
read_the_index()
"""


@pytest.fixture
def environ(start: Start, tmp_path: Path) -> dict[str, str]:
    """What ssh needs to reach hosts `a` and `b`, on each of which a rank hangs."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"])
    Path("/run/sshd").mkdir(exist_ok=True)  # where it confines itself; most machines have it
    (tmp_path / "train.py").write_text(TRAIN)
    known = {"folder": tmp_path, "port": port, "python": sys.executable, "sshd": SSHD}
    container = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c")
    for rank, (name, address) in enumerate(list(HOSTS.items())[:2]):
        (tmp_path / f"sshd-{name}").write_text(CONFIG.format(address=address, **known))
        start(*container, NODE.format(name=name, rank=rank, **known))
    clients = [CLIENT.format(name=n, address=a, **known) for n, a in HOSTS.items()]
    (tmp_path / "config").write_text("".join(clients))
    (tmp_path / "bin").mkdir()
    ssh = tmp_path / "bin" / "ssh"
    ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {tmp_path}/config "$@"\n')
    ssh.chmod(0o755)
    ready = [tmp_path / "ready-0", tmp_path / "ready-1"]
    end = time.monotonic() + DEADLINE
    while not all(file.exists() for file in ready):
        assert time.monotonic() < end
        time.sleep(0.05)
    return os.environ | {"PATH": f"{ssh.parent}:{os.environ['PATH']}"}


CANNOT = find_missing(["root", "unshare"])
needs_hosts = pytest.mark.skipif(
    bool(CANNOT) or SSHD is None or shutil.which("ssh") is None,
    reason=CANNOT or "there is no ssh, or no sshd (openssh-server)",
)


@needs_hosts
def test_hosts_are_asked_side_by_side_and_one_that_is_gone_is_named(
    environ: dict[str, str], tmp_path: Path, package: Path
) -> None:
    asks = ("attach", "--hosts", ",".join(HOSTS), "--run-dir", tmp_path / "run")
    asked = subprocess.run(
        [sys.executable, str(package), *map(str, asks)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert asked.returncode == 4, asked.stdout + asked.stderr
    verdict = json.loads((tmp_path / "run" / "verdict.json").read_text())
    jsonschema.validate(verdict, schema())
    assert verdict["ranks"]["culprit"] == [0, 1]
    assert [(one["host"], one["pid"]) for one in verdict["where"]] == [("a", 2), ("b", 2)]
    assert "gone: ssh: connect to host 127.0.0.4" in asked.stderr
    assert "there: ssh gone hangbisect attach" in asked.stderr
    assert "note      gone is not seen" in asked.stdout


def find_ranks(folder: Path) -> list[str]:
    """The processes of the job, wherever they run."""
    commands = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            commands.append(file.read_text(errors="replace"))
    return [one for one in commands if one == f"{sys.executable}\0{folder}/train.py\0"]


@needs_hosts
def test_ranks_on_hosts_are_ended_once_that_is_confirmed_and_not_before(
    environ: dict[str, str], tmp_path: Path, package: Path
) -> None:
    def ask(*more: str) -> subprocess.CompletedProcess[str]:
        asks = ("attach", "--hosts", "a,gone,b", "--for", "0.5", "--kill", *more)
        return subprocess.run(
            [sys.executable, str(package), *asks],
            env=environ,
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * DEADLINE,
        )

    unasked = ask()
    assert unasked.returncode == 4, unasked.stdout + unasked.stderr
    assert "Nothing was ended: there is no terminal to ask at" in unasked.stderr
    assert len(find_ranks(tmp_path)) == 2
    asked = ask("--yes")
    assert "a: ended 2" in asked.stderr
    assert "b: ended 2" in asked.stderr
    assert "gone: not seen, so nothing was ended there" in asked.stderr
    assert find_ranks(tmp_path) == []
