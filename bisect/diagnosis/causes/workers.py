"""Workers of a rank: stuck, lost, or running the script again."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...base.command_words import has_title
from ...base.process_facts import Look
from ...base.words import format_bytes
from ..exit_words import describe_end
from ..process.blocked_syscalls import NOBODY_CONNECTED
from ..process.frames import format_frame, innermost_python_frame, serves_multiprocessing
from ..process.helper_processes import (
    has_failed,
    is_idle_worker,
    is_to_be_given,
    waits_for_room,
)
from ..process.process_snapshot import ProcessSnapshot
from ..process.public_calls import find_group_wait
from ..proof_of_hang import waits_for_requests
from .known_cause import Found, KnownCause, Scene, also, find_frame, need, unless
from .processes import ends_again_and_again, waits_for_its_starter
from .signs import (
    a_child_died,
    a_helper_died,
    format_place,
    format_process,
    is_forked,
    list_other_ends,
    parent_waits_for_workers,
)
from .sleeping import pauses_again_and_again

_POOL = r"multiproc?ess(?:ing)?/pool\.py"
_WORKER_CODE = r"torch/utils/data/_utils/worker\.py|multiproc?ess(?:ing)?/(?:pool|process)\.py"
_MAPS = (
    (r"datasets/utils/py_utils\.py", "iflatmap_unordered"),
    (r"datasets/arrow_dataset\.py", r"map|filter|_map_single"),
)
_RUNS_THE_SCRIPT = r"_fixup_main_from_(?:path|name)"
_STARTS_THINGS = (
    r"torch/utils/data/dataloader\.py",
    r"torch/distributed/(?:distributed_c10d|rendezvous)\.py",
    r"(?:pytorch_lightning|lightning/pytorch)/trainer/trainer\.py",
    r"multiprocessing/(?:process|pool|context)\.py",
    r"(?:wandb|transformers|datasets|huggingface_hub)/\S+\.py",
)

WORKER_STUCK = "worker-stuck"  # the same: why it stands still may be known
CHILD_DIED = "child-died"  # the cause where nothing is known of what the rank waits for


def _is_worker(view: ProcessSnapshot) -> bool:
    if serves_multiprocessing(view.frames):
        return False
    return is_forked(view) or find_frame(view.frames, _WORKER_CODE) is not None


def _workers(scene: Scene) -> tuple[ProcessSnapshot, ...]:
    return tuple(view for view in scene.workers if _is_worker(view))


# ---- signs ---------------------------------------------------------------------------------------


def _a_worker_stands_still(scene: Scene) -> Found | None:
    """One of its workers has a task, and stands still in it."""
    for view in _workers(scene):
        if not is_idle_worker(view.look) and not view.running:
            where = format_place(view)
            words = f"its worker {format_process(view.look)} stands still in {where}"
            place = ", ".join(part for part in (view.call_name, view.wchan) if part)
            values = {"worker": format_process(view.look), "place": where, "pid": view.look.pid}
            return Found(words + (f" ({place})" if place else ""), values)
    return None


_BEFORE_WORKERS = (
    "do what all ranks do together before the DataLoader is made, in the ranks themselves"
)
_END_OF_COPIES = "after os.fork() end the copy by os._exit() in a finally, after any error too"


def _find_copies(scene: Scene) -> Iterator[ProcessSnapshot]:
    """Return the children for which a rank waits that are in a collective and have one thread: what
    has a process group has threads of it, and a copy made by fork() has none of them.
    """
    wait = scene.verdict.waits_for
    for view in scene.workers:
        awaited = wait is not None and wait.kind == "process" and wait.pid == view.look.pid
        if awaited and len(view.look.kernel) == 1 and find_group_wait(view) == "collective":
            yield view


def _waits_for_workers(scene: Scene) -> Found | None:
    """A rank waits for what its workers make, or for the end of a copy of itself."""
    if next(_find_copies(scene), None) is not None:
        return Found("")
    return parent_waits_for_workers(scene)


def a_worker_meets_others(scene: Scene) -> Found | None:
    """A process that was forked from a rank is in a collective of that rank's group."""
    copies = (*_find_copies(scene),)
    for view in (*filter(is_forked, _workers(scene)), *copies):
        if find_group_wait(view) == "collective":
            own, worker = scene.users_frame(view.frames), format_process(view.look)
            where = format_frame(own) if own is not None else format_place(view)
            which = "copy" if view in copies else "worker"
            words = f"its {which} {worker} is in a collective, in {where}"
            advice = _END_OF_COPIES if view in copies else _BEFORE_WORKERS
            return Found(words, {"worker": worker, "place": where, "advice": advice})
    return None


