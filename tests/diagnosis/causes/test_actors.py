"""Ray: what it has no place for, who died, who does not answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import (
    DeadWorker,
    Look,
    RayCluster,
    ResourceHolder,
    RetriedTask,
)
from hangbisect.base.rank_facts import RankFacts
from hangbisect.diagnosis.process.blocking_reason import (
    ProcessContext,
    find_blocking_reason_of_child,
)
from hangbisect.diagnosis.process.process_snapshot import build_process_table

from ..made_up import ALL_REDUCE, job, look, rank
from .scenes import MAKES_STORE, Facts, Shows, causes_of, scene_of
from .seen import beside


def one(*frames: str, **more: Any) -> Facts:
    return job(world=1), [rank(0, look(*frames, "<module> train.py:9", call="futex"), **more)]


def ray_placement() -> Facts:
    return one(
        "get_objects SP/ray/_private/worker.py:900",
        "wait SP/ray/_private/worker.py:3000",
        "_wait_until_pg_ready SP/vllm/executor/ray_utils.py:201",
        output=("Error: No available node types can fulfill resource request {'GPU': 8.0}",),
    )


GET = (
    "Worker.get_objects SP/ray/_private/worker.py:1007",
    "get SP/ray/_private/worker.py:3009",
    "wrapper SP/ray/_private/client_mode_hook.py:134",
    "auto_init_wrapper SP/ray/_private/auto_init_hook.py:22",
)
TWO_GPUS = "{'GPU': 1.0, 'CPU': 1.0} * 2 (PACK): 1+ pending placement groups"
CLUSTER = RayCluster(
    folder="/tmp/ray/session_1/logs",
    nodes=1,
    usage=(("CPU", "0.0", "4.0"), ("GPU", "0.0", "1.0"), ("memory", "0B", "13.78GiB")),
    node="192.0.2.2",
)
DEAD = DeadWorker("94e8", "SYSTEM_ERROR", "Worker unexpectedly exits.", 13087, "Trainer")


def in_cluster(facts: Facts, cluster: RayCluster, *children: Look) -> Facts:
    """Return `facts` with what Ray's logs say, and with workers below its rank 0."""
    about, (first, *others) = facts
    looks = tuple(replace(one, ray=cluster) for one in first.looks)
    below = tuple((one,) for one in children)
    return about, [replace(first, looks=looks, children=below), *others]


def actor(title: str, *frames: str, pid: int = 400) -> Look:
    return replace(look(*frames, call="futex"), pid=pid, ppid=1, command=(title,))


def ray_actor_died() -> Facts:
    lacking: tuple[Any, ...] = (
        job(world=2),
        [rank(0, look(*MAKES_STORE, call="poll")), RankFacts(1, never_started=True)],
    )
    return in_cluster((lacking[0], lacking[1]), replace(CLUSTER, dead=(DEAD,)))


def ray_task() -> Facts:
    return one(
        "get_objects SP/ray/_private/worker.py:900",
        "get SP/ray/_private/worker.py:2753",
        "auto_init_wrapper SP/ray/_private/client_mode_hook.py:103",
    )


def ray_loop_blocked() -> Facts:
    return one(
        "get_objects SP/ray/_private/worker.py:900",
        "get SP/ray/_private/worker.py:2753",
        "Server.launch serve.py:44",
        "Handle._run STD/asyncio/events.py:80",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1922",
    )


def ray_start() -> Facts:
    return one(
        "GlobalState._connect_and_get_accessor SP/ray/_private/state.py:60",
        "init SP/ray/_private/worker.py:1700",
    )


def asks(one: Look, *methods: str) -> Look:
    """The same actor, whose own line waits for these methods, as the source says."""
    assert one.main is not None
    own = next(frame for frame in one.main.frames if "train.py" in frame.file)
    frames = tuple(replace(f, asks=methods) if f is own else f for f in one.main.frames)
    return replace(one, threads=(replace(one.main, frames=frames), *one.threads[1:]))


PLAYS = asks(actor("ray::Player.play", *GET, "Player.play train.py:43", pid=300), "Buffer.add")
EVICTS = actor("ray::Buffer.add", *GET, "current_size train.py:12", "Buffer.add train.py:29")


def driver(*children: Look) -> Facts:
    about, (first,) = in_cluster(one(*GET, "main train.py:52"), CLUSTER, *children)
    return about, [replace(first, looks=tuple(asks(x, "Player.play") for x in first.looks))]


