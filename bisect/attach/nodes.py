"""The other machines of a job: each is asked for its facts, side by side, with a time limit.

A machine is asked by the means that reach it. What does not answer is reported, with the command to
paste there; the others are used.

Slurm: each node is asked by a step of its own, beside the job's. `srun --overlap` shares what
the job has (man srun, since 20.11); `--gres=none` takes no GPU from it; `--time` ends a step
that nobody waits for any more.

ssh: machines that have the same files as this one.

Kubernetes: pods, by their labels. A container may seldom trace, and seldom has us in it.
`kubectl debug` adds one beside it that shares its processes (--target) and may (the profile
"general" adds SYS_PTRACE: kubernetes.io, "Debugging Profiles"). Its image must have us in it:
nothing is installed in a container that may trace. Without such an image, or where that is
refused, `kubectl exec` asks in the container.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..base.deadline import Ran, aside, run
from ..base.errors import HangbisectError, UsageError
from ..base.json_codec import Misfit, from_json
from ..base.lazy_dataclass import dataclass
from ..evidence.external_tools import find_program
from .node_facts import NodeFacts


@dataclass(frozen=True)
class Node:
    """A machine (a pod), and how it is asked."""

    name: str
    ways: tuple[tuple[str, ...], ...]  # commands, the best first: the next where one fails
    paste: str  # what a person can type to see what there is


@dataclass(frozen=True)
class NodeAnswer:
    """What a machine said. Without facts `trouble` says why, in a sentence."""

    node: Node
    facts: NodeFacts | None = None
    trouble: str = ""


@dataclass(frozen=True)
class RemoteJob:
    """A job on other machines."""

    nodes: tuple[Node, ...]
    says: str  # which job it is: "Slurm's job 4711"
    end_it: str  # how to end it
    is_slurms: bool = False  # srun started what its nodes show as the job's command


# Run as a program it starts us, installed or not.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def facts_command(span: float | None, only: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the words of that command, by our own interpreter and folder."""
    return (sys.executable, PACKAGE, *facts_arguments(span, only))


