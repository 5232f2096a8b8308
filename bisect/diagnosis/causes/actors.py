"""Ray: a place that is not to be had, an actor that died or does not answer, a silent head.

What is asked for, what there is and who died is in Ray's own logs (evidence/ray_cluster.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ...base.lazy_dataclass import dataclass
from ...base.process_facts import DeadWorker, Look, RayCluster
from ...base.process_roles import find_actor, runs_method
from ..process.actor_waits import (
    find_asked_methods,
    find_blocked_coroutine,
    is_idle_loop,
    is_inside_ray,
    waits_for_ray,
)
from ..process.frames import format_frame, frame_owner
from .known_cause import Found, KnownCause, Scene, also, need, unless
from .signs import frame_in, makes_a_group

_waits_for_group = frame_in(
    r"ray/util/placement_group\.py|(?:vllm|xfuser|lmdeploy)/\S*ray_utils\.py|verl/\S*ray/base\.py",
    r"wait|ready|_wait_until_pg_ready|_call_placement_group_ready|_init_resource_pool|\w*create\w*",
    "A process waits for a placement group of Ray",
)
# client_mode_hook.py and auto_init_hook.py have a frame around each of Ray's calls, ray.init too.
_starts_ray = frame_in(
    r"ray/_private/(?:worker|node|services|state|utils|gcs_utils)\.py|ray/_raylet\S*",
    r"init|connect|__init__|start_\w+|_?wait_\w+|wait_for_\w+|_\w*connect\w*|get_node\w*"
    r"|node_table|internal_kv_\w+|_internal_kv_\w+|check_health|_write_cluster_info_to_kv",
    "A process starts Ray, or asks its head for the cluster (ray.init)",
)


_meets_in_ray_train = frame_in(
    r"ray/train/v2/_internal/execution/(?:context|collective_impl)\.py",
    r"_sync_checkpoint_dir_name_across_ranks|barrier|broadcast_from_rank_zero",
    "A worker of Ray Train waits until every other one has called what it has (ray.train.report)",
)


def _others_wait_elsewhere(scene: Scene) -> Found | None:
    """Other workers wait in a collective for this one: they have not come to that call."""
    own = scene.subject.rank if scene.subject is not None else None
    elsewhere = [one for one in scene.collective_places if one.rank != own]
    if not elsewhere:
        return None
    return Found(f"rank {elsewhere[0].rank} waits in {elsewhere[0].call or 'a collective'}")


def _ray_waits(scene: Scene) -> Found | None:
    """A process waits for an answer of Ray (ray.get, ray.wait)."""
    if scene.view is None:
        return None
    if not waits_for_ray(scene.view.frames):
        return _find_wait_elsewhere(scene)
    asked = ", ".join(find_asked_methods(scene.view.frames)[:_MOST_NAMED])
    words = "it waits in ray.get or ray.wait for an answer of Ray" + (f": {asked}" if asked else "")
    return Found(words, {"place": _find_caller(scene)})


def _find_wait_elsewhere(scene: Scene) -> Found | None:
    """It waits for actors or tasks of Ray in a library of Ray's, or by an event loop."""
    wait, view = scene.verdict.waits_for, scene.view
    if view is None or find_actor(view.look.command):
        return None
    if is_inside_ray(view.frames):
        place = _find_caller(scene)
        return Found(f"it waits in {place} for actors and tasks of Ray", {"place": place})
    names = {one.pid: find_actor(one.command) for one in scene.children}
    if view.look.ray is not None and wait is not None and names.get(wait.pid or 0):
        words = f"it awaits an answer of Ray: {names[wait.pid or 0]}"
        return Found(words, {"place": _find_caller(scene)})
    return None


_MOST_NAMED = 4  # methods and tasks


def _find_caller(scene: Scene) -> str:
    """Return where Ray is asked: the line of the job's own, with what it calls of Ray's."""
    view = scene.view
    own = scene.users_frame(view.frames) if view is not None else None
    return format_frame(own) if own is not None else "ray.get"