def _in_map(scene: Scene) -> Found | None:
    """A rank waits in Dataset.map or filter with several processes (num_proc)."""
    for file, function in _MAPS:
        frame = scene.frame(file, function)
        if frame is not None and scene.children:
            return Found(f"it waits in {format_frame(frame)} with {len(scene.children)} children")
    return None


def _waits_for_a_pool(scene: Scene) -> Found | None:
    """A rank waits for a result of a multiprocessing.Pool."""
    frame = scene.frame(_POOL, r"get|wait|next|map|starmap|apply|imap\w*")
    return None if frame is None else Found(f"it waits in {format_frame(frame)}")


def _nobody_works(scene: Scene) -> Found | None:
    """All workers of the pool wait for a task."""
    starters = {scene.subject.pid} if scene.subject is not None else set()
    # A fork server forks its workers (multiprocessing/forkserver.py).
    starters |= {v.look.pid for v in scene.workers if serves_multiprocessing(v.frames)}
    workers = [v for v in _workers(scene) if v.look.ppid in starters]
    if not workers or not all(is_idle_worker(view.look) for view in workers):
        return None
    return Found(f"all {len(workers)} workers wait for a task")


def _its_executor_has_no_worker(scene: Scene) -> Found | None:
    """It waits for a result of a pool of concurrent.futures, whose thread waits for results of its
    workers, and no process below it could be one.
    """
    view = scene.view
    threads = view.threads if view is not None else ()
    managed = any(find_frame(thread.frames, *_AWAITS_RESULTS) for thread in threads)
    found = (find_frame(thread.frames, *_ASKS_FOR_RESULTS) for thread in threads)
    waits = next(filter(None, found), None)
    if not managed or waits is None:
        return None
    living = (one for one in scene.workers if one.threads)
    if not all(serves_multiprocessing(one.frames) for one in living):
        return None
    return Found(f"it waits in {format_frame(waits)}, and no worker of its pool lives")


def _a_worker_was_replaced(scene: Scene) -> Found | None:
    """A worker is much younger than the others: it was started for one that ended."""
    looks = sorted((view.look for view in _workers(scene)), key=lambda look: look.age)
    if len(looks) < 2 or looks[0].age > looks[-1].age - 1.0:
        return None
    apart = looks[-1].age - looks[0].age
    return Found(f"{format_process(looks[0])} is {apart:.0f} s younger than the others")


def _a_worker_is_dead(scene: Scene) -> Found | None:
    """A worker is dead (a zombie)."""
    families = [looks for looks in (scene.subject.children if scene.subject else ()) if looks]
    for looks in families:
        if looks[-1].state == "Z" and _is_called_as_workers(looks[-1], families):
            end = describe_end(looks[-1], scene.machine)
            how = f": it {end}" if looks[-1].status else ""
            dead = format_process(looks[-1])
            return Found(f"{dead} is dead{how}", {"worker": dead, "how": how})
    return None


def _is_called_as_workers(dead: Look, families: Sequence[Sequence[Look]]) -> bool:
    """Return whether a dead process was a worker, by its name: Python's own, or that of a title
    which another child of the same parent has (setproctitle); of one that failed a title's first
    word is enough.
    """
    if re.match(r"python|pt_|ray::", dead.name):
        return True
    titles = [looks[-1].command[0] for looks in families if has_title(looks[-1].command)]
    first = re.split(r"\W", dead.name, maxsplit=1)[0]
    return has_failed(dead) and bool(first) and any(one.startswith(first) for one in titles)


