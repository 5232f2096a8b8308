"""Jobs of hang_on_hosts.py by how they are started: srun, mpirun, loops of ssh, pdsh, torchrun that
is started again, accelerate on several machines.

Their programs are in host_programs/own as well, written as users write theirs.
"""

from __future__ import annotations

from host_case import STATIC, OwnCase

_SHORT = "for i in $(seq 20); do echo a short document about $i; done"
_LONG = "for i in 1 2 3; do head -c 900 /dev/zero | tr '\\0' x; echo; done"
_DOCUMENTS = f"({_SHORT}) > /tmp/documents-0.txt; ({_SHORT}) > /tmp/documents-1.txt"
_SHARD = (
    "mkdir /tmp/src && cd /tmp/src && for i in $(seq 40); do echo $i > sample-$i; done && "
    "tar cf /tmp/shard-0.tar . && cp /tmp/shard-0.tar /tmp/shard-1.tar"
)
_LARGE_SHARD = (
    "mkdir /tmp/large && cd /tmp/large && mkdir $(seq -f 'a-sample-with-a-long-name-%06.0f' 4000) "
    "&& tar cf /tmp/shard-0.tar ."
)
_SSH_LOOP = r"""cat > /tmp/launch.sh <<'END'
program="$1"
python="$2"
rank=0
for host in n1 n2 n3; do
    ssh $host "cd $PWD && RANK=$rank WORLD_SIZE=3 LOCAL_RANK=0 MASTER_ADDR=n1 MASTER_PORT=29400 \
        $python $program" &
    rank=$((rank + 1))
done
wait
END
"""
_KEEPS = "printf 'until \"$@\"; do\n  echo it failed: again\n  sleep 3\ndone\n' > /tmp/keep.sh"
_STREAM = (
    "mkdir /tmp/stream && for i in $(seq -w 0 19); do echo batch $i > /tmp/stream/0$i.batch; done"
)
_HOSTFILE = "for n in 1 2 3 4; do echo n$n slots=1; done > /tmp/hostfile"
_SAMPLES = "mkdir /tmp/samples && for i in $(seq -w 0 9); do echo 1 2 $i > /tmp/samples/0$i; done"
_PDSH = r"""cat > /tmp/launch.sh <<'END'
exec pdsh -S -f 8 -w n1,n2,n3 "cd $PWD && $2 -m torch.distributed.run --nnodes=3 \
    --nproc-per-node=1 --node-rank=%n --master-addr=n1 --master-port=29400 $1"
END
"""
_BOTH = r"""cat > /tmp/both.sh <<'END'
train="$2 -m torch.distributed.run --nnodes=2 --nproc-per-node=2 --master-addr=n1"
ssh n2 "cd $PWD && $train --master-port=29400 --node-rank=1 $1" &
$train --master-port=29400 --node-rank=0 $1
wait
END
"""
_SHELL_WAITS = (
    "mkfifo /tmp/gate && echo 'read line < /tmp/gate' > /tmp/rc && "
    "touch /root/.bashrc && mount --bind /tmp/rc /root/.bashrc"
)
_STOPS_CHILD = (
    "until test -s /tmp/count.pid; do sleep 0.2; done; kill -STOP $(cat /tmp/count.pid) &"
)
_PARTS = "mkdir /tmp/parts && for i in 0 1 2; do echo 1 2 $i > /tmp/parts/$i; done"
_ACCELERATE = (
    "accelerate launch --multi_gpu --num_machines=2 --num_processes=2 --machine_rank=$NODE "
    "--main_process_ip=n1 --main_process_port=29400 --mixed_precision=no --dynamo_backend=no "
)