def _a_queue_is_full(scene: Scene) -> Found | None:
    """A process waits for room in a queue of Ray's (ray.util.queue)."""
    frame = scene.frame(r"ray/util/queue\.py", "put|put_async")
    return None if frame is None else Found(f"it waits for room in a queue, {format_frame(frame)}")


def _blocks_its_loop(scene: Scene) -> Found | None:
    """A coroutine waits for an answer of Ray by a call that blocks, in the thread of its loop."""
    view = scene.view
    frame = find_blocked_coroutine(view.frames) if view is not None else None
    if frame is None or _ray_waits(scene) is None:
        return None
    words = f"its event loop stands still in {format_frame(frame)}, in a call that blocks"
    return Found(words, {"place": format_frame(frame)})


def _asks_itself(scene: Scene) -> Found | None:
    """An actor is in a method that waits for another one of its own: by the source its class alone
    has such a method, and no other process is of that class.
    """
    actors = {look.pid: look for look in (*scene.children, *_list_rank_looks(scene))}
    wait = scene.verdict.waits_for
    awaited = actors.get(wait.pid or 0) if wait is not None else None
    for look in (awaited, scene.view.look if scene.view is not None else None):
        frames = look.main.frames if look is not None and look.main is not None else ()
        actor = find_actor(look.command) if look is not None and waits_for_ray(frames) else ""
        name = actor.partition(".")[0]
        asked = [one for one in find_asked_methods(frames) if one.partition(".")[0] == name]
        classes = [find_actor(one.command).partition(".")[0] for one in actors.values()]
        if look is None or not runs_method(actor) or not asked or classes.count(name) > 1:
            continue
        own = scene.users_frame(frames)
        where = format_frame(own) if own is not None else actor
        words = f"{actor} ({look.pid}) waits in {where} for {asked[0]}, a call of its own actor"
        return Found(words, {"actor": name, "in": actor, "asked": asked[0], "place": where})
    return None


def _list_rank_looks(scene: Scene) -> list[Look]:
    return [facts.looks[-1] for facts in scene.neighbours if facts.looks]


def _somebody_works(scene: Scene) -> Found | None:
    """An actor of Ray is in a method, and does not wait for Ray itself."""
    for look in scene.children:
        if look.main is not None and waits_for_ray(look.main.frames):
            continue
        if runs_method(actor := find_actor(look.command)):
            return Found(f"{actor} ({look.pid}) is at work")
    return None


def _waits_for_place(scene: Scene) -> Found | None:
    """A process waits for a placement group of Ray; or for an answer, while nobody works on one and
    Ray's log has something that cannot be placed.
    """
    found = _waits_for_group(scene)
    if found is not None:
        return found
    waits = _ray_waits(scene)
    cluster = _find_cluster(scene)
    if waits is None or _somebody_works(scene):
        return None
    told = (cluster is not None and cluster.demands) or _is_told(scene) or _was_lost(scene)
    if not told:
        return None
    below = [one for one in scene.children if one.main is not None and find_actor(one.command)]
    asked = [(one, _name_asked(one)) for one in below]
    named = [
        f"{find_actor(one.command)} ({one.pid}) waits for {what}" for one, what in asked if what
    ]
    if not named:
        return waits
    return Found("; ".join([waits.sentence, *dict.fromkeys(named[:_MOST_NAMED])]), waits.values)


def _name_asked(look: Look) -> str:
    """Return in words what an actor or a task asks Ray for, as its source says, "" for nothing."""
    frames = look.main.frames if look.main is not None else ()
    return ", ".join(find_asked_methods(frames)[:_MOST_NAMED]) if waits_for_ray(frames) else ""


def _head_told(scene: Scene) -> Found | None:
    """Ray says that it does not get an answer of its head, or which one it gets."""
    pattern = (
        r"Failed to (?:get cluster ID from GCS server: [^\n]{1,200}|connect to GCS at address \S+"
        r"[^\n]{0,80})"
    )
    found = scene.wrote(pattern, scene.ranks)
    return None if found is None else Found(f'it wrote "{" ".join(found[1][0].split())}"')


# ---- what is asked for, and what there is --------------------------------------------------------