def _awaits_workers(scene: Scene) -> Found | None:
    """A rank waits for what its workers make (DataLoader, Pool, datasets.map), or receives of
    processes of its own that wait for a lock which nobody alive has.
    """
    if found := parent_waits_for_workers(scene):
        return found
    lost = _want_a_lock_of_the_dead(scene)
    wait, frame = scene.verdict.waits_for, innermost_python_frame(scene.frames)
    if lost is None or wait is None or wait.kind not in _INSIDE or frame is None:
        return None
    where = format_frame(frame)
    return Found(f"it waits for its workers in {where}", {"wait": where})


def _want_a_lock_of_the_dead(scene: Scene) -> Found | None:
    """A child failed or was killed, and others wait for a semaphore of processes: all that share it
    and live, but the rank itself, wait for it.
    """
    if scene.subject is None or a_child_died(scene) is None:
        return None
    wanting: dict[str, list[Look]] = {}
    sharers: dict[str, set[int]] = {}
    for view in _workers(scene):
        futex = view.call.futex if view.call is not None else None
        if futex is None or not futex.is_shared_semaphore or futex.sharers is None:
            continue
        if is_to_be_given(view) or waits_for_room(view):
            continue
        wanting.setdefault(futex.file, []).append(view.look)
        sharers.setdefault(futex.file, set()).update(futex.sharers)
    for file, looks in wanting.items():
        pids = {look.pid for look in looks}
        if sharers[file] <= {*pids, scene.subject.pid}:
            more = f" and {len(looks) - 1} more" if len(looks) > 1 else ""
            waits = "wait" if more else "waits"
            return Found(
                f"{format_process(looks[0])}{more} {waits} for a lock of processes that nobody who"
                " lives has"
            )
    return None


def _somebody_died(scene: Scene) -> Found | None:
    """A process that the rank, or what has started the ranks, has started has failed or was killed,
    and is a zombie (wait(2)).
    """
    return a_child_died(scene) or a_helper_died(scene)


_RECEIVES = ("read", "readv", "recvfrom", "recvmsg", "poll", "ppoll", "select", "pselect6")
# Where an executor's own thread waits for results of its workers, and where others wait for it.
_AWAITS_RESULTS = (r"concurrent/futures/process\.py", r"wait_result_broken_or_wakeup")
_ASKS_FOR_RESULTS = (r"concurrent/futures/_base\.py", r"result|result_iterator|wait|as_completed")
# What a rank waits for where a child of its own could give it.
_INSIDE = frozenset(["itself", "pipe", "thread", "futex", "lock", "process", "unknown"])


def _waits_inside(scene: Scene) -> Found | None:
    """The rank waits for nothing outside, for whoever connects, or for its starter."""
    wait, view = scene.verdict.waits_for, scene.view
    if view is None or view.running or wait is None:
        return None
    is_alone = _nobody_has_connected(scene) is not None
    polls = wait.kind == "sleep" and pauses_again_and_again(scene) is not None
    is_idle = waits_for_requests(view.look) or waits_for_its_starter(scene)
    if not (wait.kind in _INSIDE or is_alone or polls or is_idle):
        return None
    frame = innermost_python_frame(view.frames)
    where = format_frame(frame) if frame is not None else view.call_name
    return Found(f"the rank waits in {where}", {"wait": where})


def _nobody_has_connected(scene: Scene) -> Found | None:
    """It waits for a message at an address of its own, to which nobody is connected any more, or
    nobody was.
    """
    wait = scene.verdict.waits_for
    if wait is None or wait.kind != "socket" or not wait.detail.endswith(NOBODY_CONNECTED):
        return None
    return Found(f"nobody is connected to {wait.what}, where it waits for a message")


