"""`hangbisect doctor` where something is really wrong: sockets, locks, limits, processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base.proc import read_stat
from hangbisect.doctor.catalogue import FAMILIES
from hangbisect.doctor.examination import words_of
from hangbisect.zoo.case_files import find_missing
from hangbisect.zoo.parts.system import UNANSWERED, own_network

from ..conftest import Start

Found = dict[str, list[dict[str, Any]]]

# A file system whose server never answers, not even the kernel's first question.
DEAD_MOUNT = """
import ctypes, os, subprocess, sys
fuse = os.open("/dev/fuse", os.O_RDWR)
how = f"fd={fuse},rootmode=40000,user_id=0,group_id=0".encode()
mounted = ctypes.CDLL(None).mount(b"dead", sys.argv[1].encode(), b"fuse.sshfs", 0, how)
assert mounted == 0
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""
LIMIT = 120.0  # seconds for a doctor on a busy machine
HOLDS_A_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""
HOLDS_A_PORT = """
import os, socket, sys, time
if len(sys.argv) > 2:
    import setproctitle
    setproctitle.setproctitle(sys.argv[2])  # overwrites the environment that others see, too
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(os.getpid(), server.getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.fixture
def calm(tmp_path: Path) -> dict[str, str]:
    """An environment without anything that would be asked, in a home of its own."""
    dropped = ("RANK", "MASTER_", "WORLD_", "SLURM_", "NCCL_", "GLOO_", "HF_", "WANDB_", "TORCH")
    kept = {n: v for n, v in os.environ.items() if not n.startswith(dropped)}
    for name in ("http", "https", "all", "no"):
        kept.pop(f"{name}_proxy", None)
        kept.pop(f"{name}_PROXY".upper(), None)
    home = tmp_path / "home"
    home.mkdir()
    ours = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "TMPDIR": str(home)}
    return kept | ours | {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def silent() -> Iterator[int]:
    """A port at which connections are made, and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


def examined(process: subprocess.Popen[str]) -> Found:
    """Return what a doctor found, by id."""
    out, err = process.communicate(timeout=LIMIT)
    assert err == ""
    data = json.loads(out)
    assert process.returncode == (1 if data["outcome"] == "problem" else 0)
    found: Found = {}
    for one in data["findings"]:
        found.setdefault(one["id"], []).append(one)
    return found


def doctor(package: Path, limit: float = 60.0) -> tuple[object, ...]:
    """Return the words that start one, which has time on a busy machine too."""
    return sys.executable, package, "doctor", "--json", "--limit", limit


def level(found: Found, check: str) -> str:
    return " ".join(one["level"] for one in found[check])


def test_what_is_wrong_is_found_all_at_once(
    package: Path, calm: dict[str, str], silent: int, start: Start, tmp_path: Path
) -> None:
    hub, built = tmp_path / "hub" / ".locks", tmp_path / "built" / "py" / "ops"
    hub.mkdir(parents=True)
    built.mkdir(parents=True)
    (built / "lock").touch()
    lock = str(hub / "model.lock")
    holder = start(sys.executable, "-c", HOLDS_A_LOCK, lock, stdin=subprocess.PIPE)
    taken = start(sys.executable, "-c", HOLDS_A_PORT, 0)
    assert holder.stdout is not None
    assert taken.stdout is not None
    holder.stdout.readline()
    os.kill(holder.pid, signal.SIGSTOP)
    pid, port = taken.stdout.readline().split()
    environ = {
        **calm,
        "MASTER_PORT": port,
        "MASTER_ADDR": "localhost",
        "SLURM_JOB_ID": "7",
        "SLURM_NNODES": "2",
        "NODE_RANK": "1",
        "NCCL_SOCKET_IFNAME": "=none0",
        "GLOO_SOCKET_IFNAME": "none0",
        "https_proxy": f"http://user:secret@127.0.0.1:{silent}",
        "no_proxy": "localhost",
        "WANDB_MODE": "online",
        "WANDB_BASE_URL": f"http://127.0.0.1:{silent}",
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": f"https://127.0.0.1:{silent}",
        "HF_HUB_CACHE": str(tmp_path / "hub"),
        "TORCH_EXTENSIONS_DIR": str(tmp_path / "built"),
    }
    limited = ("sh", "-c", 'ulimit -S -n 200; exec "$@"', "sh")
    found = examined(start(*limited, *doctor(package), env=environ))
    problems = {"master-port", "master-addr", "launcher-variables", "nccl-socket-ifname"}
    problems |= {
        "gloo-socket-ifname",
        "proxies",
        "wandb",
        "hub",
        "stale-locks",
        "open-files",
        "held-locks",
    }
    assert {check for check in found if level(found, check) == "problem"} >= problems
    assert f"python ({pid}" in found["master-port"][0]["value"]
    assert f"({holder.pid}" in found["held-locks"][0]["value"]
    assert level(found, "no-proxy") == "warning"
    assert "secret" not in str(found)


def test_it_changes_nothing_and_every_check_says_something(
    package: Path, calm: dict[str, str], start: Start, tmp_path: Path
) -> None:
    before = sorted(tmp_path.rglob("*"))
    mark = {"HANGBISECT_DOCTOR_TEST": str(os.getpid())}
    environ = {**calm, **mark, "PYTHONDONTWRITEBYTECODE": "1"}
    found = examined(start(*doctor(package), env=environ, cwd=tmp_path))
    assert set(found) == {check.id for family in FAMILIES for check in family.checks}
    assert [one for those in found.values() for one in those if "own error" in one["value"]] == []
    assert sorted(tmp_path.rglob("*")) == before
    left = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if b"HANGBISECT_DOCTOR_TEST=" in Path(f"/proc/{name}/environ").read_bytes():
                left.append(name)
        except OSError:
            continue
    assert left == []


