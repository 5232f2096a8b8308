"""Jobs of hang_on_hosts.py in which the surroundings of one host fail: a mount, a port, an agent, a
debugger, a daemon of the cluster, a variable that a cluster sets elsewhere.

Their programs are in host_programs/own as well, written as users write theirs.
"""

from __future__ import annotations

from host_case import STATIC, OwnCase, torchrun

# A folder of FUSE whose server answers as long as it starts, and then no more: what is looked up
# in it waits, as on a server of files that the network does not reach.
_MOUNTS = r"""mkdir -p /tmp/shared; cat > /tmp/mount.py <<'END'
import ctypes, os, struct, time
queue = os.open("/dev/fuse", os.O_RDWR)
how = b"fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other" % queue
ctypes.CDLL(None).mount(b"store1:/projects", b"/tmp/shared", b"fuse.gatewayfs", 0, how)
while True:
    size, kind, number, node = struct.unpack("<IIQQ", os.read(queue, 1 << 20)[:24])
    if kind == 26:
        out = struct.pack("<IIIIHHIII", 7, 31, 0, 0, 12, 9, 4096, 1, 0) + bytes(28)
        os.write(queue, struct.pack("<IiQ", 16 + len(out), 0, number) + out)
    elif kind == 3:
        now = int(time.time())
        out = struct.pack("<QII", 1, 0, 0)
        out += struct.pack("<6Q10I", 1, 0, 0, now, now, now, 0, 0, 0, 0o40755, 2, 0, 0, 0, 4096, 0)
        os.write(queue, struct.pack("<IiQ", 16 + len(out), 0, number) + out)
END
"""
_DROPS = (
    "ip rule del pref 0 from all lookup local; ip rule add pref 10 from all lookup local; "
    "ip rule add pref 5 iif eth0 from 10.77.0.3 dport 9440 blackhole"
)
_ATTACHES = (
    "until test -s /tmp/worker-1.pid; do sleep 0.3; done; sleep 5; sleep 100000 | "
    'gdb -nx -q -iex "set auto-solib-add off" -p $(cat /tmp/worker-1.pid) &'
)
_KILLS_AGENT = (
    "until test -s /tmp/train.pid; do sleep 0.3; done; sleep 3; "
    "kill -KILL $(sed -n 's/^PPid:.//p' /proc/$(cat /tmp/train.pid)/status) &"
)
_PROLOG = (
    "printf '#!/bin/sh\\nflock /tmp/scratch.lock mkdir -p /tmp/scratch\\n' > /tmp/prolog.sh; "
    "chmod +x /tmp/prolog.sh"
)
_REUSES = """echo '{"reuse_connection": %s}' > /tmp/sampler.json"""
# What it has sent of the fifth stage's weights is a part; then it says nothing.
_HALF = """\
python -c "
import socket, threading, time
server = socket.create_server(('', 9330))
def serve(one):
    path = one.recv(4000).split()[1]
    one.sendall(b'HTTP/1.1 200 OK\\r\\nContent-Length: 256\\r\\n\\r\\n' + bytes(64))
    if b'-4.' in path:
        time.sleep(100000)
    one.sendall(bytes(192))
    one.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],)).start()
" &"""
_SLOWLY = _MOUNTS.removesuffix("END\n") + (
    "    else:\n        time.sleep(3)\n"
    "        os.write(queue, struct.pack('<IiQ', 16, -2, number))\nEND\n"
)
_OUTSIDE = -1
_SCORES = """echo '{"wanted": %d}' > /tmp/scores.json"""
_ANY = ("hang", "silent", "crash")
_LIGHTNING = {"MASTER_ADDR": "n1", "MASTER_PORT": "29400"}