def ray_asks_itself() -> Facts:
    return driver(PLAYS, asks(EVICTS, "Buffer.size"))


REPORTS = look(
    *GET,
    "TrainContext._sync_checkpoint_dir_name_across_ranks "
    "SP/ray/train/v2/_internal/execution/context.py:254",
    "TrainContext.report SP/ray/train/v2/_internal/execution/context.py:474",
    "train_loop train.py:26",
    call="futex",
)


def ray_train_meets() -> Facts:
    return job(world=2), [rank(0, REPORTS, environment={}), rank(1, ALL_REDUCE, environment={})]


SHOWS: Shows = {
    "ray-train-meets": ray_train_meets,
    "ray-asks-itself": ray_asks_itself,
    "ray-placement": ray_placement,
    "ray-actor-died": ray_actor_died,
    "ray-loop-blocked": ray_loop_blocked,
    "ray-task": ray_task,
    "ray-start": ray_start,
}


def lacks(demand: str, **more: Any) -> str:
    """Return what the cause says of a driver in ray.get while Ray's log has this demand."""
    cluster = replace(CLUSTER, demands=(demand,), **more)
    cause = causes_of(in_cluster(one(*GET), cluster))["ray-placement"]
    assert cause.level == "seen"
    return "; ".join(cause.matched)


def test_a_placement_says_which_resource_is_lacking_and_on_which_node() -> None:
    said = lacks(TWO_GPUS)
    assert "GPU: 2 asked for, 1 on node 192.0.2.2" in said
    assert "CPU:" not in said


def test_of_several_nodes_what_there_is_is_that_of_the_cluster() -> None:
    said = lacks("{'TPU': 4.0}: 1+ pending tasks/actors", nodes=3)
    assert "TPU: 4 asked for, 0 in the cluster" in said


def test_bundles_that_want_a_node_each_say_how_many_nodes_there_are() -> None:
    said = lacks("{'CPU': 1.0} * 2 (STRICT_SPREAD): 1+ pending placement groups")
    assert "2 bundles, each on a node of its own (STRICT_SPREAD), and 1 node" in said


def test_what_is_there_and_used_by_others_is_no_lack() -> None:
    used = (("CPU", "4.0", "4.0"),)
    cluster = replace(CLUSTER, usage=used, demands=("{'CPU': 2.0}: 1+ pending tasks/actors",))
    cause = causes_of(in_cluster(one(*GET), cluster))["ray-placement"]
    assert cause.level == "fits"
    assert "CPU: 2 asked for, 4 there, 4 of them used" in "; ".join(cause.matched)


def test_a_driver_waits_for_the_actor_that_is_in_a_method_and_not_for_a_place() -> None:
    reads = actor("ray::Reader.read", "Reader.read train.py:14")
    idle = actor("ray::Idle", "Worker.main_loop SP/ray/_private/worker.py:1069", pid=300)
    facts = in_cluster(one(*GET), replace(CLUSTER, demands=(TWO_GPUS,)), idle, reads)
    assert "ray-placement" not in causes_of(facts)
    wait = scene_of(facts).verdict.waits_for
    assert wait is not None
    assert (wait.pid, wait.process) == (reads.pid, "Reader.read")


def test_of_several_actors_the_one_that_waits_for_no_rank_is_waited_for() -> None:
    meets = actor("ray::Trainer.setup", *MAKES_STORE, pid=300)
    locked = actor("ray::Trainer.setup", "load_cache train.py:32", "setup train.py:22")
    wait = scene_of(in_cluster(one(*GET), CLUSTER, meets, locked)).verdict.waits_for
    assert wait is not None
    assert wait.pid == locked.pid


def test_the_last_of_the_actors_that_wait_for_one_another_is_waited_for() -> None:
    """By pid alone the player came first; its line asks for the method that the buffer is in."""
    for facts in (driver(PLAYS, EVICTS), driver(PLAYS, asks(EVICTS, "Buffer.size"))):
        wait = scene_of(facts).verdict.waits_for
        assert wait is not None
        assert (wait.pid, wait.process) == (EVICTS.pid, "Buffer.add")
    idle = actor("ray::Lock.acquire", "Worker.main_loop SP/ray/_private/worker.py:1069", pid=500)
    locked = asks(actor("ray::Player.play", *GET, "Player.play train.py:43", pid=300), "acquire")
    wait = scene_of(driver(locked, idle)).verdict.waits_for
    assert wait is not None
    assert (wait.pid, wait.process) == (500, "Lock.acquire")


