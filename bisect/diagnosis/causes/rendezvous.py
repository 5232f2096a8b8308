"""Where ranks meet: the store, its address, and who counts as whom."""

from __future__ import annotations

import re
from collections import Counter

from ...base.addresses import host_of, is_loopback, port_of
from ...base.client_program import read_ssh_client
from ...base.rank_facts import RankFacts
from ...base.words import format_ranks, format_seconds
from ..disagreements import find_unshared_file
from ..other_nodes import (
    AGENT_LOST,
    NodeRendezvous,
    describe_absent_hosts,
    find_node_rendezvous,
    is_past_its_ranks,
)
from ..process.blocked_syscalls import hears_other_hosts
from ..rendezvous_claims import number
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .network import no_answer_from_the_master
from .signs import makes_a_group, meets_its_peers

_JOINED = re.compile(
    r"world_size=(?P<world>\d+), (?:num_workers_joined|worker_count)=(?P<joined>\d+)"
)
_MOST_NAMED = 4  # hosts
_CODE_OF_TORCH = re.compile(r"/libtorch[^/]*\.so")


# ---- signs ---------------------------------------------------------------------------------------


def _same_rank_twice(scene: Scene) -> Found | None:
    """Two processes make the group with the same rank."""
    if (one := next((r for r in scene.living if r.twin is not None), None)) is not None:
        pids = f"{one.twin} and {one.pid}"
        if one.twin_host:
            pids = f"{one.pid} on {one.host} and {one.twin} on {one.twin_host}"
            return Found(f"processes {pids} both say that they are rank {one.rank}")
        return Found(f"processes {pids} on {one.host} both say that they are rank {one.rank}")
    counted = Counter(n for r in scene.living if (n := _rank_it_claims(scene, r)) is not None)
    twice = next((n for n, times in counted.items() if times > 1), None)
    if twice is None:
        return None
    return Found(f"{counted[twice]} processes say that they are rank {twice}")


def _rank_it_claims(scene: Scene, facts: RankFacts) -> int | None:
    """Return the rank with which a process makes its group; what it was told by a variable counts
    only where its frames do not say.
    """
    inside = scene.group_values.get(facts.rank, {}).get("rank")
    return number(facts.environment.get("RANK", "")) if inside is None else inside


def _too_many_joined(scene: Scene) -> Found | None:
    """Torch counts more joins than the world has ranks."""
    for facts in scene.ranks:
        for text in (facts.error, *facts.output, facts.last_line):
            match = _JOINED.search(text)
            if match is not None and int(match["joined"]) > int(match["world"]):
                joined, world = match["joined"], match["world"]
                return Found(
                    f"torch counted {joined} joins of a world of {world}",
                    {"joined": joined, "world": world},
                )
    return None


def masters_differ(scene: Scene) -> Found | None:
    """MASTER_ADDR or MASTER_PORT, or the file in init_method, differs between ranks."""
    told = scene.disagreement
    if told is not None and told.about == "meeting":
        return Found(told.sentence, {"name": "init_method"})
    for name in ("MASTER_PORT", "MASTER_ADDR"):
        values = {r.rank: v for r in scene.living if (v := _master(scene, r, name))}
        addresses = {_same_name(v) if name == "MASTER_ADDR" else v for v in values.values()}
        if len(addresses) > 1:
            first, other = list(dict.fromkeys(values.values()))[:2]
            ranks = {v: next(r for r in values if values[r] == v) for v in (first, other)}
            return Found(
                f"{name} is {first} on rank {ranks[first]} and {other} on rank {ranks[other]}",
                {"name": name},
            )
    return None


def worlds_differ(scene: Scene) -> Found | None:
    """Ranks make the group of all for different numbers of ranks, as torch's frames say."""
    told = scene.disagreement
    if told is None or told.about != "world":
        return None
    return Found(told.sentence, {"sentence": told.sentence})


