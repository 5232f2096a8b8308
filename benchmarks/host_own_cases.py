"""The jobs of hang_on_hosts.py that are written as users write theirs, with what is right.

Their programs, in host_programs/own, have nothing of ours in them: what makes one hang is in the
program, in a file of one host, or in what one host is started with. The healthy ones are silent for
long on one host, and end well.
"""

from __future__ import annotations

from host_case import C10D, STATIC, OwnCase, torchrun

_OUTSIDE = -1  # the host that is not of the job
_SERVICES = ("service-silent", "endpoint-silent")


def _hosts_file(address: str) -> str:
    return (
        f"cp /etc/hosts /tmp/hosts && echo {address} trainhead >> /tmp/hosts && "
        "mount --bind /tmp/hosts /etc/hosts"
    )


_IMAGES = "mkdir /tmp/images && for i in $(seq 0 63); do echo $i > /tmp/images/$i.txt; done"
_SHARD = "mkdir /tmp/shard && for i in $(seq 10 %d); do echo $i > /tmp/shard/$i.txt; done"
_ROUNDS = (
    "mkdir /tmp/rounds && cd /tmp/rounds && echo x > x && "
    "for i in $(seq 0 19); do tar cf $i.tar x; done"
)
_PLUGIN = r"""
mkdir -p /tmp/site/fastaccel /tmp/site/fastaccel-1.0.dist-info && cd /tmp/site &&
printf 'import fcntl\n\ndef autoload():\n    file = open("/tmp/fastaccel.lock", "w")\n' \
  > fastaccel/__init__.py &&
printf '    fcntl.flock(file, fcntl.LOCK_EX)\n' >> fastaccel/__init__.py &&
cd fastaccel-1.0.dist-info &&
printf 'Metadata-Version: 2.1\nName: fastaccel\nVersion: 1.0\n' > METADATA &&
printf '[torch.backends]\nfastaccel = fastaccel:autoload\n' > entry_points.txt
"""
_HOLDS_RECORD_LOCK = (
    "python -c \"import fcntl, time; f = open('/tmp/statistics-1.json', 'a+'); "
    'fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(100000)" &'
)
_TRICKLES = """\
python -c "
import socket, time
server = socket.create_server(('', 9310))
while True:
    connection, _ = server.accept()
    connection.recv(1000)
    connection.sendall(b'HTTP/1.0 200 OK\\r\\nContent-Length: 9000\\r\\n\\r\\n')
    for _ in range(9):
        time.sleep(3.0)
        connection.sendall(bytes(1000))
    connection.close()
" &"""
_BUILD = r"""
printf 'import time\nend = time.monotonic() + 25\nwhile time.monotonic() < end:\n' > /tmp/cc.py &&
printf '    sum(range(100000))\n' >> /tmp/cc.py && echo 'exec python /tmp/cc.py' > /tmp/build.sh
"""

_SHARDS = """\
python -c "
import socket, struct, threading
server = socket.create_server(('', 9320))
gate = threading.Lock()
gate.acquire()
def serve(connection):
    shard = struct.unpack('!I', connection.recv(4))[0]
    for number in range(120):
        if shard == 3 and number == 50:
            gate.acquire()
        connection.sendall(struct.pack('!I8f', 32, *[number] * 8))
    connection.close()
while True:
    threading.Thread(target=serve, args=(server.accept()[0],)).start()
" &"""
_STORE = """\
python -c "
import time, torch.distributed as dist
store = dist.TCPStore('0.0.0.0', 9330, is_master=True, wait_for_workers=False)
time.sleep(100000)
" &"""
_STOPS = (
    "while ! test -s /tmp/train.pid; do sleep 0.3; done; "
    "sleep 6; kill -STOP $(cat /tmp/train.pid) &"
)
_OWN_NAME = (
    "sed 's/.* n%d$/127.0.1.1 n%d/' /etc/hosts > /tmp/hosts && mount --bind /tmp/hosts /etc/hosts"
)
_CORPUS = "for i in $(seq 0 79); do echo some words of line $i; done > /tmp/corpus.txt"
_BAD_CORPUS = (
    "(for i in $(seq 0 30); do echo some words of line $i; done; "
    "printf 'caf\\351 au lait\\n'; seq 32 90) > /tmp/corpus.txt"
)
_BATCHES = (
    "mkdir /tmp/batches && for i in $(seq 10 29); do "
    """echo '{"inputs": [[1, 2, 3, 4.5], [2, 3, 4, 5]]}' > /tmp/batches/$i.json; done"""
)
_OLD_LOCK = r"mkdir /tmp/vocabulary && printf '4711\nbuild-host\n' > /tmp/vocabulary/vocab.lock"
_READER = (
    "mkfifo /tmp/upload && python -c \"import time; f = open('/tmp/upload', 'rb', buffering=0)\n"
    'while f.read(65536): time.sleep(2)"'
)