def test_an_actor_that_waits_for_another_one_of_its_class_asks_not_itself() -> None:
    twin = actor("ray::Buffer", "Worker.main_loop SP/ray/_private/worker.py:1069", pid=500)
    for facts in (driver(PLAYS, EVICTS), driver(PLAYS, asks(EVICTS, "Buffer.size"), twin)):
        assert "ray-asks-itself" not in causes_of(facts)


COLLECTS = asks(
    actor("ray::Boss.collect", *GET, "Boss.collect train.py:39", pid=300), "Worker.rollout"
)
ROLLS_OUT = asks(
    actor("ray::Worker.rollout", *GET, "Worker.rollout train.py:23", pid=400), "Boss.next_prompt"
)


def test_two_actors_that_ask_each_other_wait_in_a_ring() -> None:
    cause = causes_of(driver(COLLECTS, ROLLS_OUT))["deadlock"]
    assert "for Boss.next_prompt, behind Boss.collect" in "; ".join(cause.matched)
    assert "for Worker.rollout" in "; ".join(cause.matched)


def test_an_actor_of_several_threads_or_one_of_several_of_a_class_closes_no_ring() -> None:
    loop = "Worker.main_loop SP/ray/_private/worker.py:1069"
    serves = beside(COLLECTS, ("Thread-2", (loop,)))
    twin = actor("ray::Boss", loop, pid=500)
    for facts in (driver(serves, ROLLS_OUT), driver(COLLECTS, ROLLS_OUT, twin)):
        assert "deadlock" not in causes_of(facts)


def test_an_actor_that_is_a_rank_of_a_group_is_asked_by_what_it_waits_for() -> None:
    """The learner is no rank: it meets nobody now."""
    takes = replace(ALL_REDUCE, command=("ray::Engine.take",))
    asks_it = asks(actor("ray::Learner.fit", *GET, "fit train.py:47"), "Engine.version")
    _, (first,) = in_cluster((job(world=1), [rank(0, takes)]), CLUSTER, asks_it)
    table = build_process_table([first])
    wait = find_blocking_reason_of_child((asks_it,), ProcessContext(first, table))
    assert (wait.pid, wait.detail) == (first.pid, "Engine.version, behind Engine.take")


def test_what_is_asked_of_ray_is_said_where_the_source_tells_it() -> None:
    about, (first,) = one(*GET, "main train.py:52")
    facts = about, [replace(first, looks=tuple(asks(x, "tokenize") for x in first.looks))]
    assert "for an answer of Ray: tokenize" in "; ".join(causes_of(facts)["ray-task"].matched)


def test_an_actor_between_two_calls_that_does_not_answer_is_no_process_that_is_stuck() -> None:
    idle = actor("ray::Gate.wait", "Worker.main_loop SP/ray/_private/worker.py:1069")
    found = causes_of(driver(idle))
    assert next(iter(found)) == "ray-task"
    assert "child-process-stuck" not in found


def test_a_worker_that_alone_reports_is_to_blame_in_that_call() -> None:
    scene = scene_of(ray_train_meets())
    assert scene.verdict.call == "ray.train.report"
    assert 0 in scene.verdict.ranks.culprit
    assert "ray-task" not in causes_of(ray_train_meets())


def test_ray_init_is_no_task_although_the_same_wrapper_is_around_it() -> None:
    found = causes_of(
        one(
            "Node._init_gcs_client SP/ray/_private/node.py:996",
            "init SP/ray/_private/worker.py:1992",
            "wrapper SP/ray/_private/client_mode_hook.py:134",
        )
    )
    assert "ray-start" in found
    assert "ray-task" not in found


def test_what_ray_wrote_of_its_head_is_said_and_proves_it() -> None:
    wrote = "Failed to get cluster ID from GCS server: Unauthenticated: RPC error"
    frames = ("init SP/ray/_private/worker.py:1992",)
    cause = causes_of(one(*frames, output=(wrote,)))["ray-start"]
    assert cause.level == "seen"
    assert "Unauthenticated" in "; ".join(cause.matched)