def facts_arguments(span: float | None, only: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return what follows the program's name: `only` are variables that ranks of the job have."""
    limited = () if span is None else ("--for", f"{span:g}")
    chosen = tuple(f"--in={name}={value}" for name, value in (only or {}).items())
    return ("attach", "--facts", *limited, *chosen)


_SEVERAL_JOBS_STATUS = 2  # exit status of `attach` that asks which job is meant
_LEAST_TIME = 1.0  # seconds for a way to be worth trying


async def ask_nodes(nodes: Sequence[Node], limit: float) -> list[NodeAnswer]:
    """Return what each machine answers within `limit` seconds, in their order."""
    return list(await asyncio.gather(*(_ask_node(node, limit) for node in nodes)))


async def _ask_node(node: Node, limit: float) -> NodeAnswer:
    end = time.monotonic() + limit
    troubles: list[str] = []
    for command in node.ways:
        left = end - time.monotonic()
        if troubles and left < _LEAST_TIME:
            break
        try:
            ran = await aside(run, command, left, limit=left + 1.5)
        except OSError as error:
            troubles.append(f"{command[0]} could not be started ({error.strerror or error})")
            continue
        except TimeoutError:
            troubles.append(f"no answer within {limit:.0f} s")
            break
        if ran.status is None:
            troubles.append(f"no answer within {limit:.0f} s")
            break
        try:
            return NodeAnswer(node, parse_facts(ran.out))
        except ValueError as error:
            troubles.append(_describe_failure(ran, str(error)))
    return NodeAnswer(node, None, "; ".join(dict.fromkeys(troubles)))


async def run_program(command: Sequence[str], limit: float, instead: str, help: str = "") -> bytes:
    """Return what a program that knows the machines prints.

    Raises UsageError where there is none (`instead`: what to do then), or where it refuses (`help`:
    what to look at); HangbisectError where it does not answer within `limit` seconds.
    """
    name = command[0]
    program = find_program(name)
    if program is None:
        raise UsageError(f"there is no {name} here", instead)
    try:
        ran = await aside(run, (program, *command[1:]), limit, limit=limit + 0.5)
    except (OSError, TimeoutError) as error:
        raise HangbisectError(f"{name} did not answer: {error}") from None
    if ran.status is None:
        raise HangbisectError(f"{name} did not answer within {limit:.0f} s")
    if ran.status:
        raise UsageError(f"{name} says: {find_error_line(ran.err) or f'status {ran.status}'}", help)
    return ran.out


def parse_facts(printed: bytes) -> NodeFacts:
    """Return the facts in what a machine printed: the last line that is an object. Whatever
    carried it may have said something of its own before.

    Raises ValueError if there are none.
    """
    for line in reversed(printed.decode(errors="replace").splitlines()):
        if not line.lstrip().startswith("{"):
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the end of something else
        if isinstance(data, dict) and "ranks" in data:
            try:
                return from_json(NodeFacts, data)
            except Misfit as error:
                told = f"its facts are of another version of hangbisect ({error})"
                raise ValueError(told) from None
    raise ValueError("it printed no facts")


def find_error_line(said: str) -> str:
    """Return the telling line of what a failed program said on stderr: one of our own, else the
    last.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line.removeprefix("hangbisect: ") for line in lines if line.startswith("hangbisect: ")]
    return (own[:1] or lines[-1:] or [""])[0][:300]


def _describe_failure(ran: Ran, fallback: str) -> str:
    if ran.status == _SEVERAL_JOBS_STATUS and "hangbisect: " not in ran.err and "attach" in ran.err:
        return "several jobs run there: --in NAME=VALUE takes the one whose ranks have that"
    return (find_error_line(ran.err) or fallback) if ran.status else fallback


SLURM_LIMIT = 10.0  # seconds for squeue and scontrol
_SQUEUE_FIELDS = "%A|%N|%D|%M|%j"
_KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS")


@dataclass(frozen=True)
class SlurmJob:
    """A running job, as squeue has it."""

    id: str
    nodes: str  # "n[1-3]"
    count: str
    age: str
    name: str


async def find_slurm_job(wanted: str, span: float | None, only: Mapping[str, str]) -> RemoteJob:
    """Return the job `wanted`, the user's only running one if it is ""; of its ranks those that
    have the variables in `only`.

    Raises UsageError where there is none, or several; HangbisectError where Slurm does not answer.
    """
    found = parse_squeue(await _ask_slurm(_squeue_command(wanted)))
    if not found:
        which = f"job {wanted} does not run" if wanted else "no job of yours runs"
        raise UsageError(f"{which} here, says squeue", "squeue --me lists your jobs.")
    if len(found) > 1:
        listed = "\n".join(
            f"  hangbisect attach --slurm {one.id}    {one.name}, {one.nodes}, {one.age}"
            for one in found
        )
        raise UsageError(f"{len(found)} jobs of yours run: which one?", listed)
    job = found[0]
    names = (await _ask_slurm(("scontrol", "show", "hostnames", job.nodes))).split()
    if not names:
        raise HangbisectError(f"job {job.id} has no nodes ({job.nodes!r}), says scontrol")
    nodes = tuple(slurm_node(name, job.id, span, os.environ, only) for name in names)
    return RemoteJob(nodes, f"Slurm's job {job.id} ({job.name})", f"scancel {job.id}", True)


def parse_squeue(printed: str) -> list[SlurmJob]:
    """Return the jobs that squeue printed."""
    rows = [line.strip().split("|", 4) for line in printed.splitlines() if line.strip()]
    return [SlurmJob(*row) for row in rows if len(row) == 5 and row[0].isdecimal()]


def slurm_node(
    name: str,
    job: str,
    span: float | None,
    environ: Mapping[str, str],
    only: Mapping[str, str] | None = None,
) -> Node:
    """Return a node with the step by which it is asked. Variables of a step or an allocation that
    we stand in ourselves would be taken for options of it: they are removed.
    """
    of_it = {**(only or {}), "SLURM_JOB_ID": job, "SLURMD_NODENAME": name}
    step = ("srun", *_step_options(name, job), *facts_command(span, of_it))
    ours = [
        n
        for n in sorted(environ)
        if n.startswith(("SLURM_", "SBATCH_")) and n not in _KEPT_VARIABLES
    ]
    hidden = [word for variable in ours for word in ("-u", variable)]
    command = ("env", *hidden, *step) if hidden else step
    typed = f"srun --overlap --jobid={job} --nodelist={name} -N1 -n1 --gres=none --pty"
    return Node(name, (command,), f"{typed} hangbisect attach")


def _step_options(name: str, job: str) -> Sequence[str]:
    return (
        *("--overlap", f"--jobid={job}", f"--nodelist={name}", "--nodes=1", "--ntasks=1"),
        *("--gres=none", "--input=none", "--unbuffered", "--quiet", "--time=2"),
        "--job-name=hangbisect",
    )


def _squeue_command(wanted: str) -> tuple[str, ...]:
    whose = (f"--jobs={wanted}",) if wanted else ("--me",)
    return ("squeue", *whose, "--noheader", "--states=RUNNING", f"--format={_SQUEUE_FIELDS}")


async def _ask_slurm(command: Sequence[str]) -> str:
    """Return what a program of Slurm's prints."""
    elsewhere = "Run this where squeue works: a login node. On the job's node: hangbisect attach"
    printed = await run_program(command, SLURM_LIMIT, elsewhere, "squeue --me lists your jobs.")
    return printed.decode(errors="replace")


SSH_CONNECT_LIMIT = 10  # seconds until a host that does not answer is given up


def find_ssh_hosts(
    text: str, span: float | None, only: Mapping[str, str] | None = None
) -> RemoteJob:
    """Return the hosts in "a,b". Raises UsageError for none, and where there is no ssh."""
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    wrong = [name for name in names if name.startswith("-") or len(name.split()) > 1]
    if not names or wrong:
        raise UsageError(
            f"--hosts cannot be {text!r}: it is names, separated by commas",
            "hangbisect attach --hosts node1,node2",
        )
    if find_program("ssh") is None:
        raise UsageError("there is no ssh here", "On each host: hangbisect attach")
    nodes = tuple(
        Node(name, (ssh_command(name, span, only),), _ssh_command_to_paste(name)) for name in names
    )
    says = f"the job on {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}"
    return RemoteJob(nodes, says, "on each host, hangbisect attach PID --kill")


def ssh_command(name: str, span: float | None, only: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return the words that ask one host. Never a password's prompt: nobody would see it."""
    remote = shlex.join(facts_command(span, only))
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={SSH_CONNECT_LIMIT}", "-T")
    return ("ssh", *options, name, remote)


def _ssh_command_to_paste(name: str) -> str:
    return f"ssh {shlex.quote(name)} hangbisect attach"


KUBECTL_LIMIT = 15.0  # seconds for the list of pods
DEBUG_PROFILE = "general"
IMAGE_VARIABLE = "HANGBISECT_IMAGE"
_DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


async def find_pods(
    selector: str,
    namespace: str | None,
    span: float | None,
    only: Mapping[str, str] | None = None,
) -> RemoteJob:
    """Return the running pods that `selector` ("app=train") names.

    Raises UsageError where there is none, or no kubectl; HangbisectError where it does not answer.
    """
    listing = (
        *_kubectl_command(namespace),
        "get",
        "pods",
        f"--selector={selector}",
        "--output=json",
    )
    found = parse_pods(await run_program(listing, KUBECTL_LIMIT, "In the pod: hangbisect attach"))
    if not found:
        raise UsageError(
            f"no pod runs with the labels {selector!r}",
            f"kubectl get pods --selector={shlex.quote(selector)} shows what there is.",
        )
    image = os.environ.get(IMAGE_VARIABLE)
    asked = ("hangbisect", *facts_arguments(span, only))
    nodes = tuple(pod_node(name, box, namespace, asked, image) for name, box in found.items())
    return RemoteJob(
        nodes, f"the job in {len(nodes)} pods", f"kubectl delete pod {' '.join(found)}"
    )


def parse_pods(printed: bytes) -> dict[str, str]:
    """Return the running pods in `kubectl get pods --output=json`, each with the container that it
    is about: the one that an annotation names, else the first.
    """
    try:
        items: Sequence[Any] = json.loads(printed)["items"]
        return {
            str(item["metadata"]["name"]): _container_of(item)
            for item in items
            if item.get("status", {}).get("phase") == "Running"
        }
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise HangbisectError(f"kubectl printed no list of pods: {error!r}") from None


def _container_of(item: Mapping[str, Any]) -> str:
    annotations = item["metadata"].get("annotations") or {}
    return str(annotations.get(_DEFAULT_CONTAINER) or item["spec"]["containers"][0]["name"])


def pod_node(
    name: str, container: str, namespace: str | None, asked: Sequence[str], image: str | None
) -> Node:
    """Return a pod with the ways to ask it, by the command `asked`. `image` is one that has us in
    it; without, it is only asked inside.
    """
    base = _kubectl_command(namespace)
    execute = (*base, "exec", name, f"--container={container}", "--", *asked)
    beside = (f"--image={image or 'IMAGE'}", f"--target={container}", f"--profile={DEBUG_PROFILE}")
    debug = (*base, "debug", name, *beside)
    paste = shlex.join((*debug, "-it", "--", "hangbisect", "attach"))
    if image is None:
        return Node(name, (execute,), f"{paste}    IMAGE: one that has hangbisect")
    return Node(name, ((*debug, "--stdin", "--quiet", "--", *asked), execute), paste)


def _kubectl_command(namespace: str | None) -> tuple[str, ...]:
    return ("kubectl", *((f"--namespace={namespace}",) if namespace else ()))
