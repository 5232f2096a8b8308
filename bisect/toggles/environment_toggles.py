"""The toggles that are a variable of the environment, as people try them by hand.

What NCCL's say and cost: its user guide, "Environment Variables"
(docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html); torch's: its pages on distributed
(TORCH_DISTRIBUTED_DEBUG, GLOO_SOCKET_IFNAME) and on CUDA (CUDA_LAUNCH_BLOCKING).
"""

from __future__ import annotations

from ..base.pipeline import PIPELINES
from .toggle import AS_SET, Toggle

_GROUP = "torch.distributed.init_process_group"
_COMMUNICATOR = "NCCL, when a communicator is made: at the first collective"

NETWORK = (
    Toggle(
        name="nccl_p2p_disable",
        component="strategy",
        variable="NCCL_P2P_DISABLE",
        values=("0", "1"),
        default="0",
        kind="remedy",
        read="run",
        read_how=_COMMUNICATOR,
        cost="1: GPUs of a node exchange through the host's memory, at a fraction of the speed",
        help="whether NCCL leaves out direct access between GPUs (NVLink, PCI)",
        gpu=True,
        told=True,
    ),
    Toggle(
        name="nccl_ib_disable",
        component="strategy",
        variable="NCCL_IB_DISABLE",
        values=("0", "1"),
        default="0",
        kind="remedy",
        read="run",
        read_how=_COMMUNICATOR,
        cost="1: between nodes plain sockets, several times slower; within a node nothing",
        help="whether NCCL leaves out InfiniBand and RoCE",
        gpu=True,
        told=True,
    ),
    Toggle(
        name="nccl_shm_disable",
        component="strategy",
        variable="NCCL_SHM_DISABLE",
        values=("0", "1"),
        default="0",
        kind="remedy",
        read="run",
        read_how=_COMMUNICATOR,
        cost="1: GPUs without direct access exchange over the network, even within a node",
        help="whether NCCL leaves out shared memory (/dev/shm)",
        gpu=True,
        told=True,
    ),
    Toggle(
        name="nccl_nvls_enable",
        component="strategy",
        variable="NCCL_NVLS_ENABLE",
        values=(AS_SET, "0"),
        default=AS_SET,
        kind="remedy",
        read="run",
        read_how=_COMMUNICATOR,
        cost="0: reductions are done by the GPUs and not by the NVSwitch, more slowly",
        help="whether NCCL uses NVLink SHARP, which takes memory of its own on each GPU",
        accepts="text",
        gpu=True,
        told=True,
    ),
    Toggle(
        name="nccl_socket_ifname",
        component="strategy",
        variable="NCCL_SOCKET_IFNAME",
        values=(AS_SET, "lo"),
        default=AS_SET,
        kind="remedy",
        read="run",
        read_how=_COMMUNICATOR,
        cost="lo: one node only; elsewhere name the interface that the nodes share",
        one_node=True,
        help="the network interfaces that NCCL may use",
        accepts="text",
        gpu=True,
        told=True,
    ),
    Toggle(
        name="gloo_socket_ifname",
        component="strategy",
        variable="GLOO_SOCKET_IFNAME",
        values=(AS_SET, "lo"),
        default=AS_SET,
        kind="remedy",
        read="run",
        read_how=_GROUP,
        cost="lo: one node only; elsewhere name the interface that the nodes share",
        one_node=True,
        help="the network interface that gloo may use",
        accepts="text",
        told=True,
    ),
    Toggle(
        name="torch_distributed_debug",
        component="strategy",
        variable="TORCH_DISTRIBUTED_DEBUG",
        values=("DETAIL", "INFO", "OFF"),
        default="OFF",
        kind="remedy",
        read="run",
        read_how=_GROUP,
        cost="OFF: torch no longer compares what ranks call",
        help="torch's own checks of collectives; DETAIL adds a group and a barrier of its own",
        told=True,
    ),
)

THREADS = (
    Toggle(
        name="omp_num_threads",
        component="data",
        variable="OMP_NUM_THREADS",
        values=("1",),
        kind="remedy",
        read="import",
        read_how="OpenMP, when torch is loaded; torchrun sets 1 itself for several ranks",
        cost="1: what runs on the CPU uses one core a rank",
        help="threads of OpenMP in each rank; with 1 there is no pool that a fork could break",
        pipelines=PIPELINES,
        accepts="count",
    ),
    Toggle(
        name="cuda_launch_blocking",
        component="accelerator",
        variable="CUDA_LAUNCH_BLOCKING",
        values=("0", "1"),
        default="0",
        kind="probe",
        read="run",
        read_how="CUDA, when it starts",
        cost="1: the CPU waits for every kernel, several times slower",
        help="whether each kernel is waited for: it changes when everything happens",
        pipelines=PIPELINES,
        gpu=True,
    ),
)
