"""Jobs of hang_on_hosts.py by how they are started: srun, mpirun, loops of ssh, pdsh, torchrun below
what starts it again, accelerate on several machines.

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
    OwnCase(
        name="own-healthy-accelerate",
        program="scores_first",
        nodes=2,
        agents=True,
        command=_ACCELERATE + "scores_first.py",
        environ={1: {"SCORE_ROUNDS": "400000"}},
        healthy=True,
        ask_at=25.0,
    ),
)
