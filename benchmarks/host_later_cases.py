"""More jobs of hang_on_hosts.py as users write theirs: kinds that host_own_cases.py does not have.

Their programs are in host_programs/own as well. What makes one hang is a file, a variable or a
process of one host, a route that is lost, or a host that loses its power.
"""

from __future__ import annotations

from host_case import C10D, STATIC, OwnCase, torchrun

_LOST = ("rank-died", "killed-from-outside")
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

# It drops what is longer than 1000 bytes, and tells its peers that 1500 are well.
_SMALL_FRAMES = (
    "ip link set eth0 mtu 1000 && ip route change 10.77.0.0/24 dev eth0 src 10.77.0.%d advmss 1460"
)
_FULL_FRAMES = "ip link set eth0 gso_max_segs 1"
_LOST_TO = "ip neigh replace 10.77.0.3 lladdr 02:00:00:00:00:fe nud permanent dev eth0"
_BRIDGE = (
    "ip link add lxcbr0 type bridge && ip addr add 10.0.3.1/24 dev lxcbr0 && ip link set lxcbr0 up"
)
_LINKS = """echo '{"links": %s}' > /tmp/topology.json"""
_SMALL_DISK = "mkdir /tmp/spill && mount -t tmpfs -o size=%dk none /tmp/spill"
# A check whether the port is open, of a kind that keeps its connection.
_PROBES = """\
python -c "
import socket, time
while True:
    try:
        probe = socket.create_connection(('n1', 9400))
        time.sleep(100000)
    except OSError:
        time.sleep(0.05)
" &"""
_KILLED_ONCE = (
    "until test -s /tmp/progress && test $(wc -l < /tmp/progress) -gt 30; do sleep 0.3; done; "
    "sleep 4; kill -9 $(cat /tmp/train.pid) &"
)
_LAYOUT = """echo '{"%s": [16, 32, 4]}' > /tmp/model.json"""
_ARTIFACTS = (
    "mkdir -p /tmp/artifacts && cd /tmp/artifacts && echo a b c d e f g h > vocabulary.txt && "
    "python -m http.server 9500 &"
)
# As after a reset: the processes are gone, and the kernel that comes up knows of no connection.
_REBOOTS = (
    "until test -s /tmp/rounds.csv && test $(wc -l < /tmp/rounds.csv) -gt 20; do sleep 0.3; done; "
    "sleep 25; ip link set eth0 down; kill -9 -1; ss -K; sleep 6; ip link set eth0 up &"
)
_OTHER_NETWORK = (
    "ip link add ib0 type bridge && ip addr add 10.88.0.3/24 dev ib0 && ip link set ib0 up && "
    "ip neigh add 10.88.0.1 lladdr 02:00:00:00:00:fe nud permanent dev ib0 && "
    "sed 's/.* n1$/10.88.0.1 n1/' /etc/hosts > /tmp/hosts && mount --bind /tmp/hosts /etc/hosts"
)
_FLAPS = (
    "until test -s /tmp/steps && test $(wc -l < /tmp/steps) -gt 20; do sleep 0.3; done; "
    "for i in 1 2; do ip link set eth0 down; sleep 7; ip link set eth0 up; sleep 8; done &"
)
_SUSPENDED = (
    "until test -s /tmp/steps && test $(wc -l < /tmp/steps) -gt 20; do sleep 0.3; done; "
    "all() { for one in /proc/[0-9]*; do "
    "grep -q '^PPid:.0$' $one/status || kill -$1 ${one#/proc/}; done; }; "  # not what started them
    "all STOP; sleep 15; all CONT &"
)
_LOCALS = "torchrun --nnodes=1:2 --nproc-per-node=1 --max-restarts=3 " + C10D % "scale"