def test_an_actor_that_died_while_nobody_waits_for_it_is_no_cause() -> None:
    facts = one("read train.py:3")
    assert "ray-actor-died" not in causes_of(in_cluster(facts, replace(CLUSTER, dead=(DEAD,))))


def test_a_program_that_only_uses_ray_somewhere_waits_for_no_place() -> None:
    found = causes_of(one("step STD/queue.py:171", "Queue.get STD/queue.py:171"))
    assert not set(SHOWS) & set(found)


def test_a_worker_that_stands_in_a_hook_before_its_first_task_is_waited_for() -> None:
    """worker_process_setup_hook, of a runtime_env: its title is that of an idle one."""
    hooked = actor(
        "ray::IDLE",
        "register train.py:14",
        "load_and_execute_setup_hook SP/ray/_private/runtime_env/setup_hook.py:201",
        "<module> SP/ray/_private/workers/default_worker.py:318",
    )
    loop = ("Worker.main_loop SP/ray/_private/worker.py:1069",)
    idle = actor("ray::IDLE", *loop, pid=401)
    about, (facts,) = in_cluster(one(*GET), CLUSTER, idle, hooked)
    scene = scene_of((about, [facts]))
    wait = scene.verdict.waits_for
    assert wait is not None
    assert wait.pid == hooked.pid
    about, (facts,) = in_cluster(one(*GET), CLUSTER, idle)
    wait = scene_of((about, [facts])).verdict.waits_for
    assert wait is None or wait.pid is None


TWO_CPUS = "{'CPU': 2.0}: 1+ pending tasks/actors"
FULL = replace(CLUSTER, usage=(("CPU", "4.0", "4.0"),), demands=(TWO_CPUS,))


def test_who_has_what_is_asked_for_is_named_with_what_it_does() -> None:
    holders = (
        ResourceHolder(300, "Tokenizer", (("CPU", 1.0),)),
        ResourceHolder(301, "Trainer", (("CPU", 3.0),)),
        ResourceHolder(302, "Logger", (("disk", 1.0),)),
        ResourceHolder(900, "Engine", (("CPU", 1.0),)),
    )
    rests = actor("ray::Tokenizer", "Worker.main_loop SP/ray/_private/worker.py:1069", pid=300)
    wants = asks(actor("ray::Trainer.fit", *GET, "fit train.py:43", pid=301), "encode")
    facts = in_cluster(one(*GET), replace(FULL, holders=holders), rests, wants)
    said = "; ".join(causes_of(facts)["ray-placement"].matched)
    assert "Tokenizer (300) has 1 CPU and waits for its next call" in said
    assert "Trainer (301) has 3 CPU and waits for encode" in said
    assert "Trainer.fit (301) waits for encode" in said
    assert "Engine (900) has 1 CPU and is not below this driver" in said
    assert "Logger" not in said


def test_what_is_made_again_of_a_lost_node_says_what_it_wants() -> None:
    lost = RetriedTask("load_weights", 1, True, "disk: 1, CPU: 1")
    cause = causes_of(in_cluster(one(*GET), replace(CLUSTER, retried=(lost,))))["ray-placement"]
    assert "what load_weights gave is lost" in "; ".join(cause.matched)
    assert "disk: 1" in "; ".join(cause.matched)
    again = replace(lost, is_for_lost=False)
    assert "ray-placement" not in causes_of(
        in_cluster(one(*GET), replace(CLUSTER, retried=(again,)))
    )


def test_an_actor_that_is_started_again_is_no_death_that_others_wait_for() -> None:
    for comes_again in (False, True):
        dead = replace(DEAD, comes_again=comes_again)
        found = causes_of(in_cluster(one(*GET), replace(CLUSTER, dead=(dead,))))
        assert ("ray-actor-died" in found) is not comes_again


def test_a_loop_that_awaits_an_actor_is_none_that_waits_for_nothing() -> None:
    loop = look(
        "EpollSelector.select STD/selectors.py:468",
        "BaseEventLoop._run_once STD/asyncio/base_events.py:1884",
        "main train.py:37",
        call="epoll_wait",
    )
    answers = actor("ray::Rollout.play", "Worker.main_loop SP/ray/_private/worker.py:1069")
    found = causes_of(in_cluster((job(world=1), [rank(0, loop)]), CLUSTER, answers))
    assert "event-loop" not in found
    assert "ray-task" in found