def nodes_of(
    environ: dict[str, str], ranks: tuple[int, ...], port: int
) -> Iterator[dict[str, str]]:
    """Yield the environment of a rank on each of three nodes, as a launcher sets it."""
    for rank in ranks:
        job = {"TORCHELASTIC_RUN_ID": "made-up", "MASTER_ADDR": "127.0.0.1"}
        job |= {"RANK": f"{rank}", "GROUP_RANK": f"{rank}", "LOCAL_RANK": "0"}
        job |= {"WORLD_SIZE": "3", "LOCAL_WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "3"}
        yield environ | job | {"MASTER_PORT": str(port)}


def test_nodes_meet_behind_a_port_that_is_taken_and_reach_one_another(
    package: Path, calm: dict[str, str], silent: int, start: Start
) -> None:
    started = [start(*doctor(package), env=env) for env in nodes_of(calm, (0, 1, 2), silent)]
    for process in started:
        (one,) = examined(process)["nodes"]
        assert one["level"] == "ok", one
        assert one["value"].startswith("all 2 other nodes reached")


def test_a_node_that_does_not_come_is_missed(
    package: Path, calm: dict[str, str], start: Start
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = [start(*doctor(package, 10.0), env=env) for env in nodes_of(calm, (0, 2), port)]
    for process in started:
        assert "1 of 2 other nodes did not come" in examined(process)["nodes"][0]["value"]


@pytest.mark.parametrize("title", [(), ("VLLM::EngineCore",), ("sglang::scheduler_TP0",)])
def test_a_rank_that_was_left_behind_is_found_with_its_port(
    package: Path, calm: dict[str, str], start: Start, title: tuple[str, ...]
) -> None:
    rank = {**calm, "LOCAL_RANK": "1", "RANK": "1", "TORCHELASTIC_RUN_ID": "earlier"}
    # Its parent, the shell, ends at once, as a launcher does that is killed.
    holds = (sys.executable, "-c", HOLDS_A_PORT, 0, *title)
    shell = start("sh", "-c", '"$@" & ', "sh", *holds, env=rank)
    assert shell.stdout is not None
    pid, port = shell.stdout.readline().split()
    shell.wait(LIMIT)
    try:
        above = read_stat(int(pid))
        if above is None or above.ppid != 1 or "python" in "".join(words_of(1)[:1]):
            pytest.skip("what is left behind goes to no first process that starts nothing here")
        found = examined(start(*doctor(package), env={**calm, "MASTER_PORT": port}))
        (mine,) = [one for one in found["leftovers"] if f"({pid}" in one["value"]]
        assert mine["level"] == "problem"
        assert f"port {port}" in mine["value"]
    finally:
        os.kill(int(pid), signal.SIGKILL)  # no mark tells it from others any more


@pytest.mark.skipif(
    bool(find_missing(["unshare", "network namespace"])),
    reason=find_missing(["unshare", "network namespace"]),
)
def test_little_shared_memory_and_a_master_that_nobody_reaches(
    package: Path, calm: dict[str, str], start: Start
) -> None:
    small = ("unshare", "--mount", "sh", "-ec", 'mount -t tmpfs -o size=64m x /dev/shm; exec "$@"')
    place = (*own_network(unanswered=True), *small, "sh")
    environ = {**calm, "MASTER_ADDR": UNANSWERED, "MASTER_PORT": "29500"}
    found = examined(start(*place, *doctor(package), env=environ))
    assert level(found, "shm") == level(found, "master-port") == "problem"
    assert "does not answer within" in found["master-port"][0]["value"]


@pytest.mark.skipif(
    bool(find_missing(["root", "unshare"])) or not os.path.exists("/dev/fuse"),
    reason=find_missing(["root", "unshare"]) or "needs /dev/fuse",
)
def test_a_file_system_that_is_gone_does_not_hold_up_the_rest(
    package: Path, calm: dict[str, str], start: Start, tmp_path: Path
) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    place = ("unshare", "--mount", sys.executable, "-c", DEAD_MOUNT, dead)
    environ = {**calm, "HF_HOME": str(dead / "huggingface")}
    found = examined(start(*place, *doctor(package), env=environ))
    assert level(found, "file-systems") == "problem"
    assert "hub cache" in found["file-systems"][0]["value"]
    assert level(found, "network-caches").startswith("warning")
    assert "own error" not in str(found)


def test_under_torchrun_one_rank_of_the_node_speaks(calm: dict[str, str], start: Start) -> None:
    launcher = (sys.executable, "-P", "-m", "torch.distributed.run", "--standalone")
    process = start(
        *(*launcher, "--nproc_per_node=2", "-m", "bisect", "doctor", "--json"),
        env={**calm, "OMP_NUM_THREADS": "1"},
    )
    out, _ = process.communicate(timeout=LIMIT)
    (line,) = out.splitlines()
    by_id = {one["id"]: one for one in json.loads(line)["findings"]}
    assert by_id["launcher-variables"]["value"] == "torchrun started rank 0"
    assert "is served by" in by_id["master-port"]["value"]
