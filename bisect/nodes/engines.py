"""How a task gets onto the nodes of a round (ssh, a step of Slurm's, tasks of Ray, kubectl exec),
and the nodes among which a bad one is searched: those that a person or an engine names.

All start what is installed here under the same path on the nodes, as `attach --hosts` does; in a
pod it is what its image has. A round is one step of Slurm's, in which each task finds its set by
the name of its node: a controller takes many steps at once badly ("Job step creation temporarily
disabled, retrying", srun says).

By ssh and in pods all nodes of a round are reached at the same time: a window of so many at once,
as pdsh and ClusterShell have it, would hold back one of two that wait for each other.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from typing import Literal

from ..attach.nodes import SLURM_LIMIT, SSH_CONNECT_LIMIT, run_program
from ..attach.pods import Pod, kubectl_command, list_pods
from ..base.deadline import run_command
from ..base.errors import HangbisectError, UsageError
from ..base.files import PACKAGE
from ..base.host_names import read_host_names
from ..base.json_codec import from_json, to_json
from ..base.lazy_dataclass import dataclass
from ..evidence.external_tools import find_program
from ..trials.ray_tasks import RayOrders, RayTask, RayWord, make_ray_words, make_tasks_line
from .node_task import TaskOrders

EngineName = Literal["hosts", "slurm", "ray", "kubernetes"]
_KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS")
# What a command needs on the nodes to be the same as here: srun hands on all variables, ssh none.
_CARRIED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")
_CARRIED_BEGIN = ("NCCL_", "GLOO_", "TORCH_", "OMP_")


@dataclass(frozen=True)
class StartCommand:
    """A command of ours that starts tasks, and on which nodes."""

    nodes: tuple[str, ...]
    words: tuple[str, ...]
    environment: Mapping[str, str]
    told_first: str = ""  # a line for its input


@dataclass(frozen=True)
class Engine:
    """What starts the tasks of a round."""

    name: EngineName
    make_commands: Callable[[TaskOrders], list[StartCommand]]


def make_ssh_engine(environ: Mapping[str, str]) -> Engine:
    """Return the engine for --hosts. Raises UsageError where there is no ssh."""
    ssh = find_program("ssh")
    if ssh is None:
        raise UsageError("there is no ssh here", "Debian: apt install openssh-client")
    carried = {name: value for name, value in environ.items() if _is_carried(name)}
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={SSH_CONNECT_LIMIT}")
    alive = ("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3", "-T")

    def make_commands(orders: TaskOrders) -> list[StartCommand]:
        found = []
        for number, members in zip(orders.numbers, orders.sets, strict=True):
            mine = replace(orders, sets=(members,), numbers=(number,), environment=carried)
            for node in members:
                remote = shlex.join(_task_words(replace(mine, node=node)))
                words = (ssh, *options, *alive, "--", node, remote)
                found.append(StartCommand((node,), words, environ))
        return found

    return Engine("hosts", make_commands)


def _is_carried(name: str) -> bool:
    return name in _CARRIED or name.startswith(_CARRIED_BEGIN)


def make_slurm_engine(environ: Mapping[str, str]) -> Engine:
    """Return the engine for the allocation that we are in. Raises UsageError without srun."""
    srun = find_program("srun")
    if srun is None:
        raise UsageError("there is no srun here", "Name the nodes instead: --hosts n1,n2")
    job = environ["SLURM_JOB_ID"]
    # Variables of the allocation, and of a step that we are in, would be options of this step.
    named = ("SLURM_", "SBATCH_", "SRUN_")
    kept = {n: v for n, v in environ.items() if not n.startswith(named) or n in _KEPT_VARIABLES}

    def make_commands(orders: TaskOrders) -> list[StartCommand]:
        nodes = tuple(chain.from_iterable(orders.sets))
        return [StartCommand(nodes, (srun, *_step_options(job, nodes), *_task_words(orders)), kept)]

    return Engine("slurm", make_commands)


def _step_options(job: str, nodes: Sequence[str]) -> tuple[str, ...]:
    count = len(nodes)
    return (
        *("--overlap", f"--jobid={job}", f"--nodelist={','.join(nodes)}", f"--nodes={count}"),
        *(f"--ntasks={count}", "--ntasks-per-node=1", "--kill-on-bad-exit=0", "--wait=0"),
        *("--unbuffered", "--quiet", "--input=all", "--job-name=hangbisect"),
    )


def make_ray_engine(environ: Mapping[str, str]) -> Engine:
    """Return the engine for the nodes of a Ray cluster, named by their addresses."""

    def make_commands(orders: TaskOrders) -> list[StartCommand]:
        tasks = []
        for number, members in zip(orders.numbers, orders.sets, strict=True):
            mine = replace(orders, sets=(members,), numbers=(number,))
            for node in members:
                words = _task_words(replace(mine, node=node))
                tasks.append(RayTask(f"{number}-{node}", words, node=node))
        nodes = tuple(chain.from_iterable(orders.sets))
        words = make_ray_words(RayOrders(folder=orders.folder))
        return [StartCommand(nodes, words, environ, make_tasks_line(tasks))]

    return Engine("ray", make_commands)


def make_engine(
    name: EngineName,
    environ: Mapping[str, str],
    pods: Sequence[Pod] = (),
    namespace: str | None = None,
) -> Engine:
    """Return the engine with this name; that of Kubernetes has its nodes as pods. Raises UsageError
    where a program of it is not here.
    """
    if name == "kubernetes":
        return make_kubernetes_engine(environ, pods, namespace)
    makers = {"hosts": make_ssh_engine, "slurm": make_slurm_engine, "ray": make_ray_engine}
    return makers[name](environ)


def make_kubernetes_engine(
    environ: Mapping[str, str], pods: Sequence[Pod], namespace: str | None
) -> Engine:
    """Return the engine for nodes of a cluster, on each of which one of these pods runs."""
    by_node = {pod.node: pod for pod in pods}
    carried = {n: value for n, value in environ.items() if n.startswith(_CARRIED_BEGIN)}
    addresses = {pod.node: pod.address for pod in pods}

    def make_commands(orders: TaskOrders) -> list[StartCommand]:
        found = []
        for number, members in zip(orders.numbers, orders.sets, strict=True):
            known = {node: addresses[node] for node in members}
            mine = replace(orders, sets=(members,), numbers=(number,), environment=carried)
            mine = replace(mine, addresses=known, folder="")
            for node in members:
                pod = by_node[node]
                task = ("hangbisect", "node_task", json.dumps(to_json(replace(mine, node=node))))
                box = (f"--container={pod.container}", "--stdin", "--")
                words = (*kubectl_command(namespace), "exec", pod.name, *box, *task)
                found.append(StartCommand((node,), words, environ))
        return found

    return Engine("kubernetes", make_commands)


def _task_words(orders: TaskOrders) -> tuple[str, ...]:
    return (sys.executable, PACKAGE, "node_task", json.dumps(to_json(orders)))


RAY_LIMIT = 60.0  # seconds for Ray to be imported, and to say which nodes it has
_HELP = "hangbisect nodes --hosts n1,n2,n[05-16]"


def read_named_nodes(text: str) -> tuple[str, ...]:
    """Return the nodes in "n[1-3,07],m", in their order.

    Raises UsageError for less than two, a name that stands twice or is none, and a range that is
    wrong or too large.
    """
    return check_nodes(read_host_names(text), "--hosts")


def check_nodes(names: Sequence[str], source: str) -> tuple[str, ...]:
    """Return the names. Raises UsageError for less than two, or one that stands twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise UsageError(f"{source} names {', '.join(twice[:4])} twice", "Name each node once.")
    if len(names) < 2:
        named = f"only {names[0]}" if names else "no node"
        raise UsageError(
            f"{source} names {named}: to tell a bad node from a good one takes two at least, and "
            "three to tell it from a link",
            _HELP,
        )
    return tuple(names)


