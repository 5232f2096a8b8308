"""Jobs of hang_on_hosts.py whose hosts are not alike: one has fewer ranks, another clock, a module
less, an address that leads nowhere, a longer line, or shares no folder with the others.

Their programs are in host_programs/own as well, written as users write theirs.
"""

from __future__ import annotations

from host_case import STATIC, OwnCase, torchrun
from host_delays import prepare_relay, relay

_MISMATCH = ("rank-conditional-collective", "collective-mismatch", "gloo-mismatch")
_ANY = ("hang", "silent", "crash")

_PDSH = r"""cat > /tmp/launch.sh <<'END'
exec pdsh -S -f 8 -w n1,n2,n3 "cd $PWD && $2 -m torch.distributed.run --nnodes=3 \
    --nproc-per-node=1 --node-rank=%n --master-addr=n1 --master-port=29400 $1"
END
"""
_BUILT = (
    "mkdir /tmp/site && printf 'def normalize(x):\\n    return x / x.norm()\\n' "
    "> /tmp/site/fastnorm.py"
)
# The first node has an address of IPv6 in n2's /etc/hosts, at which nobody is.
_DEAD_IPV6 = (
    "ip -6 addr add fd77::2/64 dev eth0 nodad && "
    "ip -6 neigh replace fd77::1 lladdr 02:00:00:00:00:fe nud permanent dev eth0 && "
    "(echo fd77::1 n1; cat /etc/hosts) > /tmp/hosts && mount --bind /tmp/hosts /etc/hosts"
)
_STAGE = r"""cat > /tmp/job.sh <<'END'
# What the cluster runs on each node: first the data, then the training.
mkdir -p /tmp/corpus
for part in $(seq "${PARTS:-1}"); do
    sleep 1
    echo the words of part $part >> /tmp/corpus/words.txt
done
exec "$@"
END
"""
# What an earlier job has left: its rank 0, which serves a store at the port of this one.
_OLD_STORE = """\
python -c "
import time, torch.distributed as dist
store = dist.TCPStore('0.0.0.0', 29400, is_master=True, wait_for_workers=False)
time.sleep(100000)
" &"""
_KIT = (
    "mkdir /tmp/kit && printf 'import torch.distributed as dist\\n\\n"
    "def evaluate(loss, step):\\n    dist.all_reduce(loss)\\n%s' > /tmp/kit/teamkit.py"
)
_BEST = "    best = [step]\\n    dist.broadcast_object_list(best, 0)\\n"
_ACCELERATE = (
    "accelerate launch %s --machine_rank=0 --main_process_ip=n1 --main_process_port=29400 "
    "--mixed_precision=no --dynamo_backend=no prepared_model.py"
)
_OF_TWO = "--multi_gpu --num_machines=2 --num_processes=2"