def _nobody_else_could_send(scene: Scene) -> Found | None:
    """Whatever the rank waits for, nobody but it has the other end."""
    view = scene.view
    named = view.call.descriptors if view is not None and view.call is not None else ()
    if view is None or not named or view.call_name not in _RECEIVES:
        return None
    ends = [list_other_ends(one) for one in named]
    if all(pids and set(pids) == {view.look.pid} for pids in ends):
        return Found(f"nobody but the rank has the other end of {named[0].path}")
    return None


def _all_meet_at_a_barrier(scene: Scene) -> Found | None:
    """All processes that the rank has started by multiprocessing, two at least, stand in
    Barrier.wait of one barrier.
    """
    workers = [view for view in _workers(scene) if not is_idle_worker(view.look)]
    places = [find_frame(view.frames, r"(?:^|/)threading\.py>?", "wait") for view in workers]
    inside = [find_frame(view.frames[:1], r"multiproc?ess(?:ing)?/\w+\.py") for view in workers]
    if len(workers) < _FEWEST_AT_A_BARRIER or not all(places) or not all(inside):
        return None
    if not all(one is not None and one.name.startswith("Barrier.") for one in places):
        return None
    futexes = [view.call.futex for view in workers if view.call is not None]
    shared = {one.file for one in futexes if one is not None}
    own = scene.users_frame(workers[0].frames)
    where = format_frame(own) if own is not None else format_place(workers[0])
    if len(shared) != 1 or len(futexes) < len(workers):
        return None
    words = f"all {len(workers)} of its processes wait in Barrier.wait of one barrier, in {where}"
    return Found(words, {"count": len(workers), "place": where})


def _another_has_left(scene: Scene) -> Found | None:
    """A child of the rank has ended with status 0, as it was not to come."""
    families = scene.subject.children if scene.subject is not None else ()
    last = [looks[-1] for looks in families if looks]
    gone = [one for one in last if one.state == "Z" and one.status == 0]
    if not gone:
        return None
    return Found(f"{format_process(gone[0])} has ended with status 0")


_FEWEST_AT_A_BARRIER = 2  # processes


def _runs_the_script_again(scene: Scene) -> Found | None:
    """A worker runs the script from its beginning, to import it."""
    for view in scene.workers:
        frame = find_frame(view.frames, r"multiproc?ess(?:ing)?/spawn\.py", _RUNS_THE_SCRIPT)
        if frame is not None:
            words = f"{format_process(view.look)} imports the script: frame {format_frame(frame)}"
            return Found(words, {"worker": format_process(view.look)})
    return None


def _does_the_jobs_work(scene: Scene) -> Found | None:
    """It does there what only the rank itself should (training, process groups, workers)."""
    for view in scene.workers:
        outside = find_frame(view.frames, r"multiproc?ess(?:ing)?/spawn\.py", _RUNS_THE_SCRIPT)
        if outside is None:
            continue
        inside = view.frames[: view.frames.index(outside)]
        found = (find_frame(inside, file) for file in _STARTS_THINGS)
        frame = next((frame for frame in found if frame is not None), None)
        last = innermost_python_frame(view.frames)
        if frame is not None and last is not None:
            return Found(f"it is in {format_frame(frame)} there", {"place": format_frame(last)})
    return None


