"""When a server is ready: what `hangbisect run` says, and that it is quiet from then on."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from .whole_jobs import write_launcher

Start = Callable[..., "subprocess.Popen[str]"]

SCRIPTS = Path(__file__).parents[2] / "scenarios" / "scripts"
LIMIT = 120.0  # seconds for a job, on a busy machine
# A server that loads for some requests of /health, and notes each request. Ready, its main thread
# waits for itself for ever, and it ends some looks later: nobody is to say that it hangs.
SERVER = """
import argparse, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("words", nargs="*")
    parser.add_argument("--port", type=int)
    parser.add_argument("--loads", type=int, default=2)
    parser.add_argument("--stays", type=float, default=12)
    args = parser.parse_args()
    asked = []

    class Health(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            status = 503 if len(asked) <= args.loads else 200
            with open("requests.txt", "a") as log:
                print(self.command, self.path, self.headers["User-Agent"], status, file=log)
            self.send_response(status)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", args.port), Health)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Timer(args.stays, os._exit, (0,)).start()
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

if __name__ == "__main__":
    main()
"""
READY = re.compile(r"^hangbisect: (Ready (?:after|within) \S+ s: .*)$", re.MULTILINE)


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port


@dataclass(frozen=True)
class Watched:
    """What a watched command left."""

    status: int
    err: str
    folder: Path

    @property
    def ready(self) -> list[str]:
        return READY.findall(self.err)

    @property
    def requests(self) -> list[str]:
        file = self.folder / "requests.txt"
        return file.read_text().splitlines() if file.exists() else []


class Run:
    """Runs `hangbisect run` in a folder."""

    def __init__(self, folder: Path, package: Path, start: Start) -> None:
        self.folder = folder
        self._package, self._start = package, start
        script = folder / "bin" / "trtllm-serve"
        script.parent.mkdir()
        script.write_text(f"#!{sys.executable}\n{SERVER}")
        script.chmod(0o755)
        (folder / "serve.py").write_text(SERVER)

    def __call__(
        self,
        *command: str,
        options: tuple[str, ...] = (),
        variables: Mapping[str, str] | None = None,
    ) -> Watched:
        plain = {name: value for name, value in os.environ.items() if "HANGBISECT_" not in name}
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environ = {**plain, "PATH": path, **(variables or {})}
        ours = [sys.executable, str(self._package), "run", "--stall", "2", "--run-dir", "run"]
        process = self._start(*ours, *options, "--", *command, cwd=self.folder, env=environ)
        _, err = process.communicate(timeout=LIMIT)
        return Watched(process.returncode, err, self.folder)


@pytest.fixture
def run(tmp_path: Path, package: Path, start: Start) -> Run:
    return Run(tmp_path, package, start)


def is_quiet(err: str) -> bool:
    return not re.search(r"^(?:HANG|SILENT|SLOW) ", err, re.MULTILINE)


def test_a_server_is_quiet_from_when_it_says_that_it_is_ready(run: Run) -> None:
    port = str(find_free_port())
    command = ("trtllm-serve", "serve", "m", "--port", port, "--loads", "0", "--stays", "25")
    found = run(*command, options=("--stall", "6"))
    assert found.status == 0, found.err
    (said,) = found.ready
    assert said.endswith(f"answers GET /health with 200 at port {port}")
    assert is_quiet(found.err), found.err
    assert len(found.requests) == 1


def test_a_server_is_asked_until_it_says_that_it_is_ready_and_never_again(run: Run) -> None:
    port = str(find_free_port())
    command = ("trtllm-serve", "serve", "m", "--port", port, "--loads", "1", "--stays", "20")
    found = run(*command)
    assert found.ready, found.err
    assert found.requests == [f"GET /health hangbisect {status}" for status in (503, 200)]


def test_without_leave_to_ask_it_is_ready_once_it_listens_and_hears_of_nobody(run: Run) -> None:
    port = str(find_free_port())
    command = ("trtllm-serve", "serve", "m", "--port", port, "--stays", "8")
    found = run(*command, options=("--health", "off"))
    (said,) = found.ready
    assert said.endswith(f" listens at port {port}")
    assert found.requests == []


def test_a_program_that_nobody_knows_is_ready_once_it_listens_and_hears_of_nobody(
    run: Run,
) -> None:
    port = str(find_free_port())
    command = (sys.executable, "serve.py", "--port", port, "--stays", "8")
    found = run(*command)
    (said,) = found.ready
    assert said.endswith(f" listens at port {port}")
    assert found.requests == []


def test_a_server_below_a_script_is_found_and_ends_no_start_of_what_is_beside_it(
    run: Run,
) -> None:
    port = str(find_free_port())
    (run.folder / "job.sh").write_text(
        f"trtllm-serve serve m --port {port} --loads 0 --stays 25 & wait\n"
    )
    found = run("sh", "job.sh")
    (said,) = found.ready
    assert f"answers GET /health with 200 at port {port}" in said
    # What else the script starts may hang as before.
    assert not is_quiet(found.err), found.err


@pytest.fixture
def another(run: Run) -> Iterator[tuple[int, list[str]]]:
    """A server that is none of the command's: its port, and what it was asked."""
    asked: list[str] = []

    class Health(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1], asked
        server.shutdown()


def test_a_port_of_somebody_else_is_asked_nothing(run: Run, another: tuple[int, list[str]]) -> None:
    port, asked = another
    program = run.folder / "bin" / "trtllm-serve"
    program.write_text(f"#!{sys.executable}\nimport time\ntime.sleep(7)\n")
    found = run("trtllm-serve", "serve", "m", "--port", str(port))
    assert found.status == 0, found.err
    assert found.ready == []
    assert asked == []


STORE = """
import os, sys, time
import torch.distributed as dist

meet = f"tcp://127.0.0.1:{sys.argv[2]}"
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=size)
time.sleep(7)
dist.destroy_process_group()
"""


def test_the_port_at_which_ranks_meet_is_none_of_a_server(run: Run) -> None:
    pytest.importorskip("torch")
    (run.folder / "train.py").write_text(STORE)
    launcher = write_launcher(run.folder)
    found = run(launcher, "train.py", "--port", str(find_free_port()))
    assert found.status == 0, found.err
    assert "Process group ready" in found.err
    assert found.ready == []


def test_the_phases_of_vllm_are_told_in_order_and_its_ranks_know_that_it_is_ready(
    run: Run,
) -> None:
    for name in ("torch", "zmq", "setproctitle"):
        pytest.importorskip(name)
    (run.folder / "model.py").write_text("")
    port = str(find_free_port())
    server = (sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", "model.py")
    words = ("-tp", "2", "--port", port, "--stop-after", "12")
    found = run(*server, *words, variables={"PYTHONPATH": str(SCRIPTS / "packages")})
    assert found.status == 0, found.err
    (said,) = found.ready
    assert re.search(
        rf": API server \(pid \d+\) answers GET /health with 200 at port {port}$", said
    )
    of_worker = [
        line.partition("CHECKPOINT ")[2].partition(":")[0]
        for line in found.err.splitlines()
        if "[R1/2]" in line and "CHECKPOINT" in line
    ]
    wanted = [
        *("process_group", "init_device", "load_model", "memory", "kv_cache", "capture_graphs"),
        "warm_up",
    ]
    assert [one for one in of_worker if one in wanted] == wanted
    assert is_quiet(found.err), found.err
    files = [file.read_text().splitlines() for file in run.folder.glob("run/**/events.jsonl")]
    events = [json.loads(line) for lines in files for line in lines]
    assert {event["text"] for event in events if event["t"] == "ready"} == {said}


def test_a_start_of_a_search_is_over_once_the_server_is_ready(
    run: Run, package: Path, start: Start
) -> None:
    waits = "\nimport os, threading\nif os.environ.get('OMP_NUM_THREADS') != '1':\n"
    waits += "    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()\n"
    program = run.folder / "bin" / "trtllm-serve"
    program.write_text(f"#!{sys.executable}\n{waits}{SERVER}")
    words = ["isolate", "--yes", "--stall", "3", "--confirm", "1", "--run-dir", "iso"]
    words += ["--only", "omp_num_threads", "--max-time", "80"]
    command = ["trtllm-serve", "m", "--port", str(find_free_port()), "--loads", "0"]
    ours = ("HANGBISECT_", "OMP_")
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environ["PATH"] = f"{program.parent}{os.pathsep}{environ['PATH']}"
    ours_and_job = [sys.executable, str(package), *words, "--", *command, "--stays", "500"]
    process = start(*ours_and_job, cwd=run.folder, env=environ)
    _, err = process.communicate(timeout=LIMIT)
    found = json.loads((run.folder / "iso" / "isolation.json").read_text())
    assert found["outcome"] == "isolated", err
    (change,) = found["changes"]
    assert (change["toggle"], change["value"]) == ("omp_num_threads", "1")
    passed = [trial["why"] for trial in found["trials"] if trial["result"] == "pass"]
    assert set(passed) == {"it was ready"}