_BUNDLE = re.compile(r"\{([^}]*)\}(?: \* (\d+))?")
_RESOURCE = re.compile(r"'([^']+)': ([\d.]+)")
_STRATEGY = re.compile(r"\(((?:STRICT_)?(?:PACK|SPREAD))\)")


@dataclass(frozen=True)
class _Bundle:
    """Resources that must be had on one node, and how often they are asked for."""

    resources: Mapping[str, float]
    count: int


def _parse_demand(text: str) -> tuple[list[_Bundle], str]:
    """Return what a line of Ray's status asks for, and the strategy of a placement group, "" of a
    task or an actor.
    """
    bundles = [
        _Bundle({name: float(n) for name, n in _RESOURCE.findall(inside)}, int(times or 1))
        for inside, times in _BUNDLE.findall(text)
    ]
    strategy = _STRATEGY.search(text)
    return bundles, strategy[1] if strategy else ""


def _explain_shortage(text: str, cluster: RayCluster) -> Iterator[str]:
    """Yield in words what is asked for and is not in the cluster, whoever uses it."""
    bundles, strategy = _parse_demand(text)
    everywhere = {name: _parse_amount(all_of) for name, _, all_of in cluster.usage}
    where = f"on node {cluster.node}" if cluster.node and cluster.nodes == 1 else "in the cluster"
    asked: dict[str, float] = {}
    for one in bundles:
        for name, amount in one.resources.items():
            asked[name] = asked.get(name, 0.0) + amount * one.count
    for name, amount in asked.items():
        there = everywhere.get(name, 0.0)
        if there is not None and amount > there:
            yield f"{name}: {amount:g} asked for, {there:g} {where}"
    count = sum(one.count for one in bundles)
    if strategy == "STRICT_SPREAD" and cluster.nodes is not None and count > cluster.nodes:
        nodes = f"{cluster.nodes} node{'s' if cluster.nodes > 1 else ''}"
        yield f"{count} bundles, each on a node of its own (STRICT_SPREAD), and {nodes}"


def _explain_use(text: str, cluster: RayCluster) -> Iterator[str]:
    """Yield in words what is asked for, is there, and is used by others."""
    bundles, _ = _parse_demand(text)
    for name, used, all_of in cluster.usage:
        asked = sum(one.resources.get(name, 0.0) * one.count for one in bundles)
        taken, there = _parse_amount(used), _parse_amount(all_of)
        if asked and taken is not None and there is not None and taken + asked > there >= asked:
            yield f"{name}: {asked:g} asked for, {there:g} there, {taken:g} of them used"


def _parse_amount(text: str) -> float | None:
    """Return a number of things, None for one of bytes."""
    try:
        return float(text)
    except ValueError:
        return None


def _find_cluster(scene: Scene) -> RayCluster | None:
    """Return what Ray's logs say of the cluster, by the first rank that belongs to one."""
    for facts in scene.ranks:
        for look in reversed(facts.looks):
            if look.ray is not None:
                return look.ray
    return None


def _lacks(scene: Scene) -> Found | None:
    """Ray's log asks for more than the cluster has, whoever uses it."""
    cluster = _find_cluster(scene)
    for text in cluster.demands if cluster is not None else ():
        assert cluster is not None
        lack = "; ".join(_explain_shortage(text, cluster))
        if lack:
            return Found(f"Ray has no place for {text}: {lack}", {"lack": lack})
    return None


def _is_used(scene: Scene) -> Found | None:
    """Ray's log asks for what is there, and others use it."""
    cluster = _find_cluster(scene)
    for text in cluster.demands if cluster is not None and not _lacks(scene) else ():
        assert cluster is not None
        use = "; ".join([*_explain_use(text, cluster), *_list_holders(text, cluster, scene)])
        said = f"Ray has no place yet for {text}" + (f": {use}" if use else "")
        return Found(said, {"lack": use or text})
    return None