OWN_CASES: tuple[OwnCase, ...] = (
    OwnCase(
        name="own-loader",
        program="ddp_images",
        nodes=2,
        a_node=2,
        agents=True,
        command=torchrun(2, 2, STATIC, "ddp_images"),
        before=(
            (0, _IMAGES),
            (1, f"{_IMAGES}; rm /tmp/images/14.txt; mkfifo /tmp/images/14.txt"),
        ),
        culprit=2,
        causes=("worker-stuck", "pipe-no-writer"),
    ),
    OwnCase(
        name="own-fsdp",
        program="fsdp_tracker",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, C10D % "fsdp", "fsdp_tracker"),
        on_host="n3",
        causes=_SERVICES,
    ),
    OwnCase(
        name="own-uneven",
        program="accumulate",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "accumulate"),
        before=((0, _SHARD % 17), (1, _SHARD % 17), (2, _SHARD % 15)),
        culprit=2,
        causes=("uneven-batches", "uneven-rounds"),
    ),
    # Stage 1 sends nothing on for one micro-batch, and then waits for its gradient: stacks alone
    # show that 1 and 2 wait for one another.
    OwnCase(
        name="own-pipeline",
        program="pipeline",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "pipeline"),
        culprit=1,
        causes=("message-left-out",),
        by_stacks=((1, 2),),
        causes_by_stacks=("deadlock",),
    ),
    OwnCase(
        name="own-subgroups",
        program="hierarchy",
        nodes=2,
        a_node=2,
        agents=True,
        command=torchrun(2, 2, STATIC, "hierarchy"),
        before=((1, _HOLDS_RECORD_LOCK),),
        culprit=3,
        causes=("file-lock-held",),
    ),
    OwnCase(
        name="own-rpc",
        program="rpc_trainers",
        nodes=3,
        command="python rpc_trainers.py",
        culprit=2,
        causes=("self-deadlock", "thread-stuck"),
    ),
    OwnCase(
        name="own-checkpoint",
        program="async_checkpoint",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, STATIC, "async_checkpoint"),
        environ={1: {"OBJECT_STORE": "n3:9300"}},
        culprit=1,
        causes=("thread-stuck", "socket-unread"),
    ),
    OwnCase(
        name="own-zmq",
        program="zmq_server",
        kind="leaves",
        nodes=3,
        command="python zmq_server.py",
        before=(
            (1, "seq 1 1600 > /tmp/examples.txt"),
            (2, "seq 1 1200 > /tmp/examples.txt"),
        ),
        culprit=2,
        causes=("rank-left",),
    ),
    OwnCase(
        name="own-http",
        program="http_rounds",
        nodes=3,
        command="python http_rounds.py",
        before=(
            (1, f"{_ROUNDS}; rm 7.tar; mkfifo 7.tar"),
            (2, _ROUNDS),
        ),
        culprit=1,
        causes=("child-program", "pipe-no-writer"),
    ),
    OwnCase(
        name="own-manager",
        program="manager_queue",
        nodes=2,
        command="python manager_queue.py",
        before=((1, "(seq 1 50; echo broken line; seq 52 200) > /tmp/texts.txt"),),
        culprit=1,
        causes=("pool-worker-lost", "worker-dead"),
    ),
    OwnCase(
        name="own-other-id",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, C10D % "exp41", "gloo_plain"),
        commands={2: torchrun(3, 1, C10D % "exp14", "gloo_plain")},
        causes=("nodes-not-joined",),
        says="exp14",
    ),
    OwnCase(
        name="own-same-node-rank",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "gloo_plain"),
        commands={2: torchrun(3, 1, STATIC.replace("$NODE", "1"), "gloo_plain")},
        causes=("nodes-not-joined", "duplicate-rank"),
        says="node.rank",
    ),
    OwnCase(
        name="own-agent-import",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, C10D % "exp41", "gloo_plain"),
        environ={1: {"PYTHONPATH": "/tmp/site"}},
        before=((1, _PLUGIN), (1, "exec flock /tmp/fastaccel.lock sleep 100000 &")),
        on_host="n2",
        causes=("file-lock-held", "import-stuck"),
    ),
    OwnCase(
        name="own-other-address",
        program="gloo_plain",
        nodes=3,
        command="python gloo_plain.py",
        environ={n: {"MASTER_ADDR": "trainhead"} for n in range(3)},
        before=(
            (0, _hosts_file("10.77.0.1")),
            (1, _hosts_file("10.77.0.1")),
            (2, _hosts_file("10.77.0.2")),
        ),
        culprit=2,
        causes=("different-master", "nobody-serves-the-store"),
    ),
    # Rank 0 marks its checkpoint as complete, in a folder that only its own machine has.
    OwnCase(
        name="own-marker",
        program="hsdp_checkpoint",
        nodes=2,
        a_node=2,
        agents=True,
        command=torchrun(2, 2, STATIC, "hsdp_checkpoint"),
        culprit=2,
        causes=("polling-loop",),
        at="sleep|COMPLETE|save",
    ),
    OwnCase(
        name="own-rank-twice",
        program="rank_list",
        nodes=2,
        a_node=2,
        command="python rank_list.py",
        before=((0, "echo 0 1 > /tmp/ranks.txt"), (1, "echo 2 2 > /tmp/ranks.txt")),
        on_host="n2",
        causes=("duplicate-rank",),
        at="init_process_group",
    ),
    # The port of an earlier configuration: what listens there now says nothing.
    OwnCase(
        name="own-store-port",
        program="head_store",
        nodes=3,
        command="python head_store.py",
        environ={n: {"CLUSTER_STORE": f"n4:{(9330, 9300, 9330)[n]}"} for n in range(3)},
        before=((_OUTSIDE, _STORE),),
        culprit=1,
        causes=("different-master", "foreign-store", *_SERVICES),
        at="TCPStore|connect",
    ),
    # As Debian writes /etc/hosts: a machine's own name means the machine itself. Ports decide which
    # of the two connects, and is refused in the end.
    OwnCase(
        name="own-loopback-name",
        program="gloo_plain",
        kind="raises",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, STATIC, "gloo_plain"),
        before=((0, _OWN_NAME % (1, 1)), (1, _OWN_NAME % (2, 2))),
        culprit=1,
        or_blamed=((0,),),
        causes=("hostname-is-loopback",),
        outcomes=("hang", "silent", "crash"),
    ),
    OwnCase(
        name="own-master-local",
        program="gloo_plain",
        nodes=3,
        command="python gloo_plain.py",
        environ={n: {"MASTER_ADDR": "trainhead"} for n in range(3)},
        before=(
            (0, _hosts_file("10.77.0.1")),
            (1, _hosts_file("127.0.0.1")),
            (2, _hosts_file("10.77.0.1")),
        ),
        culprit=1,
        causes=("different-master", "nobody-serves-the-store", "master-is-loopback"),
        at="init_process_group",
    ),
    # Rank 2 takes itself for a teacher: torch lets it pass by what it is no member of, and rank 3
    # waits in its group alone. Stacks alone show that 2 and 3 wait for one another.
    OwnCase(
        name="own-other-group",
        program="distillation",
        nodes=4,
        agents=True,
        command=torchrun(4, 1, STATIC, "distillation"),
        before=tuple(
            (n, f"""echo '{{"role": "{"student" if n == 3 else "teacher"}"}}' > /tmp/role.json""")
            for n in range(4)
        ),
        culprit=2,
        causes=("rank-conditional-collective", "collective-mismatch"),
        at="barrier",
        by_stacks=((2, 3),),
        causes_by_stacks=("deadlock",),
    ),
    OwnCase(
        name="own-updater",
        program="parameter_server",
        nodes=3,
        command="python parameter_server.py",
        environ={n: {"SERVER_HOST": "n3"} for n in range(3)},
        before=((1, "touch /tmp/unfreeze"),),
        culprit=2,
        causes=("dead-producer",),
        at="get|acquire",
    ),
    OwnCase(
        name="own-data-service",
        program="data_service",
        nodes=2,
        a_node=2,
        agents=True,
        command=torchrun(2, 2, STATIC, "data_service"),
        environ={n: {"DATA_SERVICE": "n3:9320"} for n in range(2)},
        before=((_OUTSIDE, _SHARDS),),
        culprit=3,
        causes=("worker-stuck", *_SERVICES),
    ),
    OwnCase(
        name="own-tokenizer",
        program="tokenizer_process",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "tokenizer_process"),
        before=((0, _CORPUS), (1, _BAD_CORPUS), (2, _CORPUS)),
        culprit=1,
        causes=("worker-dead", "dead-producer", "pipe-writer-gone"),
        at="get|recv|poll",
    ),
    OwnCase(
        name="own-old-lock",
        program="vocabulary_cache",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "vocabulary_cache"),
        before=((2, _OLD_LOCK),),
        culprit=2,
        causes=("lock-file-left", "lock-file-without-owner"),
        at="lock|acquire",
    ),
    # Rank 2 goes on after a batch without its backward: the others wait in theirs, the last one.
    OwnCase(
        name="own-skipped-batch",
        program="skips_bad_batches",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "skips_bad_batches"),
        before=(
            *((n, _BATCHES) for n in range(3)),
            (2, """echo '{"inputs": [[1, 2, 3], [2, 3]]}' > /tmp/batches/22.json"""),
        ),
        culprit=2,
        causes=("swallowed-exception", "rank-conditional-collective", "uneven-rounds"),
        at="barrier",
    ),
    OwnCase(
        name="own-stopped",
        program="long_steps",
        nodes=4,
        agents=True,
        command=torchrun(4, 1, STATIC, "long_steps"),
        before=((2, _STOPS),),
        culprit=2,
        causes=("stopped",),
    ),
    OwnCase(
        name="own-other-nnodes",
        program="gloo_plain",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, C10D % "night", "gloo_plain"),
        commands={1: torchrun(3, 1, C10D % "night", "gloo_plain")},
        late=(1, 3.0),
        causes=("nodes-not-joined",),
        says="nnodes is 2 on n1 and 3 on n2",
    ),
    # ---- healthy -----------------------------------------------------------------------------
    OwnCase(
        name="own-healthy-late",
        program="gloo_plain",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, STATIC, "gloo_plain"),
        late=(1, 30.0),
        healthy=True,
        ask_at=15.0,
    ),
    OwnCase(
        name="own-healthy-download",
        program="slow_download",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, STATIC, "slow_download"),
        environ={1: {"WEIGHTS_URL": "http://n3:9310/weights"}},
        before=((_OUTSIDE, _TRICKLES),),
        healthy=True,
        ask_at=20.0,
    ),
    OwnCase(
        name="own-healthy-build",
        program="slow_build",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, STATIC, "slow_build"),
        before=((1, _BUILD),),
        healthy=True,
        ask_at=20.0,
    ),
    OwnCase(
        name="own-healthy-data",
        program="waits_for_data",
        nodes=2,
        agents=True,
        command=torchrun(2, 1, STATIC, "waits_for_data"),
        before=(
            (0, "mkdir /tmp/data && touch /tmp/data/_SUCCESS"),
            (1, "(sleep 45; mkdir /tmp/data; touch /tmp/data/_SUCCESS) &"),
        ),
        healthy=True,
        ask_at=20.0,
    ),
    OwnCase(
        name="own-healthy-c10d-late",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, C10D % "late", "gloo_plain"),
        late=(1, 40.0),
        healthy=True,
        ask_at=22.0,
    ),
    OwnCase(
        name="own-healthy-slow-host",
        program="slow_host",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "slow_host"),
        environ={1: {"SEARCH_SECONDS": "12"}},
        healthy=True,
        ask_at=25.0,
    ),
    OwnCase(
        name="own-healthy-checkpoint",
        program="slow_checkpoint",
        nodes=2,
        a_node=2,
        agents=True,
        command=torchrun(2, 2, STATIC, "slow_checkpoint"),
        environ={1: {"CHECKPOINT": "/tmp/upload"}},
        before=((1, _READER + " &"),),
        healthy=True,
        ask_at=20.0,
    ),
)