def _master(scene: Scene, facts: RankFacts, name: str) -> str:
    """Return where a rank looks for the store, "" if it is told neither by a variable nor by the
    frames in which it does so: a script may pass an address of its own (init_method, store).
    """
    view = scene.views.get(facts.rank)
    values = dict(pair for frame in view.frames if view for pair in frame.locals) if view else {}
    if values.get("init_method", "").strip("'\"").startswith(("tcp://", "file://")):
        return ""
    local = {"MASTER_PORT": "master_port", "MASTER_ADDR": "master_addr"}[name]
    return values.get(local, "").strip("'\"") or facts.environment.get(name, "")


def _same_name(address: str) -> str:
    return "localhost" if is_loopback(address) else address


def _counts_on_other_nodes(scene: Scene) -> Found | None:
    """It can only wait for ranks of another node, where the first group is made: whoever is in a
    collective, or had a group before, has met them.
    """
    subject = scene.subject
    known = subject is not None and subject.rank in scene.situations
    if subject is None or not known or not scene.situations[subject.rank].waits_for_unseen:
        return None
    meets = scene.group == "construction" or _hears_who_comes(scene, subject)
    if scene.job.unstarted or not meets or _had_a_group(scene):
        return None
    here, world = len(scene.job.local_ranks), scene.job.world_size
    hosts = {facts.host for facts in scene.ranks}
    those = "this node" if len(hosts) < 2 else f"{len(hosts)} nodes"
    absent = describe_absent_hosts(scene.job.absent_hosts)
    which = f"; {absent}" if absent else ""
    return Found(f"all {here} ranks of {those} are there, of {world} in the job{which}")


def _hears_who_comes(scene: Scene, subject: RankFacts) -> bool:
    """Return whether the subject waits for anybody to connect, in a protocol of the job's own."""
    view, own = scene.view, scene.situations[subject.rank].own_wait
    return view is not None and own is not None and hears_other_hosts(own, view.call)


def _had_a_group(scene: Scene) -> bool:
    """Return whether a rank did a collective before, or makes a further group."""
    further = scene.inside(r"distributed_c10d", r"new_group|split_group|new_subgroups\w*")
    return further is not None or any(
        operation.done for r in scene.ranks for log in r.collectives for operation in log.operations
    )


def finds_no_shared_file(scene: Scene) -> Found | None:
    """Ranks of several machines have all come to one file:// store, and find none of the others."""
    file = find_unshared_file(scene.ranks, scene.views)
    if not file:
        return None
    hosts = sorted({facts.host for facts in scene.ranks})
    named = ", ".join(hosts[:_MOST_NAMED]) + (" ..." if len(hosts) > _MOST_NAMED else "")
    sentence = f"all {len(scene.ranks)} ranks, on {named}, wait for the others at {file}"
    return Found(sentence, {"file": file, "folder": file.rpartition("/")[0] or "/"})


def _its_hosts_do_not_answer(scene: Scene) -> Found | None:
    """No rank has started, and hosts do not answer to which an ssh of the launcher's still is."""
    looks = [looks[-1] for r in scene.ranks for looks in (r.looks, *r.children) if looks]
    reached = {one.host for look in looks if (one := read_ssh_client(look.command))}
    told_of = scene.job.silent_hosts
    silent = {host: told_of[host] for host in told_of if host in reached}
    if not silent:
        return None
    named = [*silent][:_MOST_NAMED]
    more = f" and {len(silent) - len(named)} more" if len(silent) > len(named) else ""
    told = "; ".join(f"{host}: {silent[host]}" for host in named)
    return Found(f"{told}{more}", {"hosts": f"{', '.join(named)}{more}", "host": named[0]})