def _list_holders(text: str, cluster: RayCluster, scene: Scene) -> Iterator[str]:
    """Yield in words who has what is asked for, and what that does now."""
    bundles, _ = _parse_demand(text)
    asked = {name for one in bundles for name, amount in one.resources.items() if amount}
    scarce = {name for name, used, all_of in cluster.usage if used == all_of} & asked
    looks = {one.pid: one for one in scene.children}
    found = [
        f"{one.name} ({one.pid}) has {', '.join(f'{amount:g} {name}' for name, amount in has)} and "
        f"{_tell_what_it_does(looks.get(one.pid))}"
        for one in cluster.holders
        if (has := [pair for pair in one.resources if pair[0] in (scarce or asked)])
    ]
    yield from found[:_MOST_NAMED]
    if len(found) > _MOST_NAMED:
        yield f"and {len(found) - _MOST_NAMED} more"


def _tell_what_it_does(look: Look | None) -> str:
    if look is None or look.main is None:
        return "is not below this driver"
    if is_idle_loop(look.main.frames):
        return "waits for its next call"
    if asked := _name_asked(look):
        return f"waits for {asked}"
    own = next((one for one in look.main.frames if frame_owner(one, "") == "user"), None)
    return f"is in {format_frame(own)}" if own is not None else "is at work"


def _was_lost(scene: Scene) -> Found | None:
    """What a task gave is lost, with its node for example, and Ray has handed it in once more."""
    cluster = _find_cluster(scene)
    lost = [one for one in cluster.retried if one.is_for_lost] if cluster is not None else []
    if not lost:
        return None
    last = lost[-1]
    words = f"what {last.name} gave is lost, and Ray makes it again: it asks for {last.resources}"
    return Found(words, {"lack": f"{last.name} is to be run again, and wants {last.resources}"})


def _is_told(scene: Scene) -> Found | None:
    """Ray says that something cannot be placed."""
    pattern = (
        r"No available node types can fulfill|cannot be scheduled right now|insufficient resources"
        r"|placement group[^\n]{0,60}(?:pending|infeasible)|Waiting for creating a placement group"
    )
    found = scene.wrote(pattern, scene.ranks)
    return None if found is None else Found(f'it was told "{" ".join(found[1][0].split())}"')


# ---- who died ------------------------------------------------------------------------------------


def _format_dead(one: DeadWorker) -> str:
    name = f"actor {one.actor}" if one.actor else "an actor"
    pid = f" (pid {one.pid})" if one.pid else ""
    return f"{name}{pid}"


def _actor_died(scene: Scene) -> Found | None:
    """Ray's log has the end of an actor's process that was not told to end, and somebody waits for
    a rank that is not there, or for an answer of Ray.
    """
    cluster = _find_cluster(scene)
    waits = makes_a_group(scene) or _ray_waits(scene) or scene.verdict.ranks.never_started
    lost = [one for one in cluster.dead if not one.comes_again] if cluster is not None else []
    if cluster is None or not lost or not waits:
        return None
    dead = lost[-1]
    who, how = _format_dead(dead), f"{dead.kind}: {dead.detail}"
    return Found(f"{who} died ({how})", {"who": who, "how": how, "logs": cluster.folder})


