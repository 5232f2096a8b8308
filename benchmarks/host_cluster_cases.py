"""Jobs of hang_on_hosts.py with what a cluster has around them: a name server, full names, services
beside the ranks, a terminal at the end of ssh, a switch for debugging that one host has.

Their programs are in host_programs/own as well, written as users write theirs.
"""

from __future__ import annotations

from host_case import C10D, STATIC, OwnCase, torchrun

_OUTSIDE = -1  # the host that is not of the job
_MASTER = {"MASTER_ADDR": "n1", "MASTER_PORT": "29400"}

# The name server that it is told to ask has an address that nobody answers.
_ASKS_DNS = (
    "printf 'passwd: files\\ngroup: files\\nhosts: files dns\\n' > /tmp/nsswitch && "
    "mount --bind /tmp/nsswitch /etc/nsswitch.conf && "
    "printf 'nameserver 10.77.0.%d\\noptions timeout:30 attempts:5\\n' > /tmp/resolv && "
    "mount --bind /tmp/resolv /etc/resolv.conf"
)
# It does not answer for the names that contain a word, and knows none of the others.
_SILENT_DNS = """\
python -c "
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('', 53))
while True:
    asked, place = server.recvfrom(4000)
    if b'%s' not in asked:
        server.sendto(asked[:2] + bytes([129, 131]) + asked[4:], place)
" &"""
_OWN_FULL_NAME = (
    "sed 's/ n1$/ n1.cluster.internal n1/' /etc/hosts > /tmp/hosts && "
    "mount --bind /tmp/hosts /etc/hosts"
)
_SSH_LOOP = r"""cat > /tmp/launch.sh <<'END'
rank=0
for host in n1 n2 n3; do
    ssh $host "cd $PWD && RANK=$rank WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=n1 MASTER_PORT=29400 \
        PYTHONUNBUFFERED=1 $2 $1" &
    rank=$((rank + 1))
done
wait
END
"""
# Who started it scrolls back in what it prints, and has left it there.
_PAGER = "printf 'bash /tmp/launch.sh \"$@\" | (head -n 20; exec sleep 100000)\\n' > /tmp/paged.sh"
_FEATURES = r"""
cat > /tmp/features.py <<'END'
import http.server

class Features(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"1.5 2.5 3.5 4.5"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words):
        pass

http.server.ThreadingHTTPServer(("", 9350), Features).serve_forever()
END
"""
_STOPS_FEATURES = (
    "python /tmp/features.py & echo $! > /tmp/features.pid; sleep 20; "
    "kill -STOP $(cat /tmp/features.pid); wait &"
)
_PROGRAMS = (
    r"""printf '0 python weights_server.py\n1-2 python weights_client.py\n' > /tmp/programs"""
)
_KILLS_READER = (
    "until test -s /tmp/reader-3.pid; do sleep 0.2; done; sleep 4; "
    "kill -KILL $(cat /tmp/reader-3.pid) &"
)
_STOPS_ALL = (
    "until test -s /tmp/steps.pid; do sleep 0.3; done; sleep 5; rank=$(cat /tmp/steps.pid); "
    "kill -STOP $(sed -n 's/^PPid:.//p' /proc/$rank/status) $rank &"
)
_LATER = """\
python -c "
import http.server, time
first = time.monotonic()
class Tokens(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        soon = 45 - (time.monotonic() - first)
        self.send_response(429 if soon > 0 else 200)
        self.send_header('Retry-After', str(int(soon) + 1))
        self.send_header('Content-Length', '0')
        self.end_headers()
http.server.ThreadingHTTPServer(('', 9360), Tokens).serve_forever()
" &"""

# Ranks of three machines, none on the one where it is typed.
_XARGS = r"""cat > /tmp/launch.sh <<'END'
printf 'n2 0\nn3 1\nn4 2\n' | xargs -P 3 -L 1 sh -c 'ssh "$2" "cd $PWD && RANK=$3 WORLD_SIZE=3 \
    LOCAL_RANK=0 MASTER_ADDR=n2 MASTER_PORT=29400 $1 $0"' "$1" "$2"
END
"""
_WORDS = r"""
cat > /tmp/words.py <<'END'
from multiprocessing.connection import Listener

with Listener("/tmp/words.sock") as listener:
    while True:
        with listener.accept() as connection:
            connection.send(len(connection.recv()))
END
"""
_STOPS_WORDS = (
    "python /tmp/words.py & echo $! > /tmp/words.pid; sleep 14; kill -STOP $(cat /tmp/words.pid); "
    "wait &"
)
_ACCELERATE = (
    "accelerate launch --multi_gpu --num_machines=2 --num_processes=4 --machine_rank=$NODE "
    "--main_process_ip=n1 --main_process_port=29400 --mixed_precision=no --dynamo_backend=no "
)