def _a_node_is_lost(scene: Scene) -> Found | None:
    """A node that was heard is heard no more, or the network does not reach it, and no rank that is
    seen is to blame.
    """
    lost = next(iter(scene.job.lost_nodes), None)
    if lost is None or scene.verdict.ranks.culprit or not scene.living:
        return None
    word = f", its last word: {lost.last_word}" if lost.last_word else ""
    ranks = f" ({format_ranks(lost.ranks)})" if lost.ranks else ""
    if lost.silent is None:
        return Found(f"{lost.host}{ranks} is not seen{word}", {"host": lost.host})
    silent = format_seconds(lost.silent)
    return Found(f"{lost.host}{ranks} has not been heard for {silent}{word}", {"host": lost.host})


def _master_is_this_machine(scene: Scene) -> Found | None:
    """MASTER_ADDR is an address that means another machine on each node."""
    address = scene.environment.get("MASTER_ADDR", "")
    return Found(f"MASTER_ADDR={address}", {"address": address}) if is_loopback(address) else None


def _store_of_a_stranger(scene: Scene) -> Found | None:
    """Something that is not of the job answers at MASTER_PORT."""
    port = scene.environment.get("MASTER_PORT", "")
    known = scene.job_pids | {look.ppid for r in scene.neighbours for look in r.looks[-1:]}
    for socket in scene.view.look.sockets if scene.view and port else ():
        if port_of(socket.peer) != port or socket.state != "ESTABLISHED" or not socket.peer_pids:
            continue
        names = [n for n in socket.peer_names if not n.startswith(("python", "torchrun", "pt_"))]
        if names and not set(socket.peer_pids) & known:
            return Found(
                f"{socket.peer} is served by {names[0]} ({socket.peer_pids[0]})",
                {"stranger": names[0], "port": port},
            )
    return None


def _store_says_nothing(scene: Scene) -> Found | None:
    """Torch's own code asks a server that is not of the job, and not a byte has come: a store
    answers a new client at once (TCPStore.cpp, ping).
    """
    view, socket = scene.view, scene.blocking
    call = view.call if view is not None else None
    if socket is None or call is None or not _CODE_OF_TORCH.search(call.caller or ""):
        return None
    is_unheard = socket.state == "ESTABLISHED" and socket.received == 0
    port = port_of(socket.peer)
    ours = (
        s
        for r in scene.living
        for look in r.looks[-1:]
        for s in look.sockets
        if s.state == "LISTEN"
    )
    if not is_unheard or any(port_of(s.local) == port for s in ours):
        return None
    if len(scene.living) < scene.job.world_size:
        return None  # one that is not seen may serve it
    return Found(
        f"it asks {socket.peer} for the store, and got no byte in answer",
        {"stranger": f"something at {socket.peer}", "port": port},
        doubtful=True,
    )


def _no_store_answers(scene: Scene) -> Found | None:
    """What a rank takes for the store is something else."""
    stranger = _store_of_a_stranger(scene) if makes_a_group(scene) is not None else None
    return stranger or _store_says_nothing(scene)


def _nodes_have_not_come(scene: Scene) -> Found | None:
    """The agent that starts the ranks of this node waits for those of other nodes."""
    meeting = _find_rendezvous(scene)
    if meeting is None or not meeting.answers:
        return None
    own = is_loopback(host_of(meeting.place)) and meeting.others is not None
    words = f"{meeting}; {host_of(meeting.place)} is each machine itself" if own else str(meeting)
    return Found(words, {"meeting": words})


def _rendezvous_does_not_answer(scene: Scene) -> Found | None:
    """The agent that starts the ranks of this node has no connection to where the agents meet."""
    meeting = _find_rendezvous(scene)
    if meeting is None or meeting.answers:
        return None
    return Found(str(meeting), {"place": meeting.place})


def waits_for_agents_at_the_end(scene: Scene) -> Found | None:
    """The agent's own ranks have ended well, and it waits until those of other nodes have."""
    if scene.view is None or not is_past_its_ranks([scene.view.look]):
        return None
    told = ("nothing of the job runs on", AGENT_LOST)
    said = [one for one in scene.job.notes if any(words in one for words in told)]
    where = said[0] if said else "which node's agent has not come is not seen from here"
    return Found(f"its ranks have ended well; {where}", {"where": where})