def _shared_memory_is_full(scene: Scene) -> Found | None:
    """/dev/shm is full."""
    machine = scene.machine
    free, total = machine.shm_free, machine.shm_total
    if free is None or not total or free > max(4 << 20, total // 100):
        return None
    values = {"free": format_bytes(free), "total": format_bytes(total)}
    return Found(f"/dev/shm has {values['free']} of {values['total']} left", values)


def _hands_over_a_batch(scene: Scene) -> Found | None:
    """A worker stands where it puts a batch into shared memory."""
    for view in _workers(scene):
        frame = find_frame(view.frames, r"torch/multiprocessing/reductions\.py") or find_frame(
            view.frames, r"torch/storage\.py", r"_share\w*|share_memory_|_new_shared\w*"
        )
        if frame is not None:
            return Found(f"{format_process(view.look)} is in {format_frame(frame)}")
    return None


# ---- causes --------------------------------------------------------------------------------------

CAUSES = (
    KnownCause(
        id=WORKER_STUCK,
        title="a worker of the rank is stuck in the job's own code",
        signs=(
            need(parent_waits_for_workers, 0.4),
            need(_a_worker_stands_still, 0.5),
            unless(_runs_the_script_again),
            unless(a_worker_meets_others),
        ),
        why="The rank waits for its worker {worker}, which stands still in {place}. The rank's own "
        "stack does not show why.",
        avoid=(
            "num_workers=0 (n_jobs=1): the rank stands in that line itself, and says why",
            "`py-spy dump --native --pid {pid}` shows all of the worker",
            "DataLoader(timeout=60): an error in place of silence",
        ),
        toggles=(("num_workers", "0"),),
        references=("pytorch/pytorch#75147", "pytorch/pytorch#96629"),
    ),
    KnownCause(
        id="collective-in-a-worker",
        title="a worker of the rank, or a forked copy of it, calls a collective",
        signs=(
            need(_waits_for_workers, 0.4),
            need(a_worker_meets_others, 0.55),
            unless(_runs_the_script_again),
        ),
        why="{worker}, a fork of the rank, waits for all ranks in {place}. The threads of the "
        "rank's process group are not in it, and no other rank calls that.",
        avoid=(
            "{advice}",
            "in a data set ask nothing of torch.distributed; hand rank and world size to it",
        ),
        references=("pytorch/pytorch#75147",),
    ),
    KnownCause(
        id="map-worker-stuck",
        title="a process of Dataset.map(num_proc) is stuck",
        signs=(
            need(_in_map, 0.5),
            need(_a_worker_stands_still, 0.45),
            unless(_runs_the_script_again),
        ),
        why="Dataset.map waits for {worker}, which stands still in {place}. It was forked from a "
        "rank that has threads: torch, tokenizers.",
        avoid=(
            "num_proc=None: the rank does it alone, more slowly",
            "TOKENIZERS_PARALLELISM=false, torch.set_num_threads(1) before map",
            "map in a script of its own, before the job: training finds the cache",
        ),
        toggles=(("tokenizers_parallelism", "off"),),
        references=(
            "huggingface/datasets#5094",
            "huggingface/trl#1964",
            "deepspeedai/DeepSpeed#3905",
        ),
    ),
    KnownCause(
        id="pool-worker-lost",
        title="a worker of a multiprocessing.Pool was killed, and its task with it",
        signs=(
            need(_waits_for_a_pool, 0.45),
            need(_nobody_works, 0.5),
            also(_a_worker_was_replaced, 0.55),
            also(_a_worker_is_dead, 0.55, proves=True),
        ),
        why="The rank waits for a result that no worker is working on: one was killed (for want of "
        "memory, say), the pool started another, and the lost task is never done.",
        avoid=(
            "`dmesg | grep -i -e oom -e killed` says whether memory ran out; fewer processes",
            "concurrent.futures.ProcessPoolExecutor: raises BrokenProcessPool instead of waiting",
        ),
        references=("python/cpython#66587", "python/cpython#96062", "meta-pytorch/data#1173"),
    ),
    KnownCause(
        id="executor-without-workers",
        title="a pool of concurrent.futures waits for a result, and has no worker",
        signs=(need(_its_executor_has_no_worker, 0.85),),
        why="The workers of the pool have ended well, each after its last task, and the executor "
        "has started no others: with max_tasks_per_child it counts idle workers that are gone "
        "(Python 3.11 and later, as long as that is not mended there).",
        avoid=(
            "a Python with the fix of python/cpython#115634; without it no max_tasks_per_child",
            "multiprocessing.Pool(maxtasksperchild=...), which replaces its workers",
            "give it fewer tasks at once: no more than workers times max_tasks_per_child",
        ),
        references=("python/cpython#115634", "python/cpython#140900"),
    ),
    KnownCause(
        id="worker-dead",
        title="a worker is dead, and its rank still waits for it",
        signs=(
            need(_awaits_workers, 0.4),
            need(_a_worker_is_dead, 0.55, proves=True),
            also(_want_a_lock_of_the_dead, 0.5),
            unless(_waits_for_a_pool),
        ),
        why="{worker} is dead{how}. The rank has not noticed, and waits on in {wait}.",
        avoid=(
            "`dmesg | grep -i -e oom -e killed` says whether the kernel killed it for memory",
            "fewer workers, a smaller prefetch_factor: slower batches",
        ),
        toggles=(("num_workers", "0"),),
        references=("meta-pytorch/data#1173", "pytorch/pytorch#1355"),
    ),
    KnownCause(
        id=CHILD_DIED,
        title="a process that the job started has died, and the rank waits on",
        signs=(
            need(_somebody_died, 0.45),
            need(_waits_inside, 0.3),
            also(_nobody_else_could_send, 0.5, proves=True),
            also(_nobody_has_connected, 0.5),
            unless(parent_waits_for_workers),
        ),
        why="{worker} {how}, the rank has not heard of it, and waits in {wait}. Where it "
        "keeps the child's end of a pipe open itself, it is never told that there is nobody.",
        avoid=(
            "look at what the child wrote last; `dmesg | grep -i -e oom -e killed` tells of memory",
            "close the child's end of the pipe in the parent: recv() then raises EOFError",
            "wait for Process.sentinel beside the pipe (multiprocessing.connection.wait)",
        ),
        references=("sgl-project/sglang#20287", "pytorch/pytorch#189290"),
    ),
    KnownCause(
        id="barrier-of-too-many",
        title="a Barrier of multiprocessing waits for more processes than come to it",
        signs=(
            need(_all_meet_at_a_barrier, 0.85),
            also(_another_has_left, 0.3),
            unless(a_child_died),
            unless(_a_worker_is_dead),
        ),
        why="All {count} processes that could come are in Barrier.wait ({place}), and it does not "
        "let them go: it was made for more parties, or one that took part has left its loop.",
        avoid=(
            "Barrier(parties) with the number of those that call wait(): the parent counts only if "
            "it calls it too",
            "barrier.wait(timeout=60): BrokenBarrierError in place of silence",
        ),
        references=("https://docs.python.org/3/library/threading.html#barrier-objects",),
    ),
    KnownCause(
        id="shm-full",
        title="/dev/shm is full, and workers wait to hand over their batches",
        signs=(
            need(parent_waits_for_workers, 0.35),
            need(_shared_memory_is_full, 0.5),
            also(_hands_over_a_batch, 0.5),
        ),
        why="Workers hand batches over in /dev/shm, of which {free} of {total} are left. "
        "Containers have 64 MiB of it unless told.",
        avoid=(
            "docker run --shm-size=8g, or --ipc=host; Kubernetes: an emptyDir, medium: Memory",
            "num_workers=0: batches are made by the rank itself, more slowly",
            "`ls -l /dev/shm`: what earlier jobs left there may be removed",
        ),
        toggles=(("num_workers", "0"),),
        references=("huggingface/accelerate#1929", "pytorch/pytorch#1355", "dmlc/xgboost#5963"),
    ),
    KnownCause(
        id="script-runs-again",
        title="a worker runs the whole script again: it has no main guard",
        signs=(
            need(_runs_the_script_again, 0.6),
            need(_does_the_jobs_work, 0.7),
            unless(ends_again_and_again),  # each one imports the script, and ends after that
        ),
        why="Workers started by spawn or forkserver import the script. Without a main guard "
        "{worker} does all the job does, and now stands in {place}.",
        avoid=(
            'put the start of the script below `if __name__ == "__main__":`',
            "num_workers=0, or the start method fork, until it is there",
        ),
        toggles=(("num_workers", "0"), ("worker_start", "fork")),
        references=("huggingface/datasets#7756", "argilla-io/distilabel#685"),
    ),
)