FURTHER_CASES: tuple[OwnCase, ...] = (
    # Somebody looks at local rank 1 of the machine in the middle with gdb, and has gone to lunch.
    OwnCase(
        name="own-mesh-gdb",
        program="mesh_norms",
        nodes=3,
        a_node=2,
        agents=True,
        command=torchrun(3, 2, STATIC, "mesh_norms"),
        before=((1, _ATTACHES),),
        culprit=3,
        causes=("stopped-by-debugger", "tracer-attached", "stopped"),
    ),
    # The server has one thread and answers one connection to its end; n3 keeps its connection open
    # and waits in the reduction for rank 0, whose connection is not taken.
    OwnCase(
        name="own-keep-alive",
        program="sample_service",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "sample_service"),
        before=(*((n, _REUSES % "false") for n in (0, 1)), (2, _REUSES % "true")),
        culprit=1,
        or_blamed=((2,), (1, 2), (0, 1, 2)),
        causes=("connections-not-taken", "deadlock", "server-process-stuck", "thread-stuck"),
    ),
    OwnCase(
        name="own-shared-mount",
        program="reads_shared",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "reads_shared"),
        before=(
            *((n, "mkdir -p /tmp/shared") for n in range(2)),
            (2, _MOUNTS),
            (2, "exec python /tmp/mount.py &"),
        ),
        culprit=2,
        causes=("filesystem-stuck", "network-filesystem-silent"),
        at="exists|stat|read_curriculum|open",
    ),
    # What n3 sends to the port of the weights is thrown away on n1; that of the store is open.
    OwnCase(
        name="own-dropped-port",
        program="serves_weights",
        nodes=3,
        command="python serves_weights.py",
        before=((0, _DROPS),),
        culprit=2,
        causes=(
            *("peer-unreachable", "network-between-nodes", "endpoint-unreachable"),
            "service-unreachable",
        ),
        at="connect|urlopen|fetch_weights",
        says="9440",
    ),
    # Its rank goes on to the end; the other agents wait for that of n2 when all is done.
    OwnCase(
        name="own-agent-killed",
        program="leaves_pid",
        nodes=3,
        command=torchrun(3, 1, STATIC, "leaves_pid"),
        agents=True,
        before=((1, _KILLS_AGENT),),
        on_host="n2",
        causes=(
            *("killed-from-outside", "node-lost", "other-node-missing", "rank-died", "rank-left"),
            "agent-missing-at-end",
        ),
        causes_by_stacks=("nodes-not-joined", "host-starts-nobody"),
        ask_at=40.0,
        outcomes=_ANY,
        says="n2",
    ),
    # The cluster has not told n2 its number: both machines start ranks 0 and 1.
    OwnCase(
        name="own-lightning-number",
        program="lightning_fit",
        nodes=2,
        a_node=2,
        agents=True,
        command="python lightning_fit.py",
        environ={0: {**_LIGHTNING, "NODE_RANK": "0"}, 1: _LIGHTNING},
        or_blamed=((0,), (1,), (0, 1)),
        causes=("duplicate-rank", "more-joins-than-world"),
        says="n2",
    ),
    # What the cluster runs before each task waits on n3, for a lock that a backup has.
    OwnCase(
        name="own-srun-prolog",
        program="slurm_train",
        nodes=3,
        by="slurm",
        command="srun -N3 --ntasks-per-node=1 --task-prolog=/tmp/prolog.sh $PYTHON slurm_train.py",
        environ={0: {"MASTER_ADDR": "n1", "MASTER_PORT": "29400"}},
        before=(
            *((n, f"echo a b c d e > /tmp/shards.txt; {_PROLOG}") for n in range(3)),
            (2, "exec flock /tmp/scratch.lock sleep 100000 &"),
        ),
        or_blamed=((2,),),
        causes=(
            *("file-lock-held", "child-program", "host-starts-nobody", "other-node-missing"),
            "rank-never-started",
        ),
        says="n3",
    ),
    OwnCase(
        name="own-six-half",
        program="six_stages",
        nodes=6,
        agents=True,
        command=torchrun(6, 1, STATIC, "six_stages"),
        environ={n: {"ARTIFACTS": "http://n7:9330"} for n in range(6)},
        before=((_OUTSIDE, _HALF),),
        culprit=4,
        causes=("service-silent", "endpoint-silent"),
        at="fetch_weights|read",
    ),
    # Somebody has put hangbisect in front of the command of the first machine alone.
    OwnCase(
        name="own-first-watched",
        program="merges_words",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "merges_words"),
        before=((1, "exec flock /tmp/tools.lock sleep 100000 &"),),
        unwatched=(1, 2),
        or_blamed=((1,),),
        causes=("", "other-node-missing", "node-lost", "file-lock-held"),
        says="ranks? 1|other node",
    ),
    # The ranks are numbered otherwise than the machines: n1 has the last one.
    OwnCase(
        name="own-turned-tasks",
        program="streams_scores",
        nodes=3,
        command="python streams_scores.py",
        environ={
            n: {"RANK": str((2, 0, 1)[n]), "GROUP_RANK": str((2, 0, 1)[n]), "MASTER_ADDR": "n2"}
            for n in range(3)
        },
        before=((0, _SCORES % 12), (1, _SCORES % 4), (2, _SCORES % 6)),
        on_host="n1",
        culprit=2,
        causes=("event-loop", "loop-waits-for-itself", "tasks-await-one-another"),
        at="gather|run|select|wait",
    ),
    OwnCase(
        name="own-hsdp-signal",
        program="hsdp_preempted",
        nodes=3,
        a_node=2,
        agents=True,
        command=torchrun(3, 2, STATIC, "hsdp_preempted"),
        before=((1, "touch /tmp/preempted-1"),),
        culprit=3,
        causes=("signal-wait",),
        at="sigwait|stop_if_preempted",
    ),
    # ---- healthy -----------------------------------------------------------------------------
    OwnCase(
        name="own-healthy-lead-leaves",
        program="hands_out",
        nodes=4,
        command="python hands_out.py",
        environ={2: {"SORT_SECONDS": "50"}},
        healthy=True,
        ask_at=25.0,
    ),
    OwnCase(
        name="own-healthy-slow-mount",
        program="looks_for_shards",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "looks_for_shards"),
        before=(
            *((n, "mkdir -p /tmp/shared") for n in range(2)),
            (2, _SLOWLY),
            (2, "exec python /tmp/mount.py &"),
        ),
        healthy=True,
        ask_at=25.0,
    ),
)
