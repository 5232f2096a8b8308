"""More jobs of hang_on_hosts.py as users write theirs: kinds that host_own_cases.py does not have.

Their programs are in host_programs/own as well. What makes one hang is a file, a variable or a
process of one host, a route that is lost, or a host that loses its power.
"""

from __future__ import annotations

from host_case import C10D, STATIC, OwnCase, torchrun

_MISMATCH = ("rank-conditional-collective", "collective-mismatch", "gloo-mismatch")

_WINDOW = """echo '{"window": %d}' > /tmp/model.json"""
_HOLDS_DATABASE = """\
python -c "
import sqlite3, time
database = sqlite3.connect('/tmp/seen.db', isolation_level=None, timeout=60)
while not database.execute('SELECT * FROM sqlite_master').fetchall() or database.execute(
    'SELECT count(*) FROM seen').fetchone()[0] == 0:
    time.sleep(0.05)
database.execute('BEGIN EXCLUSIVE')
time.sleep(100000)
" &"""
_STREAMS = "mkdir -p /tmp/checkpoints/step_4 && mkfifo /tmp/checkpoints/step_4/__2_0.distcp"
_STOPS_SERVER = (
    "while ! test -s /tmp/batches.pid; do sleep 0.3; done; "
    "sleep 8; kill -STOP $(cat /tmp/batches.pid) &"
)
_LOSES_POWER = (
    "until test -s /tmp/rounds.csv && test $(wc -l < /tmp/rounds.csv) -gt 20; do sleep 0.3; done; "
    "ip link set eth0 down; kill -9 -1 &"
)
# As the kernel does when memory runs out: whichever reader waits in the pipe of the tasks.
_KILLS_READER = (
    "until ls /tmp/reader-*.pid; do sleep 0.3; done; sleep 8; while true; do "
    "for pid in $(cat /tmp/reader-*.pid); do "
    "if grep -q '^0 ' /proc/$pid/syscall; then kill -9 $pid; exit; fi; done; sleep 0.1; done &"
)
_LOSES_ROUTE = (
    "until test -s /tmp/steps.log && test $(wc -l < /tmp/steps.log) -gt 40; do sleep 0.3; done; "
    "ip route add blackhole 10.77.0.3 &"
)
_FREEZES = """echo '{"freeze": ["0.weight"]}' > /tmp/finetune.json"""
_REPORTER = """echo '{"rank": %d}' > /tmp/report.json"""
_SLOW_LINK = "tc qdisc add dev eth0 root tbf rate 2mbit burst 32kbit latency 400ms"
# As cpulimit does: stopped and continued in turn.
_LIMITS = (
    "while true; do for one in /proc/[0-9]*; do "
    "if tr '\\0' ' ' < $one/cmdline | grep -q '^[^ ]*python[^ ]* -u slow_host'; then "
    "kill -STOP ${one#/proc/}; sleep 0.7; kill -CONT ${one#/proc/}; fi; done; sleep 0.3; done &"
)

