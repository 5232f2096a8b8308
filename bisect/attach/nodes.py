"""The other machines of a job: each is asked for its facts, side by side, with a time limit; and
what they told is put together, no rank twice.

A machine is asked by the means that reach it. What does not answer is reported, with the command to
paste there; the others are used.

Slurm: one step beside the job's asks all nodes: a controller takes many steps at once badly ("Job
step creation temporarily disabled, retrying", srun says). `srun --overlap` shares what the job has
(man srun, since 20.11); `--gres=none` takes no GPU from it; `--time` ends a step that nobody waits
for any more. Where the step cannot begin, as one of the nodes is down, each is asked by its own.

ssh: machines that have the same files as this one.

Kubernetes: pods (pods.py).
"""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..base.client_program import SshClient, find_error_line
from ..base.deadline import call_with_limit, run_command
from ..base.errors import HangbisectError, UsageError
from ..base.host_names import read_host_names
from ..base.identity import RankId
from ..base.launchers import DIALECTS
from ..base.lazy_dataclass import dataclass
from ..base.rank_facts import RankFacts, mark_twin
from ..diagnosis.other_nodes import compare_agents, find_node_rendezvous, is_past_its_ranks
from ..diagnosis.process.process_snapshot import merge_looks
from ..evidence.external_tools import find_program
from .node_facts import NodeFacts, make_absent_rank


