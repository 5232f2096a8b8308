"""Healthy programs that cost little: a few seconds each, most of the kinds of things that run.

Those that import torch get the one of tests/real/no_harm/programs/fake_torch: they are ranks in
milliseconds. What each prints is the same from start to start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from script_shelf import Script, Truth

PROGRAMS = Path(__file__).resolve().parent.parent / "tests" / "real" / "no_harm" / "programs"
FAKE_TORCH = PROGRAMS / "fake_torch"
_TRAINS = """
import os, sys, time, torch
optimizer = torch.optim.SGD()
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    torch.load(1)
    {work}
    optimizer.step()
print("rank", os.environ.get("RANK", "0"), "done", flush=True)
raise SystemExit({status})
"""
_RANKS = "bash ranks.sh 4 python train.py"
_WORK = "sum(range(200000)); time.sleep(0.05)"


def _trains(seconds: float = 6, work: str = _WORK, status: int = 0) -> str:
    return _TRAINS.format(seconds=seconds, work=work, status=status)


# name: (command, source of train.py, status)
_ALL: Mapping[str, tuple[str, str, int]] = {
    "light_one_rank": ("python train.py", _trains(), 0),
    "light_four_ranks": (_RANKS, _trains(), 0),
    "light_slow_start": (
        _RANKS,
        "import time, torch\n"
        "for part in range(5):\n"
        "    torch.load(part); time.sleep(1.5); sum(range(10**6))\n"
        "    print('part', part, flush=True)\n" + _trains(1),
        0,
    ),
    "light_fails_in_the_end": ("python train.py", _trains(4, status=7), 7),
    "light_computes": (
        "python train.py",
        "import hashlib\ntext = b'x' * 10**6\n"
        "for _ in range(4000):\n    digest = hashlib.sha256(text).digest()\n"
        "print(digest.hex())\n",
        0,
    ),
    "light_pipeline": (
        "bash -c 'seq 1 2000000 | sort -rn | awk \"{ s += $1 } END { print s }\"; sleep 2; echo x'",
        "",
        0,
    ),
    "light_prints_much": (
        "python train.py",
        "import time\nfor n in range(200):\n    print('line', n, flush=True); time.sleep(0.025)\n",
        0,
    ),
    "light_forks_and_reaps": (
        "python train.py",
        "import os, time, torch\n"
        "for n in range(30):\n"
        "    pid = os.fork()\n"
        "    if not pid:\n        time.sleep(0.2); os._exit(n)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n"
        "    torch.optim.SGD().step()\n",
        0,
    ),
    "light_workers": (
        "python train.py",
        "import torch, time\nfrom multiprocessing import get_context\n"
        "def work(n):\n    time.sleep(0.2)\n    return n * n\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        with get_context(method).Pool(2) as pool:\n"
        "            print(method, pool.map(work, range(12)), flush=True)\n"
        "        torch.optim.SGD().step()\n",
        0,
    ),
    "light_own_signals": (
        "python train.py",
        "import os, signal, time, torch\n"
        "for number in (10, 12, 1, 14):\n"
        "    signal.signal(number, lambda n, frame: print('got', n, flush=True))\n"
        "for turn in range(5):\n"
        "    for number in (10, 12, 1):\n        os.kill(os.getpid(), number)\n"
        "    signal.alarm(1); time.sleep(1.1)\n    torch.optim.SGD().step()\n",
        0,
    ),
    "light_server_and_client": (
        "python train.py",
        "import http.server, threading, time, urllib.request, torch\n"
        "class Answer(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n        self.send_response(200); self.end_headers()\n"
        "        self.wfile.write(self.path.encode())\n"
        "    def log_message(self, *words): pass\n"
        "server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Answer)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "for n in range(25):\n"
        "    url = f'http://127.0.0.1:{server.server_port}/{n}'\n"
        "    print(urllib.request.urlopen(url).read(), flush=True); time.sleep(0.2)\n",
        0,
    ),
    "light_ended_by_itself": (
        "python train.py",
        _trains(3).replace("raise SystemExit(0)", "os.kill(os.getpid(), 15)"),
        128 + 15,
    ),
    "light_files": (
        "python train.py",
        "import tempfile, os, time, torch\n"
        "for n in range(20):\n"
        "    with tempfile.NamedTemporaryFile() as file:\n"
        "        file.write(b'x' * 10**5); file.flush(); os.fsync(file.fileno())\n"
        "        print(os.path.getsize(file.name), flush=True)\n"
        "    time.sleep(0.2); torch.optim.SGD().step()\n",
        0,
    ),
    "light_shell_of_ranks": (
        "bash -c 'for n in 1 2 3; do bash ranks.sh 2 python train.py; echo turn $n; done'",
        _trains(1.5),
        0,
    ),
}


def light_programs() -> list[Script]:
    """Return them all, as scripts of the shelf are."""
    import shlex

    ranks = (PROGRAMS / "ranks.sh").read_text(encoding="utf-8")
    environment = {"PYTHONPATH": os.fspath(FAKE_TORCH)}
    return [
        _Light(
            file=Path(f"{name}.py"),
            title=name,
            command=tuple(shlex.split(command)),
            truth=Truth("ok"),
            environment=environment,
            files={"ranks.sh": ranks},
            limit=120.0,
            status=status,
            text=source,
        )
        for name, (command, source, status) in _ALL.items()
    ]


class _Light(Script):
    """A script whose text stands here."""

    text: str

    def __init__(self, *, text: str, **fields: object) -> None:
        super().__init__(**fields)  # type: ignore[arg-type]  # as light_programs() has them
        object.__setattr__(self, "text", text)

    @property
    def flavour(self) -> str:
        return "plain Python"

    @property
    def source(self) -> str:
        return self.text