LATER_CASES: tuple[OwnCase, ...] = (
    # Rank 3 takes no keys in the last turn of the ring, which rank 2 sends it: it is at the
    # reduction already. Stacks alone show that 2 and 3 wait for one another.
    OwnCase(
        name="own-ring-send",
        program="context_ring",
        nodes=4,
        agents=True,
        command=torchrun(4, 1, STATIC, "context_ring"),
        before=tuple((n, _WINDOW % (2 if n == 3 else 4)) for n in range(4)),
        culprit=3,
        causes=("message-left-out", "other-round", *_MISMATCH),
        at="all_reduce",
        by_stacks=((2, 3),),
        causes_by_stacks=("deadlock",),
    ),
    OwnCase(
        name="own-sqlite",
        program="seen_samples",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "seen_samples"),
        before=((2, _HOLDS_DATABASE),),
        culprit=2,
        causes=("file-lock-held",),
        at="note|execute|sqlite",
    ),
    OwnCase(
        name="own-monitored",
        program="evaluation",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "evaluation"),
        environ={1: {"EVALUATE": "0"}},
        culprit=1,
        causes=_MISMATCH,
        at="broadcast",
        by_stacks=((0, 1),),
        causes_by_stacks=("deadlock",),
    ),
    # The shard is a pipe, to be uploaded while it is written; nobody uploads.
    OwnCase(
        name="own-sharded-save",
        program="sharded_save",
        nodes=2,
        a_node=2,
        agents=True,
        command=torchrun(2, 2, STATIC, "sharded_save"),
        before=((1, _STREAMS),),
        culprit=2,
        causes=("pipe-no-writer",),
        at="save|open|create_stream",
    ),
    OwnCase(
        name="own-batch-host",
        program="batch_host",
        nodes=3,
        command="python batch_host.py",
        environ={n: {"BATCH_HOST": "n3"} for n in range(3)},
        before=((2, _STOPS_SERVER),),
        culprit=2,
        causes=("stopped",),
    ),
    OwnCase(
        name="own-power-lost",
        program="store_rounds",
        kind="killed",
        nodes=4,
        command="python store_rounds.py",
        before=((2, _LOSES_POWER),),
        on_host="n3",
        causes=("node-lost",),
        causes_by_stacks=("other-node-missing",),
    ),
    OwnCase(
        name="own-power-lost-later",
        program="store_rounds",
        kind="killed",
        nodes=4,
        command="python store_rounds.py",
        before=((2, _LOSES_POWER.replace("; ip", "; sleep 30; ip")),),
        on_host="n3",
        causes=("node-lost",),
        causes_by_stacks=("other-node-missing",),
    ),
    OwnCase(
        name="own-killed-reader",
        program="shared_readers",
        nodes=4,
        agents=True,
        command=torchrun(4, 1, STATIC, "shared_readers"),
        before=((1, _KILLS_READER),),
        culprit=1,
        causes=("worker-dead", "dead-owner"),
        at="get|recv|poll",
    ),
    OwnCase(
        name="own-rdzv-port",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, C10D % "port", "gloo_plain"),
        commands={2: torchrun(3, 1, C10D.replace("29400", "29411") % "port", "gloo_plain")},
        on_host="n3",
        causes=("rendezvous-unreachable", "nodes-not-joined"),
        says="29411",
        outcomes=("hang", "silent", "crash"),
    ),
    OwnCase(
        name="own-lost-route",
        program="long_training",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "long_training"),
        before=((1, _LOSES_ROUTE),),
        causes=("network-between-nodes",),
    ),
    # The weight that one machine does not train is the last to be reduced, and all have one size:
    # each reduction meets one of another step, until rank 1 has none left and is at the barrier.
    OwnCase(
        name="own-reducer",
        program="own_reducer",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "own_reducer"),
        before=((1, _FREEZES),),
        culprit=1,
        causes=("uneven-rounds", "other-round", *_MISMATCH),
        at="barrier",
    ),
    # Rank 3 sends its metrics to rank 1, which is not asked to take them; rank 0 waits for them.
    # Of whom it waits for its stack says nothing: with those in the reduction it is a ring.
    OwnCase(
        name="own-other-reporter",
        program="gather_metrics",
        nodes=4,
        agents=True,
        command=torchrun(4, 1, STATIC, "gather_metrics"),
        before=tuple((n, _REPORTER % (1 if n == 3 else 0)) for n in range(4)),
        culprit=3,
        causes=_MISMATCH,
        at="gather",
        by_stacks=((0, 3), (0, 1, 3)),
        causes_by_stacks=("deadlock",),
    ),
    # The coordinator's only thread asks the client, whose answer needs the coordinator's.
    OwnCase(
        name="own-calls-back",
        program="federated",
        nodes=3,
        command="python federated.py",
        culprit=0,
        or_blamed=((0, 1), (0, 2), (1,), (2,)),
        causes=("deadlock", "server-asks-itself"),
    ),
    # ---- healthy -----------------------------------------------------------------------------
    OwnCase(
        name="own-healthy-compressed",
        program="compressed_save",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "compressed_save"),
        healthy=True,
        ask_at=15.0,
    ),
    OwnCase(
        name="own-healthy-compiled",
        program="compiled",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, STATIC, "compiled"),
        environ={1: {"BLOCKS": "16"}},
        healthy=True,
        ask_at=20.0,
    ),
    OwnCase(
        name="own-healthy-slow-link",
        program="broadcast_weights",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "broadcast_weights"),
        before=((0, _SLOW_LINK),),
        healthy=True,
        ask_at=20.0,
    ),
    OwnCase(
        name="own-healthy-store-late",
        program="store_start",
        nodes=3,
        command="python store_start.py",
        late=(2, 40.0),
        healthy=True,
        ask_at=20.0,
    ),
    OwnCase(
        name="own-healthy-throttled",
        program="slow_host",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, STATIC, "slow_host"),
        environ={1: {"SEARCH_SECONDS": "6"}},
        before=((1, _LIMITS),),
        healthy=True,
        ask_at=20.0,
    ),
)