def merge_nodes(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines without ranks that an earlier one has too: of these a note says so. Of
    agents that wait for one another, each in the place of a rank, the one that serves is kept.
    """
    nodes = _drop_found_ranks(_keep_one_agent(end_ranks_of_agents(nodes)))
    seen: dict[RankId, str] = {}
    return _mark_twins([_drop_double_ranks(node, seen) for node in nodes], nodes)


_OLDER = 2.0  # seconds


def find_strangers(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines of which all that was found is one process without a number, that was
    there before all ranks of the others: these have theirs from who started them. It is of
    something else, as the rank of an earlier job that was left there.
    """
    alone = [one for one in nodes if one.world == 1 and not any(map(_has_number, one.ranks))]
    alone = [one for one in alone if one.ranks and one.launcher is None]
    others = [one for one in nodes if one not in alone]
    ranks = [facts for one in others for facts in one.ranks if facts.pid is not None]
    if not ranks or not all(map(_has_number, ranks)) or any(one.launcher for one in others):
        return []
    # As all began to look at one moment: they have looked for different times since.
    oldest = max(one.age - one.span for one in others)
    return [one for one in alone if one.age - one.span > oldest + _OLDER]


def _has_number(facts: RankFacts) -> bool:
    return any(facts.environment.get(names.rank, "") for names in DIALECTS.values())


def add_ranks_of_idle_hosts(nodes: Sequence[NodeFacts], idle: Sequence[str]) -> list[NodeFacts]:
    """Return the machines with the ranks that are to be on the hosts `idle`, on which nothing of
    the job runs any more, where as many are missing as the launcher counts on each.
    """
    there = [facts for node in nodes for facts in node.ranks]
    sizes = {facts.environment.get("LOCAL_WORLD_SIZE", "") for facts in there if facts.pid}
    size = next(iter(sizes)) if len(sizes) == 1 else ""
    numbers = {facts.rank for facts in there}
    missing = [n for n in range(max(node.world for node in nodes)) if n not in numbers]
    have_ranks = all(isinstance(n, int) for n in numbers) and not any(n.launcher for n in nodes)
    if not idle or not have_ranks or not size.isdecimal() or len(missing) != int(size) * len(idle):
        return [*nodes]
    host = idle[0] if len(idle) == 1 else ""  # of several nothing says which had which
    absent = (make_absent_rank(n, None, None, host) for n in missing)
    return [replace(nodes[0], ranks=(*nodes[0].ranks, *absent)), *nodes[1:]]


def end_ranks_of_agents(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines; where ranks are there yet on one, an agent whose own ranks have ended
    well stands in for none on another. Their numbers are those that are missing, if these are as
    many as such agents have.
    """
    over = [one for one in nodes if one.launcher and all(map(_is_over, one.ranks)) and one.ranks]
    there = [one for one in nodes if one not in over]
    numbers = {facts.rank for one in there for facts in one.ranks if facts.pid is not None}
    if not over or not numbers or any(one.launcher for one in there):
        return [*nodes]
    world = max(one.world for one in there)
    missing = [number for number in range(world) if number not in numbers]
    each, rest = divmod(len(missing), len(over))
    hosts = [one.host if len(over) == 1 else "" for one in over for _ in range(each)]
    ended = () if rest else map(_make_ended_rank, missing, hosts)
    words = f"all ranks of {', '.join(one.host for one in over)} have ended well"
    first = replace(there[0], ranks=(*there[0].ranks, *ended), notes=(*there[0].notes, words))
    return [first, *there[1:]]


def _is_over(facts: RankFacts) -> bool:
    return is_past_its_ranks(facts.looks)


def _make_ended_rank(number: int, host: str) -> RankFacts:
    return make_absent_rank(number, 0, None, host)


def _keep_one_agent(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines; where launchers stand in for ranks, that one has its process alone that
    tells most: one that stands still before it meets the others comes before those that wait.
    """
    waiting = {node.host for node in nodes if any(map(_waits_for_nodes, node.ranks))}
    agents = {
        node.host: node.ranks[0].looks
        for node in nodes
        if node.ranks and (node.launcher is not None or node.host in waiting)
    }
    if len(agents) < 2 or not waiting or not all(agents.values()):
        return [*nodes]
    kept, disagreements = compare_agents(agents)
    return [
        node
        if node.host not in agents
        else replace(node, notes=(*node.notes, *disagreements))
        if node.host == kept
        else replace(node, ranks=())
        for node in nodes
    ]


def _waits_for_nodes(facts: RankFacts) -> bool:
    view = merge_looks(facts.looks)
    return view is not None and find_node_rendezvous(view) is not None


def _drop_found_ranks(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines without the ranks that one misses and another has."""
    there = {facts.rank for node in nodes for facts in node.ranks if facts.pid is not None}
    return [
        replace(
            node, ranks=tuple(r for r in node.ranks if r.pid is not None or r.rank not in there)
        )
        for node in nodes
    ]


def _drop_double_ranks(node: NodeFacts, seen: dict[RankId, str]) -> NodeFacts:
    doubles = sorted({r.rank for r in node.ranks} & seen.keys())
    for facts in node.ranks:
        seen.setdefault(facts.rank, node.host)
    if not doubles:
        return node
    first = doubles[0]
    note = (
        f"rank {first} runs on {seen[first]} and on {node.host}: two jobs, or two starts of one; "
        f"{len(doubles)} ranks of {node.host} were left out"
    )
    return replace(
        node,
        ranks=tuple(r for r in node.ranks if r.rank not in doubles),
        notes=(*node.notes, note),
    )


def _mark_twins(kept: Sequence[NodeFacts], nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the machines with the ranks that are kept; each says which one that was left out has
    its number and is of its job.
    """
    others = {facts.rank: facts for node in reversed(nodes) for facts in node.ranks}
    later = {
        facts.rank: facts
        for node in nodes
        for facts in node.ranks
        if facts is not others[facts.rank]
    }

    def mark(facts: RankFacts) -> RankFacts:
        return mark_twin(facts, later[facts.rank]) if facts.rank in later else facts

    return [replace(node, ranks=tuple(map(mark, node.ranks))) for node in kept]


WINDOW = 64  # clients at once: that many has ClusterShell (its "fanout"), pdsh 32


@dataclass(frozen=True)
class Node:
    """A machine (a pod), and how it is asked."""

    name: str
    ways: tuple[tuple[str, ...], ...]  # commands, the best first: the next where one fails
    paste: str  # what a person can type to see what there is
    said: str = ""  # what its scheduler says of it, where it is not well


@dataclass(frozen=True)
class NodeAnswer:
    """What a machine said. Without facts `trouble` says why, in a sentence."""

    node: Node
    facts: NodeFacts | None = None
    trouble: str = ""
    has_no_job: bool = False  # it was reached, and nothing of a job runs there


@dataclass(frozen=True)
class RemoteJob:
    """A job on other machines."""

    nodes: tuple[Node, ...]
    says: str  # which job it is: "Slurm's job 4711"
    end_it: str  # how to end it
    is_slurms: bool = False  # srun started what its nodes show as the job's command
    together: tuple[str, ...] = ()  # a command that asks all of them at once
    window: int = WINDOW  # clients that run at once
    can_end: bool = True  # --kill reaches its ranks
    absent: tuple[NodeAnswer, ...] = ()  # machines of it on which nothing runs yet, or any more
    command: tuple[str, ...] = ()  # that has started all of it, where somebody knows


# Run as a program it starts us, installed or not.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def answer_command(span: float | None, only: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the words of that command, by our own interpreter and folder."""
    return (sys.executable, PACKAGE, *answer_arguments(span, only))


def answer_arguments(span: float | None, only: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return what follows the program's name: `only` are variables that ranks of the job have."""
    limited = () if span is None else ("--for", f"{span:g}")
    chosen = tuple(f"--in={name}={value}" for name, value in (only or {}).items())
    return ("attach", "--answer", *limited, *chosen)


_SEVERAL_JOBS_STATUS = 2  # exit status of `attach` that asks which job is meant
SEVERAL_JOBS = "several jobs run there: --in NAME=VALUE takes the one whose ranks have that"


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
        ran = await call_with_limit(run_command, (program, *command[1:]), limit, limit=limit + 0.5)
    except (OSError, TimeoutError) as error:
        raise HangbisectError(f"{name} did not answer: {error}") from None
    if ran.status is None:
        raise HangbisectError(f"{name} did not answer within {limit:.0f} s")
    if ran.status:
        raise UsageError(f"{name} says: {find_error_line(ran.err) or f'status {ran.status}'}", help)
    return ran.out


def describe_failure(status: int | None, errors: str) -> str:
    """Return why a client that has ended brought no answer, in a sentence."""
    if status == _SEVERAL_JOBS_STATUS and "hangbisect: " not in errors and "attach" in errors:
        return SEVERAL_JOBS
    if status is None and errors:
        program, _, why = errors.partition(": ")
        return f"{program} could not be started ({why})"
    return (find_error_line(errors) or "it printed no facts") if status else "it printed no facts"


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
    said = await _ask_node_states(job.nodes)
    nodes = tuple(
        replace(slurm_node(name, job.id, span, os.environ, only), said=said.get(name, ""))
        for name in names
    )
    together = slurm_step(names, job.id, span, os.environ, only)
    says, end_it = f"Slurm's job {job.id} ({job.name})", f"scancel {job.id}"
    return RemoteJob(nodes, says, end_it, True, together)


def parse_squeue(printed: str) -> list[SlurmJob]:
    """Return the jobs that squeue printed."""
    rows = [line.strip().split("|", 4) for line in printed.splitlines() if line.strip()]
    return [SlurmJob(*row) for row in rows if len(row) == 5 and row[0].isdecimal()]


async def _ask_node_states(nodes: str) -> dict[str, str]:
    """Return what Slurm says of these nodes, as parse_node_states() does; {} where it says nothing:
    they are asked all the same.
    """
    try:
        return parse_node_states(
            await _ask_slurm(("scontrol", "show", "node", nodes, "--oneliner"))
        )
    except (HangbisectError, UsageError):
        return {}


_NODE = re.compile(r"^NodeName=(\S+) (?:.*? )?State=(\S+)", re.MULTILINE)
_REASON = re.compile(r" Reason=(.{1,200}?) \[[^\]\s]+@[^\]\s]+\]")
_NOT_WELL = re.compile(r"DRAIN|DOWN|FAIL|NOT_RESPONDING|MAINT|REBOOT|POWER|\*")


def parse_node_states(printed: str) -> dict[str, str]:
    """Return in words what `scontrol show node --oneliner` says of the nodes that are not well, as
    one that is drained or does not respond, by their names.
    """
    found = {}
    for line in printed.splitlines():
        node = _NODE.match(line)
        if node is None or not _NOT_WELL.search(node[2]):
            continue
        reason = _REASON.search(line)
        why = f": {reason[1]}" if reason else ", which does not respond" * ("*" in node[2])
        found[node[1]] = f"Slurm says that it is {node[2]}{why}"
    return found


def slurm_node(
    name: str,
    job: str,
    span: float | None,
    environ: Mapping[str, str],
    only: Mapping[str, str] | None = None,
) -> Node:
    """Return a node with a step of its own by which it is asked."""
    typed = f"srun --overlap --jobid={job} --nodelist={name} -N1 -n1 --gres=none --pty"
    way = slurm_step([name], job, span, environ, only)
    return Node(name, (way,), f"{typed} hangbisect attach")


def slurm_step(
    names: Sequence[str],
    job: str,
    span: float | None,
    environ: Mapping[str, str],
    only: Mapping[str, str] | None = None,
) -> tuple[str, ...]:
    """Return the words of a step on these nodes. Variables of a step or an allocation that we stand
    in ourselves would be taken for options of it: they are removed.
    """
    asked = answer_command(span, {**(only or {}), "SLURM_JOB_ID": job})
    ours = [
        n
        for n in sorted(environ)
        if n.startswith(("SLURM_", "SBATCH_", "SRUN_")) and n not in _KEPT_VARIABLES
    ]
    hidden = [word for variable in ours for word in ("-u", variable)]
    step = ("srun", *_step_options(names, job), *asked)
    return ("env", *hidden, *step) if hidden else step


def _step_options(names: Sequence[str], job: str) -> Sequence[str]:
    # Not --unbuffered: what tasks print is passed on by whole lines then.
    count = len(names)
    return (
        *("--overlap", f"--jobid={job}", f"--nodelist={','.join(names)}", f"--nodes={count}"),
        *(f"--ntasks={count}", "--ntasks-per-node=1", "--gres=none", "--input=all"),
        *("--kill-on-bad-exit=0", "--wait=0", "--quiet", "--time=10", "--job-name=hangbisect"),
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
    """Return the hosts in "a,n[1-8]", each once. Raises UsageError for what `read_host_names` does,
    and where there is no ssh.
    """
    names = list(dict.fromkeys(read_host_names(text, with_users=True)))
    if not names:
        raise UsageError("--hosts names no host", "hangbisect attach --hosts node1,n[01-16]")
    if find_program("ssh") is None:
        raise UsageError("there is no ssh here", "On each host: hangbisect attach")
    nodes = tuple(
        Node(name, (ssh_command(name, span, only),), _ssh_command_to_paste(name)) for name in names
    )
    says = f"the job on {', '.join(names[:4])}{' ...' if len(names) > 4 else ''}"
    return RemoteJob(nodes, says, "the same command with --kill")


def ssh_command(
    name: str,
    span: float | None,
    only: Mapping[str, str] | None,
    reached_by: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the words that ask one host, by an ssh with these options. Never a password's prompt:
    nobody would see it.
    """
    remote = shlex.join(answer_command(span, only))
    options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={SSH_CONNECT_LIMIT}", "-T")
    return ("ssh", *options, *reached_by, "--", name, remote)


def find_launched_hosts(
    clients: Sequence[SshClient], own: int, only: Mapping[str, str]
) -> RemoteJob:
    """Return the hosts of a job that these programs of its launcher reach, each by the same way;
    and this one, where a process of the job is `own` here.
    """
    nodes = [
        Node(one.host, (ssh_command(one.host, None, only, one.options),), "") for one in clients
    ]
    if own:
        way = (*answer_command(None), "--pid", str(own))
        nodes.insert(0, Node(socket.gethostname(), (way,), ""))
    return RemoteJob(tuple(nodes), "the job", "")


def _ssh_command_to_paste(name: str) -> str:
    return f"ssh {shlex.quote(name)} hangbisect attach"
