"""Another user of the same machine reads, writes, changes and delays nothing."""

from __future__ import annotations

import os
import pickle
import re
import socket
import subprocess
import time
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from ..hosts_here import HostsHere
from ..test_joined_nodes import end_all, listening, start, told, until_told
from ..test_several_hosts import shown
from .side_by_side import (
    Beside,
    Both,
    Started,
    as_user,
    at_once,
    can_mount,
    for_others,
    others_python,
)

pytestmark = [
    pytest.mark.skipif(os.getuid() != 0, reason="root alone may be another user"),
    pytest.mark.skipif(not can_mount(), reason="no mount namespace may be made here"),
]
VICTIM, OTHER = 54321, 54322
DEADLINE = 120.0  # seconds for a program to end, on a busy machine
TWICE = "unset XDG_RUNTIME_DIR; exec $RUN bash $PROGRAMS/twice.sh $PYTHON $PROGRAMS/peeks.py"
PLACES = ("shm", "tmp", "slash_tmp")  # that everybody may write to


class Squatter:
    """Learns the names that a job uses, and takes them before it starts once more."""

    def __init__(self, kind: str, victim: int) -> None:
        """It makes a `folder`, or a `link` to somewhere of its own, open to all."""
        self.kind, self.victim = kind, victim
        self.folders: list[Path] = []

    def __call__(self, started: Started) -> None:
        """Watch the first start, squat, and let the second come."""
        folder = started.folder
        seen: set[Path] = set()
        began = time.monotonic()
        started.until_true(lambda: self._look(folder, seen) and "over\n" in started.said(), "over")
        while started.is_watched and (there := [path for path in seen if os.path.lexists(path)]):
            # For the first start to tidy up: something, and for some seconds whatever else it may.
            if time.monotonic() > began + (4 if len(there) < len(seen) else DEADLINE):
                break
            self._look(folder, seen)
            time.sleep(0.01)
        with ExitStack() as bound:
            for name in _abstract_names(seen, self.victim):
                one = bound.enter_context(socket.socket(socket.AF_UNIX))
                with suppress(OSError):
                    one.bind(name)
            for path in seen:
                self._take(path, folder)
            (folder / "cwd" / "again").touch()
            started.until_true(lambda: started.said().count("over") >= 2, "the second start")
            started.process.wait(DEADLINE)

    def _look(self, folder: Path, seen: set[Path]) -> str:
        for place in PLACES:
            for entry in os.listdir(folder / place):
                if "hangbisect" in entry:
                    seen.add(folder / place / entry)
        return "started"

    def _take(self, path: Path, folder: Path) -> None:
        if os.path.lexists(path):
            return
        if self.kind == "link":
            own = folder / "home" / path.name
            own.mkdir(exist_ok=True)
            path.symlink_to(own)
            os.lchown(path, OTHER, OTHER)
        else:
            own = path
            own.mkdir()
        own.chmod(0o777)
        os.chown(own, OTHER, OTHER)
        self.folders.append(own)


def _abstract_names(seen: set[Path], victim: int) -> set[str]:
    """Return the abstract sockets of a job whose folders are `seen`, and likely ones."""
    found = {"\0" + path.name for path in seen}
    words = {word for path in seen for word in re.findall(r"[0-9a-f]{8,}", path.name)}
    return found | {f"\0hangbisect-{victim}-{word}" for word in words}


def test_names_that_another_user_took_are_not_used(beside: Beside) -> None:
    def run(kind: str, victim: int) -> None:
        squatter = Squatter(kind, victim)
        stays = "hangbisect"  # what the other user made
        both = beside(TWICE, meanwhile=squatter, user=victim, may_stay=stays).check()
        assert both.plain.out == "safe\nsoon\nover\n" * 2, both
        assert len({own.name for own in squatter.folders}) >= 1, both
        for own in squatter.folders:
            kept = both.watched.folder / own.relative_to(own.parents[1])
            assert not [*kept.iterdir()], kept
        hellos = (both.watched.folder / "run" / "events.jsonl").read_text().count('"t": "hello"')
        assert hellos >= 1, both

    # The names of a job have its user in them.
    at_once(partial(run, "folder", VICTIM), partial(run, "link", VICTIM + 2))


