"""The jobs of hang_on_hosts.py that are written as users write theirs, with what is right.

Their programs, in host_programs/own, have nothing of ours in them: what makes one hang is in the
program, in a file of one host, or in what one host is started with. The healthy ones are silent for
long on one host, and end well.
"""

from __future__ import annotations

from host_case import OwnCase

_OUTSIDE = -1  # the host that is not of the job
_STATIC = "--master-addr=n1 --master-port=29400 --node-rank=$NODE"
_C10D = "--rdzv-backend=c10d --rdzv-endpoint=n1:29400 --rdzv-id=%s"
_SERVICES = ("service-silent", "endpoint-silent")


def _torchrun(nodes: int, ranks: int, meets: str, program: str) -> str:
    return f"torchrun --nnodes={nodes} --nproc-per-node={ranks} {meets} {program}.py"


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

OWN_CASES: tuple[OwnCase, ...] = (
    OwnCase(
        name="own-loader",
        program="ddp_images",
        nodes=2,
        a_node=2,
        agents=True,
        command=_torchrun(2, 2, _STATIC, "ddp_images"),
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
        command=_torchrun(3, 1, _C10D % "fsdp", "fsdp_tracker"),
        on_host="n3",
        causes=_SERVICES,
    ),
    OwnCase(
        name="own-uneven",
        program="accumulate",
        nodes=3,
        agents=True,
        command=_torchrun(3, 1, _STATIC, "accumulate"),
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
        command=_torchrun(3, 1, _STATIC, "pipeline"),
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
        command=_torchrun(2, 2, _STATIC, "hierarchy"),
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
        command=_torchrun(2, 1, _STATIC, "async_checkpoint"),
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
        command=_torchrun(3, 1, _C10D % "exp41", "gloo_plain"),
        commands={2: _torchrun(3, 1, _C10D % "exp14", "gloo_plain")},
        causes=("nodes-not-joined",),
        says="exp14",
    ),
    OwnCase(
        name="own-same-node-rank",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=_torchrun(3, 1, _STATIC, "gloo_plain"),
        commands={2: _torchrun(3, 1, _STATIC.replace("$NODE", "1"), "gloo_plain")},
        causes=("nodes-not-joined", "duplicate-rank"),
        says="node.rank",
    ),
    OwnCase(
        name="own-agent-import",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=_torchrun(3, 1, _C10D % "exp41", "gloo_plain"),
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
    # ---- healthy -----------------------------------------------------------------------------
    OwnCase(
        name="own-healthy-late",
        program="gloo_plain",
        nodes=2,
        agents=True,
        command=_torchrun(2, 1, _STATIC, "gloo_plain"),
        late=(1, 30.0),
        healthy=True,
        ask_at=15.0,
    ),
    OwnCase(
        name="own-healthy-download",
        program="slow_download",
        nodes=2,
        agents=True,
        command=_torchrun(2, 1, _STATIC, "slow_download"),
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
        command=_torchrun(2, 1, _STATIC, "slow_build"),
        before=((1, _BUILD),),
        healthy=True,
        ask_at=20.0,
    ),
    OwnCase(
        name="own-healthy-data",
        program="waits_for_data",
        nodes=2,
        agents=True,
        command=_torchrun(2, 1, _STATIC, "waits_for_data"),
        before=(
            (0, "mkdir /tmp/data && touch /tmp/data/_SUCCESS"),
            (1, "(sleep 45; mkdir /tmp/data; touch /tmp/data/_SUCCESS) &"),
        ),
        healthy=True,
        ask_at=20.0,
    ),
)