CAUSES = (
    KnownCause(
        id="ray-placement",
        title="Ray has no place for what is asked for",
        signs=(
            need(_waits_for_place, 0.65),
            also(_lacks, 0.6, proves=True),
            also(_is_used, 0.4),
            also(_was_lost, 0.4),
            also(_is_told, 0.5),
        ),
        why="The job waits until Ray has what was asked for; while that is taken, or was never "
        "there, it lasts for ever.",
        avoid=(
            "ask for what there is, or start Ray with it (`ray start --num-gpus`, `--num-cpus`)",
            "`ray status` shows what is asked for, what there is, and what is taken",
            "end what is left of earlier jobs (`ray stop`)",
        ),
        references=(
            "ray-project/ray#27287",
            "ray-project/ray#38006",
            "OpenRLHF/OpenRLHF#865",
            "OpenRLHF/OpenRLHF#958",
            "gpustack/gpustack#5509",
        ),
    ),
    KnownCause(
        id="ray-actor-died",
        title="an actor of Ray died, and others wait for it",
        signs=(need(_actor_died, 0.85, proves=True),),
        why="{who} ended while others still wait for it: {how} Ray does not tell them while they "
        "wait in a group of their own.",
        avoid=(
            "{logs} has the output of {who}; `dmesg` says whether memory was short",
            "ray.get on all actors at once, or with a timeout: it raises for one that died",
        ),
        references=("ray-project/ray#3233", "OpenRLHF/OpenRLHF#492"),
    ),
    KnownCause(
        id="ray-loop-blocked",
        title="an async actor of Ray waits for Ray by a call that blocks its event loop",
        signs=(
            need(_blocks_its_loop, 0.8),
            unless(_waits_for_place),
            unless(_actor_died),
        ),
        why="In {place} a coroutine calls ray.get or ray.wait, which blocks: until that returns "
        "the actor answers no other call, and whoever it waits for may wait for one of these.",
        avoid=(
            "`await` the reference in place of ray.get; several of them with asyncio.gather",
            "ray.get(..., timeout=60): an error in place of silence",
        ),
        references=("https://docs.ray.io/en/latest/ray-core/actors/async_api.html",),
    ),
    KnownCause(
        id="ray-train-meets",
        title="a worker of Ray Train calls alone what every worker has to call",
        signs=(need(_meets_in_ray_train, 0.7), also(_others_wait_elsewhere, 0.4)),
        why="ray.train.report, as ray.train.collective, waits until all workers have called it, as "
        "often and in the same order. Some have not: `if rank == 0:` around it, an early end, or a "
        "worker that is stuck before it.",
        avoid=(
            "call ray.train.report on every worker; only the checkpoint may be rank 0's alone",
            "look where the other workers are: one of them may stand still by itself",
        ),
        references=("https://docs.ray.io/en/latest/train/user-guides/checkpoints.html",),
    ),
    KnownCause(
        id="ray-asks-itself",
        title="an actor of Ray waits for a call of its own",
        signs=(need(_asks_itself, 0.8), unless(_actor_died)),
        why="{in} waits in {place} for {asked}, which is a call of the same actor: {actor} does "
        "one at a time, so that one begins when this one ends.",
        avoid=(
            "call the method itself (self.method()) in place of its handle's .remote()",
            "an actor with max_concurrency above 1, or an async one that awaits the reference",
            "ray.get(..., timeout=60): an error in place of silence",
        ),
        references=("https://docs.ray.io/en/latest/ray-core/actors/concurrency_group_api.html",),
    ),
    KnownCause(
        id="ray-task",
        title="an actor or task of Ray does not answer",
        signs=(
            need(_ray_waits, 0.6),
            also(_a_queue_is_full, 0.3),
            unless(_blocks_its_loop),
            unless(_asks_itself),
            unless(_meets_in_ray_train),
            unless(_waits_for_place),
            unless(_actor_died),
        ),
        why="In {place} it waits for a result; the actor that owes it is not started yet, or is "
        "stuck itself: it is another process, often on another node.",
        avoid=(
            "`ray list actors`, `ray list tasks` and `ray stack` show where it stands",
            "the same versions of ray, vllm and torch everywhere",
        ),
        references=("ray-project/ray#3233", "OpenRLHF/OpenRLHF#492", "huggingface/open-r1#617"),
    ),
    KnownCause(
        id="ray-start",
        title="Ray does not come up, or its head does not answer",
        signs=(
            need(_starts_ray, 0.6),
            also(_head_told, 0.5, proves=True),
            unless(_ray_waits),
            unless(_waits_for_place),
        ),
        why="ray.init waits for Ray's own processes (the GCS at the head, this node's raylet), and "
        "they do not answer: not started, not reached through a proxy, of another version, or with "
        "another token.",
        avoid=(
            "`ray status` and /tmp/ray/session_latest/logs (gcs_server.out, raylet.out) say why",
            "no_proxy with the addresses of all nodes: gRPC goes through http_proxy otherwise",
            "end what is left of earlier jobs (`ray stop`); the same version of ray everywhere",
            "InvalidAuthToken: the head's ~/.ray/auth_token everywhere, or RAY_AUTH_MODE=disabled",
        ),
        references=("ray-project/ray#19294", "ray-project/ray#43070", "ray-project/ray#37757"),
    ),
)