def test_another_user_can_do_nothing_with_what_is_ours(beside: Beside) -> None:
    """It looks all the time, and tries to read, to write, to connect, to make and to remove."""
    heard: list[str] = []

    def spy(started: Started) -> None:
        folder = started.folder
        places = [str(folder / place) for place in (*PLACES, "xdg", "home", "run")]
        words = [
            *as_user(OTHER),
            others_python(),
            str(for_others() / "programs" / "spies.py"),
            *places,
        ]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as other:
            started.process.wait(DEADLINE)
            time.sleep(0.2)
            other.kill()
            heard.extend(other.communicate()[0].splitlines())

    script = "$RUN $PYTHON $PROGRAMS/ends_with.py 4 7 rank"
    both = beside(script, watch=("--stall", "2"), meanwhile=spy, user=VICTIM).check()
    assert heard.count("ready") == 2, heard
    assert [line for line in heard if line != "ready"] == [], both


def test_a_run_folder_of_another_users_is_not_written_to(beside: Beside) -> None:
    """Where the current folder may not be written, `run` looks for one elsewhere."""

    def take(folder: Path) -> None:
        for place in PLACES:
            own = folder / place / f"hangbisect-runs-{VICTIM}"
            own.mkdir(exist_ok=True)
            own.chmod(0o777)
            os.chown(own, OTHER, OTHER)
        (folder / "cwd").chmod(0o555)
        (folder / "home" / "victim").write_text("victim")

    script = "$HANGBISECT run -- bash -c 'exit 7'; echo $?"
    stays = "^home/victim$|^shm/hangbisect-files-"  # its files are there, as it says
    run = beside.watched(script, prepare=take, user=VICTIM, may_stay=stays)
    assert run.out == "7\n", run
    assert "files are in /dev/shm/hangbisect-files-" in run.err, run
    for place in PLACES:
        assert not [*(run.folder / place / f"hangbisect-runs-{VICTIM}").iterdir()], run


def test_a_recorders_file_of_another_users_is_not_read(beside: Beside) -> None:
    """NCCL's flight recorder writes to /tmp/nccl_trace_rank_N by default, and anybody may."""
    for both in at_once(*(partial(_beside_file, beside, kind) for kind in KINDS)):
        # It ends as soon as it moves: before that is seen, where it was called silent.
        assert both.watched.verdict.get("outcome") in ("ok", "silent"), both
        assert "looking" in both.watched.err, both
        assert "flight recorder" not in both.watched.err, both


KINDS = ("deep", "forged", "fifo", "link")


def _beside_file(beside: Beside, kind: str) -> Both:
    """Run a rank that is looked at beside such a file; a look must not take much memory."""
    most = [0]

    def plant(folder: Path) -> None:
        path = folder / "slash_tmp" / "nccl_trace_rank_0"
        if kind == "fifo":
            os.mkfifo(path, 0o666)
        elif kind == "link":
            path.symlink_to("/dev/zero")
            os.lchown(path, OTHER, OTHER)
            return
        else:
            path.write_bytes(_laughing() if kind == "deep" else _forged())
            os.utime(path, (1893456000, 1893456000))
        os.chown(path, OTHER, OTHER)

    def measure(started: Started) -> bool:
        for pid in started.ours():
            with suppress(OSError, IndexError):
                text = Path(f"/proc/{pid}/status").read_text()
                most.append(int(re.findall(r"VmHWM:\s*(\d+)", text)[0]))
        return "looking" in started.errors()

    def look(started: Started) -> None:
        started.until("waits")
        if started.is_watched:
            started.until_true(lambda: measure(started), "looking")
            end = time.monotonic() + 4  # for the look itself
            while time.monotonic() < end:
                measure(started)
                time.sleep(0.1)
        started.enough()

    variables = "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29997"
    script = f"{variables} exec $RUN $PYTHON $PROGRAMS/waits.py"
    both = beside(script, watch=("--stall", "2"), prepare=plant, meanwhile=look, user=VICTIM)
    assert max(most) < 250_000, max(most)  # KiB; without such a file it is a quarter of it
    return both.check()