def _find_rendezvous(scene: Scene) -> NodeRendezvous | None:
    return find_node_rendezvous(scene.view) if scene.view is not None else None


# ---- causes --------------------------------------------------------------------------------------

_PL = "Lightning-AI/pytorch-lightning"

CAUSES = (
    KnownCause(
        id="duplicate-rank",
        title="two processes have the same rank",
        signs=(need(_same_rank_twice, 0.8), need(makes_a_group, 0.4)),
        why="The group counts ranks. Two processes with the same one are counted as one, and the "
        "rank that is missing never comes.",
        avoid=(
            "rank = node * processes a node + local rank: a local rank is there once a node",
            "srun with --ntasks-per-node equal to the number of devices, so that only one of srun "
            "and Lightning starts processes",
            "a different --node-rank on each node",
        ),
        references=("pytorch/pytorch#23074", f"{_PL}#4389", "NVIDIA/nvidia-resiliency-ext#142"),
    ),
    KnownCause(
        id="more-joins-than-world",
        title="more processes joined the store than the world has ranks",
        signs=(need(_too_many_joined, 0.75),),
        why="{joined} joins were counted for a world of {world}: a second job, or an earlier "
        "attempt of this one, uses the same store.",
        avoid=(
            "another MASTER_PORT for each job; torchrun --standalone finds a free one",
            "end what is left of an earlier attempt",
        ),
        references=("huggingface/accelerate#157",),
        outcomes=("hang", "interrupted", "crash"),
    ),
    KnownCause(
        id="different-master",
        title="ranks look for the store at different addresses",
        signs=(
            need(masters_differ, 0.75),
            need(makes_a_group, 0.5),
            unless(no_answer_from_the_master),
        ),
        why="{name} is not the same on all ranks: they wait for one another in different places.",
        avoid=(
            "choose the port once, before the ranks are started, and give it to all",
            "let torchrun set MASTER_ADDR and MASTER_PORT",
            "a path of a file:// store is made once, before a rank changes its folder",
        ),
        references=("pytorch/pytorch#53395",),
    ),
    KnownCause(
        id="different-world",
        title="ranks make the process group for different numbers of ranks",
        signs=(need(worlds_differ, 0.8), also(makes_a_group, 0.2)),
        why="{sentence}: who counts on more waits for ranks that nobody starts, and who counts on "
        "fewer is through before the others have come.",
        avoid=(
            "let no file of settings or profile set WORLD_SIZE: the launcher does",
            "print(os.environ['WORLD_SIZE']) on each rank before init_process_group",
        ),
        references=("pytorch/pytorch#52848",),
    ),
    KnownCause(
        id="store-file-not-shared",
        title="each machine has a file of its own where the ranks are to meet",
        signs=(need(finds_no_shared_file, 0.8),),
        why="The ranks meet by {file}, which is on a disk of each machine: what one writes into it "
        "the others never read.",
        avoid=(
            "a file on a disk that all nodes share: findmnt -T {folder}, on each of them",
            "init_method='env://', with MASTER_ADDR and MASTER_PORT: nothing has to be shared",
        ),
        references=("diux-dev/cluster#12", "pytorch/pytorch#48704"),
    ),
    KnownCause(
        id="master-is-loopback",
        title="every node is its own master: MASTER_ADDR is the machine itself",
        signs=(
            need(_counts_on_other_nodes, 0.5),
            need(_master_is_this_machine, 0.55),
            also(meets_its_peers, 0.1),
        ),
        why="MASTER_ADDR={address} means another machine on each node: each waits for the others "
        "at its own store.",
        avoid=("MASTER_ADDR=<a name or address of node 0 that the others reach>",),
        references=("mlc-ai/pith-train#91",),
    ),
    KnownCause(
        id="node-lost",
        title="a node of the job is gone, or cannot be reached any more",
        signs=(need(_a_node_is_lost, 0.8),),
        why="{host} does not answer, or no more: its ranks are gone with it, or the network "
        "between it and the others is cut. Those that are seen wait for ranks that are not.",
        avoid=(
            "look at {host}: is it up, is it reached from the others (ping), what does dmesg say?",
            "leave it out of the next start (srun --exclude, a cordon)",
        ),
        references=("pytorch/pytorch#111646",),
    ),
    KnownCause(
        id="host-starts-nobody",
        title="the launcher waits for a host on which it can start nothing",
        signs=(need(_its_hosts_do_not_answer, 0.8),),
        why="The launcher starts its ranks by ssh on each host, and {hosts} did not answer us that "
        "way either. mpirun starts no rank anywhere before it has heard its daemon on each host; a "
        "loop of ssh has started the others alone.",
        avoid=(
            "ssh {host} true: does it end? ssh -v {host} true says how far it comes",
            "on {host}: what a shell reads when it starts (~/.bashrc), whether the home answers",
            "leave {host} out of the next start",
        ),
        references=("open-mpi/ompi#6850", "open-mpi/ompi#9115"),
    ),
    KnownCause(
        id="other-node-missing",
        title="the ranks of another node have not come",
        signs=(need(_counts_on_other_nodes, 0.6),),
        why="All ranks that are seen are there and wait for those of another node.",
        avoid=(
            "look at the other node's output: did its launcher start, can it reach this node?",
            "the same --nnodes and rendezvous address, and a different --node-rank, on every node",
        ),
        references=("facebookresearch/fairseq#4082", "pytorch/pytorch#52848"),
    ),
    KnownCause(
        id="nodes-not-joined",
        title="other nodes have not come to torchrun's rendezvous",
        signs=(need(_nodes_have_not_come, 0.7),),
        why="No rank is started before all nodes have come: {meeting}.",
        avoid=(
            "start the same command on the other nodes, and look at what it says there; one that "
            "boots or pulls an image comes later",
            "the same --rdzv-id, --rdzv-endpoint and --nnodes on each node, and another "
            "--node-rank on each where there is one",
            "torchrun waits for 600 s; for longer: --rdzv-conf join_timeout=SECONDS",
        ),
        references=("pytorch/pytorch#75213", "ymcui/Chinese-LLaMA-Alpaca-2#274"),
    ),
    KnownCause(
        id="agent-missing-at-end",
        title="torchrun's agents wait for one another at the end, and one is not there any more",
        signs=(need(waits_for_agents_at_the_end, 0.75),),
        why="All ranks of this node have ended well, and its agent waits until the agent of each "
        "other node says so too; {where}.",
        avoid=(
            "look at the launcher's output there: was it killed (memory, a time limit), while its "
            "ranks went on?",
            "what the ranks were to write is written: the agents give up after 300 s, and this one "
            "may be ended",
        ),
        references=("pytorch/pytorch#157318", "pytorch/pytorch#69520"),
    ),
    KnownCause(
        id="rendezvous-unreachable",
        title="where the nodes meet nobody answers",
        signs=(need(_rendezvous_does_not_answer, 0.75),),
        why="The agent of this node has no connection to {place}: the node that serves the store "
        "is not there yet, has another port, or a firewall is between.",
        avoid=(
            "start node 0 too, the host of --rdzv-endpoint or --master-addr",
            "from here: nc -vz HOST PORT",
            "the name of that host means the same machine on each node: getent hosts NAME",
        ),
        references=("pytorch/pytorch#67547",),
    ),
    KnownCause(
        id="foreign-store",
        title="another program answers where ranks look for the store",
        signs=(need(_no_store_answers, 0.7), also(makes_a_group, 0.3)),
        why="{stranger} listens at port {port}, which the ranks take for torch's store; it does "
        "not speak its language and never answers.",
        avoid=("another MASTER_PORT; torchrun --standalone finds a free one",),
        references=("huggingface/accelerate#157",),
    ),
)