LAUNCHED_CASES: tuple[OwnCase, ...] = (
    # Two long documents at once take both threads of the pool, and their parts wait for one.
    OwnCase(
        name="own-srun-pool",
        program="packs_documents",
        nodes=2,
        a_node=2,
        by="slurm",
        command="srun -N2 --ntasks-per-node=2 $PYTHON packs_documents.py",
        environ={0: {"MASTER_ADDR": "n1", "MASTER_PORT": "29400"}},
        before=((0, _DOCUMENTS), (1, f"{_DOCUMENTS}; ({_LONG}) >> /tmp/documents-1.txt")),
        culprit=3,
        causes=("pool-waits-for-itself",),
        at="result|map|pack",
    ),
    # Nobody reads what tar prints before it has ended.
    OwnCase(
        name="own-mpirun-tar",
        program="unpacks_shards",
        nodes=3,
        a_node=2,
        by="ssh",
        command=(
            "mpirun --allow-run-as-root -np 6 --host n1:2,n2:2,n3:2 --map-by slot "
            "-x MASTER_ADDR=n1 -x MASTER_PORT=29400 $PYTHON unpacks_shards.py"
        ),
        before=((0, _SHARD), (1, _SHARD), (2, f"{_SHARD}; {_LARGE_SHARD}")),
        culprit=4,
        causes=("pipe-unread", "child-process-stuck", "child-program", "deadlock"),
        at="wait",
    ),
    # The writer does not say that it is done with what it could not write.
    OwnCase(
        name="own-ssh-queue",
        program="writes_metrics",
        nodes=3,
        by="ssh",
        command="bash /tmp/launch.sh writes_metrics.py $PYTHON",
        before=(
            (0, _SSH_LOOP),
            *((n, "echo 1 2 3 4 > /tmp/scales.txt") for n in (0, 2)),
            (1, "echo 1 2 nan 4 > /tmp/scales.txt"),
        ),
        culprit=1,
        causes=("dead-owner", "thread-stuck", "swallowed-exception", ""),
        at="join|flush",
    ),
    # The last batch is in the list, and not in the folder of one machine.
    OwnCase(
        name="own-kept-torchrun",
        program="streams_batches",
        nodes=3,
        agents=True,
        command=(
            "bash /tmp/keep.sh torchrun --nnodes=3 --nproc-per-node=1 "
            + STATIC
            + " streams_batches.py"
        ),
        before=(
            *((n, f"{_KEEPS}; {_STREAM}") for n in (0, 1)),
            (2, f"{_KEEPS}; {_STREAM}; rm /tmp/stream/019.batch"),
        ),
        culprit=2,
        causes=("event-loop", "tasks-await-one-another", "loop-waits-for-itself", "thread-stuck"),
        at="take|run|wait|train",
    ),
    # The scheduler has marked one node, and signals none of its tasks. Agents number themselves.
    OwnCase(
        name="own-srun-torchrun",
        program="saves_on_signal",
        nodes=2,
        a_node=2,
        by="slurm",
        command=(
            "srun -N2 --ntasks-per-node=1 $PYTHON -m torch.distributed.run --nnodes=2 "
            "--nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=n1:29400 --rdzv-id=freed "
            "saves_on_signal.py"
        ),
        before=((1, "touch /tmp/to-be-freed"),),
        on_host="n2",
        causes=("signal-wait",),
        at="sigwait|wait_for_scheduler",
    ),
    # The forked writer asks for a lock that a thread had when it was forked.
    OwnCase(
        name="own-deepspeed-pdsh",
        program="forks_writers",
        nodes=2,
        a_node=2,
        by="pdsh",
        command=(
            "deepspeed --hostfile=/tmp/hostfile --launcher=pdsh --master_addr=n1 "
            "--master_port=29400 forks_writers.py"
        ),
        before=(
            (0, "printf 'n1 slots=2\nn2 slots=2\n' > /tmp/hostfile"),
            (1, "echo 9 > /tmp/disk-1"),
        ),
        culprit=3,
        causes=("lock-after-fork", "thread-lost-by-fork", "child-process-stuck", "worker-stuck"),
        at="join|waitpid|poll|Popen",
    ),
    # Three samples are no numbers: each of them has kept a slot.
    OwnCase(
        name="own-mpirun-slots",
        program="limits_readers",
        nodes=4,
        by="ssh",
        command=(
            "mpirun --allow-run-as-root -np 4 --hostfile /tmp/hostfile --map-by node "
            "-x MASTER_ADDR=n1 -x MASTER_PORT=29400 $PYTHON limits_readers.py"
        ),
        before=(
            (0, f"{_HOSTFILE}; {_SAMPLES}"),
            (1, f"{_SAMPLES}; for i in 2 4 5; do echo no number > /tmp/samples/0$i; done"),
            *((n, _SAMPLES) for n in (2, 3)),
        ),
        culprit=1,
        causes=("slots-not-given-back", "lock-not-to-be-had", "self-deadlock", "dead-owner"),
        at="acquire|read",
    ),
    # Its numbers are none, and the thread that is to report them waits on, when all is over.
    OwnCase(
        name="own-pdsh-report",
        program="reports_at_end",
        nodes=3,
        by="pdsh",
        command="bash /tmp/launch.sh reports_at_end.py $PYTHON",
        before=(
            (0, f"{_PDSH}echo 1 > /tmp/scale"),
            (1, "echo nan > /tmp/scale"),
            (2, "echo 1 > /tmp/scale"),
        ),
        culprit=1,
        causes=("thread-at-exit",),
        at="wait|shutdown|join",
    ),
    OwnCase(
        name="own-healthy-ssh",
        program="warms_up",
        nodes=3,
        by="ssh",
        command="bash /tmp/launch.sh warms_up.py $PYTHON",
        before=((0, _SSH_LOOP), (2, "touch /tmp/cold")),
        healthy=True,
        ask_at=30.0,
    ),
    # Here and there a torchrun, of which the one there is started by ssh.
    OwnCase(
        name="own-ssh-and-here",
        program="profiled_steps",
        nodes=2,
        a_node=2,
        by="ssh",
        command="bash /tmp/both.sh profiled_steps.py $PYTHON",
        before=(
            (0, _BOTH),
            (1, """echo '{"socket": "/tmp/profiler.sock"}' > /tmp/profiler.json"""),
        ),
        culprit=2,
        causes=("nobody-sends", "endpoint-unserved", "service-silent", ""),
        at="accept|__init__",
    ),
    # n3's shell waits at each log-in: mpirun's daemon never starts there, and no rank anywhere.
    OwnCase(
        name="own-mpirun-daemon",
        program="mpi_train",
        nodes=3,
        by="ssh",
        command=(
            "mpirun --allow-run-as-root -np 3 --host n1,n2,n3 --map-by node "
            "-x MASTER_ADDR=n1 -x MASTER_PORT=29400 $PYTHON mpi_train.py"
        ),
        before=((2, _SHELL_WAITS),),
        causes=("host-starts-nobody", "other-node-missing", "rank-never-started", "child-program"),
        causes_by_stacks=("", "node-lost"),
        says="n3",
    ),
    # Started from a machine without ranks. Somebody has stopped the program that a rank waits for.
    OwnCase(
        name="own-login-ssh",
        program="counts_words",
        nodes=4,
        by="ssh",
        command="bash /tmp/launch.sh counts_words.py $PYTHON",
        before=(
            (
                0,
                _SSH_LOOP.replace("n1 n2 n3", "n2 n3 n4").replace(
                    "MASTER_ADDR=n1", "MASTER_ADDR=n2"
                ),
            ),
            *((n, "echo a b c > /tmp/corpus.txt") for n in (1, 2, 3)),
            (2, _STOPS_CHILD),
        ),
        culprit=1,
        on_host="n3",
        causes=("stopped", "child-program", "child-process-stuck"),
        at="wait|poll|communicate|read|run",
    ),
    # One part is no number: its thread has ended, and the others wait for it at their barrier.
    OwnCase(
        name="own-srun-none",
        program="meets_threads",
        nodes=3,
        by="slurm",
        command="srun --export=NONE -N3 --ntasks-per-node=1 $PYTHON meets_threads.py",
        before=(*((n, _PARTS) for n in (0, 2)), (1, f"{_PARTS}; echo none > /tmp/parts/1")),
        culprit=1,
        causes=("dead-producer", "thread-stuck", "deadlock", "self-deadlock"),
        at="wait|next_epoch",
    ),
    OwnCase(
        name="own-healthy-mpirun",
        program="warms_up",
        nodes=3,
        by="ssh",
        command=(
            "mpirun --allow-run-as-root -np 3 --host n1,n2,n3 --map-by node "
            "-x MASTER_ADDR=n1 -x MASTER_PORT=29400 $PYTHON warms_up.py"
        ),
        before=((2, "touch /tmp/cold"),),
        healthy=True,
        ask_at=30.0,
    ),
    OwnCase(
        name="own-healthy-accelerate",
        program="scores_first",
        nodes=2,
        agents=True,
        command=_ACCELERATE + "scores_first.py",
        environ={1: {"SCORE_ROUNDS": "700000"}},
        healthy=True,
        ask_at=18.0,
    ),
)