def _laughing() -> bytes:
    """Return some hundred bytes that are long, once they are printed."""
    deep: list[object] = ["ha"]
    for _ in range(26):
        deep = [deep, deep]
    return pickle.dumps(_dump(deep))


def _forged() -> bytes:
    return pickle.dumps(_dump("nccl:all_reduce"))


def _dump(name: object) -> dict[str, object]:
    entry = {
        **{
            "record_id": 0,
            "pg_id": 0,
            "process_group": ("0", "default_pg"),
            "profiling_name": name,
        },
        **{"collective_seq_id": 5, "p2p_seq_id": 0, "op_id": 5, "state": "started", "frames": []},
        **{"input_sizes": [[1]], "output_sizes": [[1]], "time_created_ns": 1, "retired": False},
    }
    groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    return {"version": "2.9", "entries": [entry], "pg_config": groups}


# Asks who listens there, as one who has not the token of the job; prints what came after that, and
# whether it may read what has the token.
STRANGER = """
import glob, json, socket, sys
address, folder, ports = sys.argv[1], sys.argv[2], sys.argv[3].split(",")

def exchange(port, *said):
    with socket.create_connection((address, int(port)), timeout=20) as one:
        one.settimeout(20)
        size = int.from_bytes(one.recv(4, socket.MSG_WAITALL), "big")
        greeting = json.loads(one.recv(size, socket.MSG_WAITALL))
        for message in said:
            body = json.dumps(message).encode()
            one.sendall(len(body).to_bytes(4, "big") + body)
        try:
            return greeting["t"], one.recv(1 << 16).hex()
        except ConnectionError:
            return greeting["t"], ""

hello = {"t": "node", "v": 1, "nonce": "00" * 16, "job": "guessed", "proof": "0" * 64}
join = {"t": "join", "node": "1", "host": "n9", "process": "p", "ranks": [1], "world_size": 2}
for port in ports:
    print(*exchange(port, hello), *exchange(port, join), *exchange(port, {**hello, "proof": None}))
environs = glob.glob("/proc/[0-9]*/environ")
for path in [*environs, *glob.glob(folder + "/**/link.json", recursive=True)]:
    try:
        if b"HANGBISECT_TOKEN" in (data := open(path, "rb").read()) or b"token" in data:
            print("read", path)
    except OSError:
        pass
"""


def test_another_user_is_refused_by_who_leads_several_nodes(hosts_here: HostsHere) -> None:
    """Whatever it says there the verdict stays the job's own, and no token is to be read."""
    made = hosts_here.make(2, shared=False)
    started = start(hosts_here, made, "1", "fifo", "1000")
    made.until(lambda: "2 nodes are joined" in started[0].said(), "not joined", DEADLINE)
    first = made.all[0]
    ports = [one.rpartition(":")[2] for one in listening(first) if first.address in one]
    assert ports
    for host in made:
        words = [*as_user(65534), others_python(), "-I", "-S", "-c", STRANGER]
        words += [first.address, str(made.folder), ",".join(ports)]
        said = host.run(words, folder="/")
        assert said.returncode == 0, said.stderr
        assert said.stdout.split() == ["lead", "lead", "lead"] * len(ports), said.stdout
    until_told(made.all, started)
    for host in made:
        found = told(host)
        assert found["ranks"]["culprit"] == [1], shown(started)
        assert [one["name"] for one in found["nodes"]] == ["n1", "n2"]
        assert not found["partial"]
    assert all(one.process.poll() is None for one in started), shown(started)
    end_all(started)
