"""What `attach --hosts` costs the machine that asks, on so many nodes of 8 ranks.

    python benchmarks/attach_nodes.py [--nodes 64] [--ranks 8] [--limit 60] [--slowest 0.2]

Required: 3 s of a processor, 200 MB and an evidence.json of 5 MB for 64 nodes; 20 s and 1 GB for
1,250 (10,000 ranks). The looks of the first window begin within 100 ms, with ways of up to
`--slowest` seconds to a node as well: what is said to the first node takes no time, and to the last
one so long. The nodes are simulated: one process answers for all of them, with made-up
looks as large as real ones (four looks at a rank and at two children of each, nine threads, the
text of py-spy), by the same code that answers on a real node. In the place of ssh stands a shell
script that copies bytes from and to that process. What these two cost counts for nobody: the
processor time and the memory are those of the process that runs `attach`. One rank of all reads
from a server that does not answer; the verdict must name it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from diagnosis_scale import OUTER, POOL, READING, look, rank
from hangbisect.attach.node_answer import make_details, seconds_to_look, tell_clock
from hangbisect.attach.node_facts import NodeFacts
from hangbisect.attach.node_messages import Message, Summary, write_message
from hangbisect.base.process_facts import Kernel, Look, Syscall
from hangbisect.base.rank_facts import RankFacts

LOOKING = 2.0  # seconds
LOOKS = 4  # at each process, 0.7 s apart: those of a job that stands still
MOST_SPREAD = 0.1  # seconds
LIMITS = {64: (3.0, 200.0, 5.0), 1250: (20.0, 1000.0, float("inf"))}  # s, MB, MB of evidence.json
# The last word but one is the host, as `attach` calls ssh.
_SSH = """\
#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{port}
echo "${{@: -2:1}}" >&3
cat <&0 >&3 2>/dev/null &
exec cat <&3
"""


def main() -> int:
    """Measure, and return 1 where the verdict is wrong or a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=8, help="of each node")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for a node to answer")
    parser.add_argument("--slowest", type=float, default=0.0, help="seconds to the last node")
    parser.add_argument("--measured", metavar="FOLDER", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measured:
        return _attach(args)
    made = _Nodes(args.nodes, args.ranks, args.slowest)
    with tempfile.TemporaryDirectory() as folder, made as nodes:
        ssh = Path(folder, "bin", "ssh")
        ssh.parent.mkdir()
        ssh.write_text(_SSH.format(port=nodes.server_address[1]))
        ssh.chmod(0o755)
        words = [sys.executable, __file__, "--measured", folder, f"--nodes={args.nodes}"]
        asked = subprocess.run(
            [*words, f"--ranks={args.ranks}", f"--limit={args.limit}"],
            env={**os.environ, "PATH": f"{ssh.parent}:{os.environ['PATH']}"},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        figures = json.loads(asked.stdout.splitlines()[-1])
        run = Path(folder, "run")
        size = (run / "evidence.json").stat().st_size / 1e6
        culprit = json.loads((run / "verdict.json").read_text())["ranks"]["culprit"]
    right = culprit == [nodes.culprit]
    spread = max(nodes.looks[:64]) - nodes.looks[0]
    told = f"{args.nodes} nodes of {args.ranks} ranks"
    print(
        f"{told}: {figures['cpu']:.2f} s of a processor, {figures['seconds']:.2f} s, "
        f"{figures['memory']:.0f} MB, {nodes.sent / 1e6:.1f} MB from the nodes, evidence.json "
        f"{size:.1f} MB; culprit {culprit}, {'right' if right else f'not {nodes.culprit}'}; "
        f"the looks of the first {len(nodes.looks[:64])} began within {spread * 1000:.0f} ms"
    )
    most = LIMITS.get(args.nodes, (float("inf"),) * 3)
    over = spread > MOST_SPREAD or any(
        a > b for a, b in zip((figures["cpu"], figures["memory"], size), most, strict=True)
    )
    return int(over or not right)


def _attach(args: argparse.Namespace) -> int:
    """Attach, and print what that has cost this process."""
    from hangbisect.commands import attach

    began = time.monotonic()
    hosts = ",".join(f"n{number:04}" for number in range(args.nodes))
    run = ["--run-dir", str(Path(args.measured, "run")), "--limit", str(args.limit)]
    attach.run(["--hosts", hosts, *run])
    used = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "cpu": used.ru_utime + used.ru_stime,
        "memory": used.ru_maxrss * 1024 / 1e6,
        "seconds": time.monotonic() - began,
    }
    print(json.dumps(figures))
    return 0


# ---- the nodes -----------------------------------------------------------------------------------


class _Nodes(socketserver.ThreadingTCPServer):
    """All nodes of the job, each by its name."""

    daemon_threads, request_queue_size = True, 128

    def __init__(self, nodes: int, ranks: int, slowest: float) -> None:
        """They answer as soon as this is entered. `slowest`: seconds to the last of them."""
        super().__init__(("127.0.0.1", 0), _Connection)
        self.nodes, self.ranks, self.world = nodes, ranks, nodes * ranks
        self.slowest = slowest
        self.culprit = self.world // 3
        self.sent = 0
        self.looks: list[float] = []  # when they were told to look

    def __enter__(self) -> _Nodes:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def facts(self, number: int) -> NodeFacts:
        """Return what this node has seen."""
        first = number * self.ranks
        ranks = [make_rank(n, n == self.culprit) for n in range(first, first + self.ranks)]
        quiet = tuple(r.rank for r in ranks if r.rank == self.culprit)
        command = ("python", "train.py")
        return NodeFacts(
            f"n{number:04}", command, self.world, False, 60.0, 103.0, 2.2, tuple(ranks), quiet=quiet
        )


class _Connection(socketserver.StreamRequestHandler):
    server: _Nodes

    def handle(self) -> None:
        number = int(self.rfile.readline().strip()[1:])
        away = self.server.slowest * number / self.server.nodes
        summary = Summary(self.server.facts(number))  # before: one process makes up those of all
        lines = write_message("", summary.message())
        self._say({"is": "ready", "clock": True})
        while line := self.rfile.readline():
            order = json.loads(line)
            time.sleep(away)
            if order["is"] == "clock":
                self._say(tell_clock(), away)
            elif order["is"] == "look":
                time.sleep(seconds_to_look("", order))
                self.server.looks.append(time.monotonic())
                time.sleep(LOOKING)
                self._send(lines)
            elif order["is"] == "details" and (told := make_details("", summary, order)):
                self._say(told)

    def _say(self, message: Message, away: float = 0.0) -> None:
        time.sleep(away)
        self._send(write_message("", message))

    def _send(self, lines: bytes) -> None:
        self.server.sent += len(lines)
        self.wfile.write(lines)


def make_rank(number: int, stuck: bool) -> RankFacts:
    """Return a rank with looks as large as real ones; `stuck`: it reads from a server."""
    made = rank(number, stuck=stuck)
    pid = made.pid or 0
    children = []
    for n in (7, 8):
        worker: dict[str, Any] = {"ppid": pid, "name": "pt_data_worker"}
        seen = [
            look(pid + n, 100 + 0.7 * k, (*READING, *OUTER), "read", **worker) for k in range(LOOKS)
        ]
        children.append(tuple(map(_as_large, seen)))
    looks = tuple(
        replace(_as_large(one), at=100 + 0.7 * k, waits=9) for k, one in enumerate(made.looks)
    )
    return replace(made, looks=looks[:LOOKS], children=tuple(children))


def _as_large(one: Look) -> Look:
    """Return a look with the threads and the text that a real one has."""
    call = Syscall(202, "futex", (one.pid, 393, 0, 0, 0, 0), stack=one.pid)
    helpers = tuple(Kernel(one.pid + n, "python3", "S", "futex_wait", call) for n in range(1, 9))
    told = (f"    {f.name} ({f.file}:{f.line})" for t in one.threads for f in (*t.frames, *POOL))
    return replace(one, kernel=(*one.kernel, *helpers), dump="\n".join(told))


if __name__ == "__main__":
    sys.exit(main())