def read_slurm_nodes(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the nodes of the allocation that we are started in.

    Raises UsageError where there is none, or only one node in it; HangbisectError where scontrol
    does not answer.
    """
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST")
    if not environ.get("SLURM_JOB_ID") or not listed:
        raise UsageError(
            "this is no allocation of Slurm's (no SLURM_JOB_ID), and --hosts names no nodes",
            "Start it in one (salloc --nodes=4 hangbisect nodes), or name nodes: "
            "hangbisect nodes --hosts n1,n2,n3",
        )
    command = ("scontrol", "show", "hostnames", listed)
    printed = asyncio.run(run_program(command, SLURM_LIMIT, "Name the nodes with --hosts."))
    return check_nodes(printed.decode(errors="replace").split(), f"Slurm's {listed}")


def read_ray_nodes() -> tuple[str, ...]:
    """Return the addresses of the nodes of the Ray cluster that RAY_ADDRESS names, or that this
    machine is in.

    Raises UsageError where there are fewer than two, HangbisectError where no Ray answers.
    """
    ended = run_command(make_ray_words(RayOrders(lists_nodes=True)), RAY_LIMIT)
    words = []
    for line in ended.out.splitlines():
        with suppress(ValueError, RecursionError):
            words.append(from_json(RayWord, json.loads(line)))
    refused = next((word.why for word in words if word.ray == "refused"), "")
    if refused or ended.status != 0:
        why = refused or f"no Ray cluster answers within {RAY_LIMIT:.0f} s"
        raise HangbisectError(why, "RAY_ADDRESS names a cluster; `ray status` asks it.")
    return check_nodes([word.node for word in words if word.ray == "node"], "Ray")


def read_pods(selector: str, namespace: str | None) -> tuple[Pod, ...]:
    """Return the running pods with these labels ("app=idle"). Raises as list_pods() does."""
    pods = asyncio.run(list_pods(selector, namespace, "Name the nodes with --hosts."))
    return tuple(pod for pod in pods if not pod.trouble)


def list_pod_nodes(pods: Sequence[Pod], selector: str) -> tuple[str, ...]:
    """Return the nodes that these pods run on. Raises UsageError for less than two, or where two
    pods are on one; HangbisectError where one is not said.
    """
    unplaced = next((pod.name for pod in pods if not (pod.node and pod.address)), None)
    if unplaced is not None:
        raise HangbisectError(f"kubectl does not say where the running pod {unplaced} is")
    return check_nodes([pod.node for pod in pods], f"the pods with {selector!r}")