CLUSTER_CASES: tuple[OwnCase, ...] = (
    # What n2 asks its name server is never answered, whatever it is: its agent asks for what no
    # /etc/hosts has (an address of IPv6, a name by an address).
    OwnCase(
        name="own-dns-agent",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "gloo_plain"),
        before=((1, _ASKS_DNS % 4), (_OUTSIDE, _SILENT_DNS % "")),
        on_host="n2",
        causes=("name-server-silent",),
        says="n2",
    ),
    # The same, of a service by which the first step is fed; the other two have the name in their
    # /etc/hosts, and the agents meet at an address.
    OwnCase(
        name="own-slow-dns",
        program="asks_by_name",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC.replace("n1", "10.77.0.1"), "asks_by_name"),
        before=(
            *(
                (
                    n,
                    "(cat /etc/hosts; echo 10.77.0.4 features.internal) > /tmp/hosts && "
                    "mount --bind /tmp/hosts /etc/hosts",
                )
                for n in (0, 2)
            ),
            (1, _ASKS_DNS % 4),
            (_OUTSIDE, _SILENT_DNS % "features"),
            (_OUTSIDE, _FEATURES),
            (_OUTSIDE, "exec python /tmp/features.py &"),
        ),
        culprit=1,
        causes=("name-server-silent",),
        at="getaddrinfo|gethostby|urlopen|read_features",
    ),
    # The agent of the first machine tells the others to meet at its full name, which n3 does not
    # know.
    OwnCase(
        name="own-full-name",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, C10D % "names", "gloo_plain"),
        before=((0, _OWN_FULL_NAME), (1, _OWN_FULL_NAME), (2, "sleep 4")),
        on_host="n3",
        causes=("name-unknown", "master-unroutable", "store-not-reached"),
        says="n1.cluster.internal",
        outcomes=("hang", "silent", "crash"),
    ),
    # Somebody has debugged on n2 yesterday, and the variable is still in its profile: its ranks
    # make a group more than the others, and wait in that.
    OwnCase(
        name="own-detail-there",
        program="gloo_plain",
        nodes=3,
        command="python gloo_plain.py",
        environ={1: {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
        culprit=1,
        causes=("debug-detail-group", "debug-detail"),
        says="TORCH_DISTRIBUTED_DEBUG|DETAIL",
    ),
    # What the ranks print comes to a pager by ssh, and is read no more. The third one prints most.
    OwnCase(
        name="own-ssh-paged",
        program="prints_losses",
        nodes=3,
        by="ssh",
        command="bash /tmp/paged.sh prints_losses.py $PYTHON",
        before=(
            (0, f"{_SSH_LOOP}{_PAGER}"),
            *((n, "echo 0 > /tmp/verbose") for n in (0, 1)),
            (2, "echo 400 > /tmp/verbose"),
        ),
        culprit=2,
        causes=("pipe-unread", "socket-unread"),
        at="print|write|log",
    ),
    # Two programs in one job of Slurm's. What both trainers ask runs on n2, for all jobs there, and
    # is stopped. The server of the weights waits for theirs.
    OwnCase(
        name="own-multi-prog",
        program="weights_*",
        nodes=3,
        by="slurm",
        command="srun -N3 --ntasks-per-node=1 --multi-prog /tmp/programs",
        environ={0: {**_MASTER, "FEATURES": "http://n2:9350"}},
        before=((0, _PROGRAMS), (1, _FEATURES), (1, _STOPS_FEATURES)),
        or_blamed=((1,), (2,), (1, 2)),
        causes=("service-silent", "endpoint-silent", "stopped"),
        at="urlopen|read_features|recv",
        ask_at=40.0,  # a step takes next to no time of a core
    ),
    # Each machine starts its two ranks by torch.multiprocessing. The reader of rank 3 had the lock
    # of its disk when the kernel ended it.
    OwnCase(
        name="own-spawn-reader",
        program="spawns_ranks",
        nodes=3,
        a_node=2,
        agents=True,
        command="python spawns_ranks.py",
        environ={n: {**_MASTER, "NODE": str(n), "NODES": "3"} for n in range(3)},
        before=((1, _KILLS_READER),),
        culprit=3,
        causes=("dead-owner", "lock-not-to-be-had", "worker-dead", "child-died"),
        at="acquire|__enter__|read_shard",
    ),
    # An agent is stopped, and its rank with it, as by a script that frees a machine for an hour.
    OwnCase(
        name="own-agent-stopped",
        program="keeps_step",
        nodes=4,
        agents=True,
        command=torchrun(4, 1, STATIC, "keeps_step"),
        before=((2, _STOPS_ALL),),
        culprit=2,
        causes=("stopped",),
    ),
    # What rank 1 asks on its own machine is stopped; the ranks are started by xargs and ssh.
    OwnCase(
        name="own-xargs-ssh",
        program="asks_for_words",
        nodes=4,
        by="ssh",
        command="bash /tmp/launch.sh asks_for_words.py $PYTHON",
        before=(
            (0, _XARGS),
            *((n, _WORDS) for n in (1, 2, 3)),
            *((n, "exec python /tmp/words.py &") for n in (1, 3)),
            (2, _STOPS_WORDS),
        ),
        culprit=1,
        on_host="n3",
        causes=("service-silent", "endpoint-silent", "stopped", "connections-not-taken"),
        at="ask_for_length|recv|connect|Client",
        ask_at=40.0,  # a step takes next to no time of a core
    ),
    # The server of the barrier has one thread: it waits in the call of the first that came, and
    # takes none of the others. The rank that serves is not on the first machine.
    OwnCase(
        name="own-xmlrpc-barrier",
        program="meets_by_xmlrpc",
        nodes=4,
        command="python meets_by_xmlrpc.py",
        environ={
            n: {"RANK": str((n + 3) % 4), "GROUP_RANK": str((n + 3) % 4), "MASTER_ADDR": "n2"}
            for n in range(4)
        },
        culprit=0,
        on_host="n2",
        causes=("connections-not-taken", "server-asks-itself", "thread-stuck", "deadlock"),
        says="barrier|meet|wait",
    ),
    # Each machine's first process waits for everybody; the others have not come by there.
    OwnCase(
        name="own-local-main",
        program="waits_on_local_main",
        nodes=2,
        a_node=2,
        agents=True,
        command=_ACCELERATE + "waits_on_local_main.py",
        or_blamed=((0, 2),),
        causes=("rank-conditional-collective", "collective-mismatch", "gloo-mismatch"),
        by_stacks=((1, 3), (0, 1, 2, 3)),
        at="wait_for_everyone|barrier",
    ),
    # The norm of a sharded weight is a collective; the second of three alone logs it.
    OwnCase(
        name="own-full-tensor",
        program="logs_full_tensor",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, C10D % "norms", "logs_full_tensor"),
        before=tuple((n, f"echo {n} > /tmp/number") for n in range(3)),
        on_host="n2",
        causes=("rank-conditional-collective", "collective-mismatch", "gloo-mismatch"),
        at="full_tensor|redistribute|all_gather|wait",
    ),
    # Torch's elastic as a library: the agent of one of three machines is never started.
    OwnCase(
        name="own-library-agents",
        program="starts_by_library",
        nodes=3,
        absent=1,
        agents=True,
        command="python starts_by_library.py 3",
        or_blamed=((),),
        causes=("nodes-not-joined", "other-node-missing", "rendezvous-unreachable"),
        says="2 of 3|rendezvous",
    ),
    # ---- healthy -----------------------------------------------------------------------------
    # Nobody says how many ranks a machine has, and one comes later than the others.
    OwnCase(
        name="own-healthy-spawns-late",
        program="spawns_quickly",
        nodes=3,
        a_node=2,
        agents=True,
        command="python spawns_quickly.py",
        environ={n: {**_MASTER, "NODE": str(n), "NODES": "3"} for n in range(3)},
        late=(1, 40.0),
        healthy=True,
        ask_at=30.0,
    ),
    OwnCase(
        name="own-healthy-library-late",
        program="starts_by_library",
        nodes=2,
        agents=True,
        command="python starts_by_library.py 2",
        late=(1, 45.0),
        healthy=True,
        ask_at=30.0,
    ),
    # The server says when to come again: n3 sleeps as long.
    OwnCase(
        name="own-healthy-come-again",
        program="asks_for_token",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "asks_for_token"),
        environ={2: {"TOKENS": "http://n4:9360"}},
        before=((_OUTSIDE, _LATER),),
        healthy=True,
        ask_at=25.0,
    ),
    # One of four has a long calculation in one call, before it comes to the others.
    OwnCase(
        name="own-healthy-key",
        program="derives_key",
        nodes=4,
        by="ssh",
        command=(
            "mpirun --allow-run-as-root -np 4 --host n1,n2,n3,n4 --map-by node "
            "-x MASTER_ADDR=n1 -x MASTER_PORT=29400 $PYTHON derives_key.py"
        ),
        before=((1, "echo 30 > /tmp/rounds"),),
        healthy=True,
        ask_at=18.0,
    ),
)