_OUTSIDE = -1  # the host that is not of the job

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
    # What n2 sends in full frames is lost, as where one switch takes no jumbo frames: short
    # messages come, the first gradients do not.
    OwnCase(
        name="own-mtu",
        program="big_gradients",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "big_gradients"),
        before=(
            *((0, _SMALL_FRAMES % 1), (1, _FULL_FRAMES), (2, _SMALL_FRAMES % 3)),
            (_OUTSIDE, "ip link set eth0 mtu 1000"),  # who asks is no part of it
        ),
        causes=("network-between-nodes",),
        says="n2",
    ),
    # n1 reaches both; what n2 sends to n3 is lost from the beginning.
    OwnCase(
        name="own-firewall",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "gloo_plain"),
        before=((1, _LOST_TO),),
        or_blamed=((1,), (2,)),
        causes=("peer-unreachable", "network-between-nodes"),
        says="10.77.0.[23]",
    ),
    # Each machine has a bridge for containers, of one address; n2 tells the others that one. They
    # connect to themselves, are refused, and fail.
    OwnCase(
        name="own-bridge",
        program="gloo_plain",
        kind="raises",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "gloo_plain"),
        environ={1: {"GLOO_SOCKET_IFNAME": "lxcbr0"}},
        before=tuple((n, _BRIDGE) for n in range(3)),
        culprit=1,
        or_blamed=((0,), (2,), (0, 2)),
        causes=("wrong-interface", "peer-unreachable", "no-such-interface"),
        outcomes=("hang", "silent", "crash"),
        says="lxcbr0|10.0.3.1",
    ),
    # Groups of the same number have other members on n3: both come into being, by chance of whoever
    # connects first, and rank 1 waits for the rest of one. Which machine has another order is on no
    # stack any more.
    OwnCase(
        name="own-group-order",
        program="stage_groups",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "stage_groups"),
        before=tuple(
            (n, _LINKS % ("[[1, 2], [0, 1]]" if n == 2 else "[[0, 1], [1, 2]]")) for n in range(3)
        ),
        culprit=2,
        causes=("group-on-some-ranks", *_MISMATCH),
        by_stacks=((),),
        causes_by_stacks=("",),
    ),
    OwnCase(
        name="own-disk-full",
        program="spills_samples",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "spills_samples"),
        before=tuple((n, _SMALL_DISK % (400 if n == 2 else 40000)) for n in range(3)),
        culprit=2,
        causes=("dead-producer",),
        at="put|keep|acquire|wait",
    ),
    OwnCase(
        name="own-scanner",
        program="hand_count",
        nodes=3,
        command="python hand_count.py",
        before=((_OUTSIDE, _PROBES),),
        late=(0, 4.0),
        culprit=0,
        causes=("service-silent", "endpoint-silent", "socket-unread"),
        at="recv",
    ),
    # The rank that was started again begins with round 0, whose keys are gone. All stand in one
    # line, for keys of different rounds.
    OwnCase(
        name="own-restarted",
        program="restarts_itself",
        kind="killed",
        nodes=3,
        command="python restarts_itself.py",
        before=((2, _KILLED_ONCE),),
        culprit=2,
        causes=("store-key-missing", "other-round", "uneven-rounds", *_LOST),
        outcomes=("hang", "silent", "crash"),
        by_stacks=((),),
    ),
    # It fails at once, again and again: its configuration is of an earlier version.
    OwnCase(
        name="own-crash-loop",
        program="tries_again",
        kind="raises",
        nodes=3,
        command="python tries_again.py",
        before=tuple((n, _LAYOUT % ("sizes" if n == 1 else "layers")) for n in range(3)),
        culprit=1,
        causes=("", "restarted-in-vain", "rank-died", "retry-loop"),
        outcomes=("hang", "silent", "crash"),
        causes_by_stacks=("rank-never-started", "other-node-missing", "own-code-sleeps"),
    ),
    OwnCase(
        name="own-local-rank",
        program="local_saver",
        nodes=2,
        a_node=3,
        agents=True,
        command=torchrun(2, 3, STATIC, "local_saver"),
        or_blamed=((0, 3),),
        culprit=0,
        causes=_MISMATCH,
        at="barrier",
    ),
    OwnCase(
        name="own-proxy",
        program="fetches_vocabulary",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "fetches_vocabulary"),
        environ={n: {"VOCABULARY": "http://n4:9500/vocabulary.txt"} for n in range(3)}
        | {1: {"VOCABULARY": "http://n4:9500/vocabulary.txt", "http_proxy": "http://n4:9300"}},
        before=((_OUTSIDE, _ARTIFACTS),),
        culprit=1,
        causes=("proxy-silent",),
    ),
    OwnCase(
        name="own-rebooted",
        program="store_rounds",
        kind="killed",
        nodes=4,
        command="python store_rounds.py",
        before=((2, _REBOOTS),),
        on_host="n3",
        causes=("node-lost",),
        causes_by_stacks=("other-node-missing",),
    ),
    # n3 takes the name of the first node for its address in a network that leads nowhere.
    OwnCase(
        name="own-dead-network",
        program="gloo_plain",
        nodes=3,
        command="python gloo_plain.py",
        before=((2, _OTHER_NETWORK),),
        culprit=2,
        causes=("master-unroutable",),
        at="init_process_group",
    ),
    OwnCase(
        name="own-mpirun",
        program="mpi_train",
        nodes=3,
        by="ssh",
        command=(
            "mpirun --allow-run-as-root -np 3 --host n1,n2,n3 --map-by node "
            "-x MASTER_ADDR=n1 -x MASTER_PORT=29400 $PYTHON mpi_train.py"
        ),
        before=((2, "exec flock /tmp/index.lock sleep 100000 &"),),
        culprit=2,
        causes=("file-lock-held",),
        at="flock|read_index",
    ),
    OwnCase(
        name="own-srun",
        program="slurm_train",
        nodes=3,
        by="slurm",
        command="srun -N3 --ntasks-per-node=1 $PYTHON slurm_train.py",
        environ={0: {"MASTER_ADDR": "n1", "MASTER_PORT": "29400"}},
        before=(
            *((n, "echo a b c d e > /tmp/shards.txt") for n in (0, 2)),
            (1, "mkfifo /tmp/shards.txt"),
        ),
        culprit=1,
        causes=("pipe-no-writer",),
        at="open|read_shards",
    ),
    # What n3's shell reads at each log-in waits, as for a home that is mounted and does not answer:
    # the third rank never starts, and who asks by ssh hears nothing either.
    OwnCase(
        name="own-ssh-loop",
        program="ssh_launch",
        nodes=3,
        by="ssh",
        command="python ssh_launch.py",
        before=(
            (
                2,
                "mkfifo /tmp/gate && echo 'read line < /tmp/gate' > /tmp/rc && "
                "touch /root/.bashrc && mount --bind /tmp/rc /root/.bashrc",
            ),
        ),
        or_blamed=((2,),),
        causes=("other-node-missing", "rank-never-started", "child-program"),
        causes_by_stacks=("", "node-lost"),
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
    # Each time nodes come the agents start all ranks again, by SIGTERM.
    OwnCase(
        name="own-healthy-scale",
        program="elastic",
        nodes=2,
        agents=True,
        command=f"{_LOCALS} elastic.py",
        late=(1, 25.0),
        healthy=True,
        ask_at=18.0,
    ),
    OwnCase(
        name="own-healthy-flaps",
        program="steady_steps",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "steady_steps"),
        before=((1, _FLAPS),),
        healthy=True,
        ask_at=25.0,
    ),
    OwnCase(
        name="own-healthy-suspended",
        program="steady_steps",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "steady_steps"),
        before=((2, _SUSPENDED),),
        healthy=True,
        ask_at=40.0,
    ),
)