UNLIKE_CASES: tuple[OwnCase, ...] = (
    # Each machine has its own /tmp: all ranks look for the others in a file that is theirs alone,
    # and none is more to blame than another.
    OwnCase(
        name="own-file-store",
        program="shared_file",
        nodes=3,
        command="python shared_file.py",
        causes=("store-file-not-shared", "nodes-not-joined", "nobody-serves-the-store"),
        says="/tmp/rendezvous",
    ),
    # scontrol was not found, and the job script went on with localhost: each agent serves a
    # rendezvous of its own, and waits there for the others.
    OwnCase(
        name="own-local-endpoint",
        program="gloo_plain",
        nodes=3,
        agents=True,
        command=torchrun(
            3, 1, "--rdzv-backend=c10d --rdzv-endpoint=localhost:29400 --rdzv-id=41", "gloo_plain"
        ),
        causes=("nodes-not-joined", "master-is-loopback", "rendezvous-unreachable"),
        says="localhost",
    ),
    # n3 has one rank, and takes ranks 0, 1 and 2 for the leaders of the nodes; the others take 0, 2
    # and 4, and 0 and 2 wait for 4 in their group. What that is made of is on no stack: 4 waits for
    # 0 in the broadcast, as 1 and 3 do.
    OwnCase(
        name="own-fewer-ranks",
        program="node_leaders",
        nodes=3,
        a_node=2,
        agents=True,
        command=torchrun(3, 2, STATIC, "node_leaders"),
        commands={2: torchrun(3, 1, STATIC, "node_leaders")},
        culprit=4,
        causes=("group-on-some-ranks", *_MISMATCH),
        at="broadcast|reduce_gradients|^ *$",
        by_stacks=((), (0, 4), (0, 2, 4)),
        causes_by_stacks=("", "deadlock"),
    ),
    # Clocks of this kind begin with each machine: n3 has run for hours longer than the others, and
    # its moment is as far in their future.
    OwnCase(
        name="own-other-clock",
        program="starts_together",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "starts_together"),
        environ={n: {"PROFILE_RANK": "2"} for n in range(3)},
        culprit=0,
        or_blamed=((0, 1),),
        causes=("own-code-sleeps", "clocks-apart"),
        at="sleep|wait_until",
    ),
    # The module is built on two of three machines. pdsh waits for the others, and they for n2.
    OwnCase(
        name="own-pdsh-import",
        program="imports_kernel",
        kind="raises",
        nodes=3,
        by="pdsh",
        command="bash /tmp/launch.sh imports_kernel.py $PYTHON",
        before=((0, f"{_PDSH}{_BUILT}"), (2, _BUILT)),
        culprit=1,
        on_host="n2",
        outcomes=_ANY,
        causes=("rank-died", "rank-left", "rank-never-started", "other-node-missing", "node-lost"),
        says="n2",
    ),
    OwnCase(
        name="own-dead-ipv6",
        program="gloo_plain",
        nodes=3,
        command="python gloo_plain.py",
        before=((1, _DEAD_IPV6),),
        culprit=1,
        causes=("master-unroutable", "store-not-reached"),
        at="init_process_group|TCPStore",
        says="fd77::1|IPv6",
    ),
    # Rank 0 cannot serve the store and fails; the others meet at the one that is there, alone.
    OwnCase(
        name="own-old-store",
        program="gloo_plain",
        kind="raises",
        nodes=3,
        command="python gloo_plain.py",
        before=((0, _OLD_STORE), (0, "sleep 8")),
        culprit=0,
        on_host="n1",
        outcomes=_ANY,
        causes=("port-in-use", "port-taken"),
        causes_by_stacks=("rank-never-started", "rank-left", "rank-died", "other-node-missing"),
    ),
    # n3 has the package of last week, whose evaluation broadcasts nothing.
    OwnCase(
        name="own-old-code",
        program="kit_evaluation",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "kit_evaluation"),
        before=((0, _KIT % _BEST), (1, _KIT % _BEST), (2, _KIT % "")),
        culprit=2,
        causes=_MISMATCH,
        at="barrier",
    ),
    # The queue gives n2 less time: it is done while the others go on.
    OwnCase(
        name="own-time-budget",
        program="time_budget",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "time_budget"),
        environ={0: {"BUDGET": "20"}, 1: {"BUDGET": "12"}, 2: {"BUDGET": "20"}},
        culprit=1,
        causes=("uneven-rounds", "uneven-batches", "other-round", *_MISMATCH),
        at="barrier",
    ),
    # n2 was told that it is the only machine: it trains alone, and ends well.
    OwnCase(
        name="own-lone-accelerate",
        program="prepared_model",
        nodes=2,
        agents=True,
        command=_ACCELERATE % _OF_TWO,
        commands={1: _ACCELERATE % "--cpu --num_machines=1 --num_processes=1"},
        causes=("nodes-not-joined", "other-node-missing", "rendezvous-unreachable"),
        says="1 of 2 nodes|n2",
    ),
    # ---- healthy -----------------------------------------------------------------------------
    OwnCase(
        name="own-healthy-long-line",
        program="delayed_steps",
        nodes=3,
        agents=True,
        command=torchrun(3, 1, STATIC, "delayed_steps"),
        before=((1, prepare_relay(2)), (1, f"{relay(0.3)} &")),
        healthy=True,
        ask_at=25.0,
    ),
    OwnCase(
        name="own-healthy-staged",
        program="staged_words",
        nodes=3,
        agents=True,
        command="bash /tmp/job.sh " + torchrun(3, 1, STATIC, "staged_words"),
        environ={2: {"PARTS": "65"}},
        before=tuple((n, _STAGE) for n in range(3)),
        healthy=True,
        ask_at=40.0,
    ),
)
