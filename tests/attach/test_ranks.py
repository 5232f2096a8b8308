"""Which processes are ranks, by what launchers set."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hangbisect.attach.job_search import find_job_of_process
from hangbisect.attach.jobs import group_ranks, make_lone_job
from hangbisect.attach.processes import Process
from hangbisect.attach.ranks import Rank, ranks_from_environment
from hangbisect.attach.ranks_by_stack import find_candidates, read_ranks_from_stacks
from hangbisect.base.process_facts import Descriptor, Frame, Look, Socket
from hangbisect.dumps.facts_in_stack import read_rank_locals
from hypothesis import given
from hypothesis import strategies as st

from ..diagnosis.made_up import look
from .made_up import PYTHON, SCRIPT, of_torchrun, process, table, torchrun


def numbers(*processes: Process) -> dict[int, int | None]:
    return {rank.pid: rank.number for rank in ranks_from_environment(table(*processes))}


def test_the_children_of_torchrun_are_ranks() -> None:
    ranks = ranks_from_environment(table(*torchrun()))
    assert ranks == [
        Rank(101, 0, 0, 2, 100, "torchrun", "environment"),
        Rank(102, 1, 1, 2, 100, "torchrun", "environment"),
    ]


def test_what_a_rank_starts_inherits_its_number_and_is_no_rank() -> None:
    worker = process(110, 101, environ=of_torchrun(0))
    core = process(111, 101, "wandb-core", environ=of_torchrun(0))
    assert numbers(*torchrun(), worker, core) == {101: 0, 102: 1}


def test_a_wrapper_in_front_of_a_rank_is_not_the_rank() -> None:
    shell = process(101, 100, "bash", "-c", "x", environ=of_torchrun(0))
    inside = process(105, 101, environ=of_torchrun(0))
    assert numbers(torchrun(100, 0)[0], shell, inside) == {105: 0}


def test_a_wrapper_that_has_not_come_to_python_stands_for_its_rank() -> None:
    shell = process(101, 100, "bash", "-c", "x", environ=of_torchrun(0))
    waits = process(105, 101, "sleep", "9", environ=of_torchrun(0))
    assert numbers(torchrun(100, 0)[0], shell, waits) == {101: 0}


def test_what_a_rank_that_is_gone_has_left_is_no_rank() -> None:
    assert numbers(process(111, 1, "wandb-core", environ=of_torchrun(0))) == {}


def test_torchrun_in_a_task_of_slurm_is_no_rank() -> None:
    task = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0"}
    agent, *ranks = torchrun(100, 2, "abc", **task)
    step = process(90, 1, "slurmstepd:", "[7.0]", environ=None)
    agent = process(100, 90, *agent.words, environ=task)
    assert numbers(step, agent, *ranks) == {101: 0, 102: 1}


def test_tasks_of_srun_are_ranks_and_a_batch_script_is_none() -> None:
    def task(rank: int) -> dict[str, str]:
        return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}

    step = process(90, 1, "slurmstepd:", "[7.0]", environ=None)
    tasks = [process(91 + n, 90, environ=task(n) | {"SLURM_STEP_ID": "0"}) for n in (0, 1)]
    batch = process(80, 79, PYTHON, "prepare.py", environ=task(0))
    assert numbers(step, *tasks, batch) == {91: 0, 92: 1}


def test_a_task_in_an_allocation_is_a_rank_and_what_its_shell_starts_is_none() -> None:
    """Srun's tasks inherit the name that salloc gives its jobs."""
    said = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}
    said |= {"SLURM_JOB_NAME": "interactive"}
    step = process(90, 1, "slurmstepd:", "[7.0]", environ=None)
    task = process(91, 90, environ=said | {"SLURM_TASK_PID": "91"})
    assert numbers(step, task) == {91: 1}
    wrapped = process(92, 90, "bash", "-c", "x", environ=said | {"SLURM_TASK_PID": "92"})
    inside = process(93, 92, environ=said | {"SLURM_TASK_PID": "92"})
    assert numbers(step, wrapped, inside) == {93: 1}
    shell = process(94, 90, "-bash", environ=said | {"SLURM_TASK_PID": "94"})
    by_hand = process(95, 94, environ=said | {"SLURM_TASK_PID": "94"})
    assert numbers(step, shell, by_hand) == {}


def test_a_monitor_of_ours_is_no_rank() -> None:
    words = (PYTHON, "-I", "-S", "/x/hangbisect", "monitor", "{}")
    monitor = process(120, 1, *words, environ=of_torchrun(0))
    assert numbers(*torchrun(), monitor) == {101: 0, 102: 1}


def test_lightning_starts_the_other_ranks_from_rank_0() -> None:
    child = {"LOCAL_RANK": "1", "WORLD_SIZE": "2", "NODE_RANK": "0", "MASTER_ADDR": "127.0.0.1"}
    first = process(50, 1)
    assert numbers(first, process(51, 50, environ=child)) == {50: 0, 51: 1}
    workers = [process(60, 50), process(61, 51, environ=child)]
    assert numbers(first, process(51, 50, environ=child), *workers) == {50: 0, 51: 1}


def test_lightning_starts_a_script_by_its_whole_path() -> None:
    child = {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    first = process(50, 1, PYTHON, "-u", "train.py", "--lr", "1")
    for words in (
        (PYTHON, "/home/ada/train.py", "--lr", "1"),
        (PYTHON, "/home/ada/train.py", "--lr", "1", "hydra.run.dir=x"),
    ):
        assert numbers(first, process(51, 50, *words, environ=child)) == {50: 0, 51: 1}
    other = process(51, 50, PYTHON, "/home/ada/train.py", "--lr", "2", environ=child)
    assert numbers(first, other) == {}


def test_on_a_further_node_lightnings_numbers_go_on_where_those_of_the_nodes_before_end() -> None:
    """Each node starts as many. Where the world is no multiple of these some have ended."""
    child = {"LOCAL_RANK": "1", "WORLD_SIZE": "4", "NODE_RANK": "1", "MASTER_ADDR": "n01"}
    found = numbers(process(50, 1), process(51, 50, environ=child))
    assert found == {50: 2, 51: 3}
    found = numbers(process(50, 1), process(51, 50, environ=child | {"WORLD_SIZE": "3"}))
    assert found == {50: None, 51: None}


def test_ranks_of_another_user_have_no_known_numbers() -> None:
    agent, *ranks = torchrun()
    hidden = [replace(one, environ=None) for one in ranks]
    assert numbers(replace(agent, environ=None), *hidden) == {101: None, 102: None}


def test_another_program_below_a_python_is_not_lightnings() -> None:
    child = {"LOCAL_RANK": "1", "WORLD_SIZE": "2"}
    other = process(51, 50, PYTHON, "other.py", environ=child)
    assert numbers(process(50, 1), other) == {}


names = st.sampled_from(
    ["RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_STEP_ID", "PMI_RANK", "NODE_RANK"]
)
environs = st.none() | st.dictionaries(names, st.sampled_from(["", "0", "1", "-1", "x", "9" * 30]))
words = st.lists(st.sampled_from([PYTHON, "torchrun", "bash", "slurmstepd:", ""]), min_size=1)


@given(st.lists(st.tuples(st.integers(0, 9), words, environs), max_size=9))
def test_whatever_processes_there_are_no_rank_is_made_up(
    found: list[tuple[int, list[str], dict[str, str] | None]],
) -> None:
    processes = {
        pid: process(pid, ppid, *(said or SCRIPT), environ=environ)
        for pid, (ppid, said, environ) in enumerate(found, 2)
    }
    for rank in ranks_from_environment(processes):
        said = [
            value
            for one in processes.values()
            for value in (one.environ or {}).values()
            if value in ("0", "1")
        ]
        assert rank.number is None or str(rank.number) in [*said, "0"]
        assert rank.pid in processes


def test_a_rank_that_has_ended_is_none_whose_variables_may_not_be_read() -> None:
    ended = process(103, 100, environ=None, state="Z")
    assert numbers(*torchrun(), ended) == {101: 0, 102: 1}
    other_users = process(103, 100, environ=None)
    assert numbers(*torchrun(), other_users) == {101: 0, 102: 1, 103: None}


def test_what_a_rank_started_tells_its_number_where_the_rank_may_not_be_read() -> None:
    agent, first, second = torchrun()
    hidden = replace(second, environ=None)
    child = process(110, 102, "sleep", "9", environ=of_torchrun(1))
    ranks = ranks_from_environment(table(agent, first, hidden, child))
    assert ranks == [
        Rank(101, 0, 0, 2, 100, "torchrun", "environment"),
        Rank(102, 1, 1, 2, 100, "torchrun", "environment"),
    ]


def test_what_a_monitor_of_ours_starts_is_no_rank() -> None:
    """A rank starts the monitor, and it stays when the rank is gone."""
    monitor = process(
        110, 1, PYTHON, "-I", "-S", "/x/hangbisect", "monitor", environ=of_torchrun(0)
    )
    py_spy = process(111, 110, "py-spy", "dump", environ=of_torchrun(0))
    assert numbers(monitor, py_spy) == {}


RUN = ("run", "--run-dir", "runs", "--", "python", "train.py")


@pytest.mark.parametrize(
    "words",
    [
        (PYTHON, "/venv/bin/hangbisect", *RUN),
        (PYTHON, "-m", "hangbisect", *RUN),
        (PYTHON, "-u", "/src/bisect", *RUN),
    ],
)
def test_what_stands_in_front_of_a_watched_command_is_no_rank(words: tuple[str, ...]) -> None:
    """Of a rank that is watched by itself (`srun hangbisect run -- python train.py`) the front has
    the number too, and is the topmost Python; so have the two that it forks, and the watcher among
    them has left its family.
    """
    front = process(101, 100, *words, environ=of_torchrun(0))
    inside = process(105, 101, environ=of_torchrun(0))
    watcher = process(106, 1, *words, environ=of_torchrun(0))
    stands_in = process(107, 101, *words, environ=of_torchrun(0))
    agent = torchrun(100, 0)[0]
    assert numbers(agent, front, inside, watcher, stands_in) == {105: 0}
    assert [r.launcher for r in ranks_from_environment(table(agent, front, inside))] == [100]
    assert numbers(agent, front, watcher) == {}  # its command has ended


def test_what_the_front_forks_is_not_taken_for_a_rank_that_it_spawned() -> None:
    words = (PYTHON, "/venv/bin/hangbisect", *RUN)
    front, stands_in = process(101, 100, *words), process(107, 101, *words)
    spawning = process(105, 101)
    spawned = [process(110, 105), process(111, 105)]
    processes = table(front, stands_in, spawning, *spawned)
    assert [one.pid for one in find_candidates(processes, [], set())] == [110, 111]


@pytest.mark.parametrize(
    "words",
    [
        (PYTHON, "train.py", "run"),
        (PYTHON, "train.py", "/venv/bin/hangbisect", "run"),
        (PYTHON, "-m", "hangbisect", "--stall", "5"),
        (PYTHON, "/src/bisect", "walk"),
    ],
)
def test_a_script_whose_argument_is_run_and_a_pipeline_of_ours_are_ranks(
    words: tuple[str, ...],
) -> None:
    assert numbers(torchrun(100, 0)[0], process(101, 100, *words, environ=of_torchrun(0))) == {
        101: 0
    }


@pytest.mark.parametrize(
    ("asks", "serves"),
    [
        ("BaseProxy._callmethod STD/multiprocessing/managers.py:822", "Server.serve_forever"),
        ("Pool.map STD/multiprocessing/pool.py:367", "worker"),
        ("Executor.map STD/concurrent/futures/process.py:850", "_process_worker"),
        ("Parallel.__call__ SP/joblib/parallel.py:2007", "_process_worker"),
        ("Channel.receive SP/execnet/gateway_base.py:743", "WorkerGateway.executetask"),
    ],
)
def test_who_asks_a_worker_may_be_a_rank_and_who_serves_is_none(asks: str, serves: str) -> None:
    """Both have a frame of the same library: what the function does tells them apart."""
    place = asks.partition(" ")[2].replace(
        "joblib/parallel", "joblib/externals/loky/process_executor"
    )
    own = "<module> train.py:9"
    assert not read_rank_locals(look(asks, own)).worker
    assert read_rank_locals(look(f"{serves} {place}", own)).worker


def told(number: int | None, pid: int) -> Look:
    """A look at a process whose script has its number in a variable, or does not say it."""
    values = () if number is None else (("rank", str(number)),)
    frames = (Frame("train", "/home/ada/train.py", 9, locals=values),)
    seen = look("train train.py:9", pid=pid)
    return replace(seen, threads=(replace(seen.threads[0], os_id=pid, frames=frames),))


def test_what_a_spawned_rank_forked_has_its_number_on_the_stack_and_is_no_rank() -> None:
    """A server or a worker by os.fork() keeps the frames of the rank; taken for ranks, such
    children hid the real ones.
    """
    script, first, second = process(100), process(101, 100), process(102, 100)
    forked, forked_twice = process(103, 101), process(104, 103)
    processes = table(script, first, second, forked, forked_twice)
    looks = {101: told(0, 101), 102: told(1, 102), 103: told(0, 103), 104: told(0, 104)}
    found = read_ranks_from_stacks(processes, looks)
    assert {rank.pid: rank.number for rank in found} == {101: 0, 102: 1}
    # Who started them has no number, whatever stands above: they are ranks all the same.
    found = read_ranks_from_stacks(processes, {101: told(None, 101), 103: told(0, 103)})
    assert {rank.pid: rank.number for rank in found} == {103: 0}


def test_a_sibling_that_was_not_seen_in_time_is_a_rank_of_unknown_number() -> None:
    """Left out, it is not there for the others, which then wait for nobody."""
    processes = table(process(100), *(process(pid, 100) for pid in (101, 102, 103)))
    looks = {101: told(0, 101), 102: told(1, 102)}
    found = read_ranks_from_stacks(processes, looks, unseen=[103])
    assert {rank.pid: rank.number for rank in found} == {101: 0, 102: 1, 103: None}
    assert read_ranks_from_stacks(processes, {}, unseen=[103]) == []


def waits_for(pid: int, call: str, number: int) -> Look:
    """A look at a program whose loop over its ranks has left a number behind."""
    return replace(told(number, pid), kernel=look(pid=pid, call=call).kernel)


@pytest.mark.parametrize("call", ["wait4", "clock_nanosleep"])
def test_who_only_waits_for_ranks_that_it_has_started_is_none_of_them(call: str) -> None:
    """`for rank in range(4): start(rank)` leaves 3 in a variable of the program's own."""
    processes = table(process(100), *(process(pid, 100) for pid in (101, 102, 103)))
    looks = {100: waits_for(100, call, 3), 101: told(0, 101), 102: told(1, 102), 103: told(2, 103)}
    found = read_ranks_from_stacks(processes, looks)
    assert {rank.pid: rank.number for rank in found} == {101: 0, 102: 1, 103: 2}
    assert {rank.world for rank in found} == {3}


def test_nor_is_who_works_and_has_the_last_of_their_numbers_left_of_its_loop() -> None:
    """Taken for rank 1 of two, the engine hid its workers, and rank 0 was said not to be there."""
    processes = table(process(100), *(process(pid, 100) for pid in (101, 102)))
    engine = waits_for(100, "", 1)
    looks = {100: engine, 101: told(0, 101), 102: told(1, 102)}
    found = read_ranks_from_stacks(processes, looks)
    assert {rank.pid: rank.number for rank in found} == {101: 0, 102: 1}


def test_who_waits_for_the_word_of_one_of_its_ranks_is_none_of_them() -> None:
    """An engine that reads the ready pipe of its first worker."""
    processes = table(process(100), *(process(pid, 100) for pid in (101, 102)))
    end = Descriptor(3, "pipe", "pipe:[7]", other_ends=(101,))
    hears = look(pid=100, call="read", descriptors=(end,))
    engine = replace(told(1, 100), kernel=hears.kernel)
    found = read_ranks_from_stacks(processes, {100: engine, 101: told(0, 101), 102: told(1, 102)})
    assert {rank.pid: rank.number for rank in found} == {101: 0, 102: 1}


def test_who_waits_for_something_else_than_its_numbered_helpers_is_the_rank() -> None:
    processes = table(process(100), process(101, 100), process(102, 100))
    looks = {100: waits_for(100, "recvfrom", 0), 101: told(0, 101), 102: told(1, 102)}
    found = read_ranks_from_stacks(processes, looks)
    assert [rank.pid for rank in found] == [100]


def test_a_rank_among_others_that_waits_for_its_numbered_helpers_is_one() -> None:
    script = process(90)
    ranks, helpers = (process(100, 90), process(101, 90)), (process(110, 100), process(111, 100))
    looks = {100: waits_for(100, "wait4", 0), 101: told(1, 101)}
    looks |= {110: told(0, 110), 111: told(1, 111)}
    found = read_ranks_from_stacks(table(script, *ranks, *helpers), looks)
    assert {rank.pid: rank.number for rank in found} == {100: 0, 101: 1}


def meets_as(pid: int, number: int, world: int) -> Look:
    """A look at a process in init_process_group."""
    place = "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    values = (("rank", str(number)), ("world_size", str(world)))
    frame = Frame("init_process_group", place, 1700, locals=values)
    one = look("train train.py:9", pid=pid)
    return replace(one, threads=(replace(one.threads[0], os_id=pid, frames=(frame,)),))


@pytest.mark.parametrize("parents", [(1, 1, 1), (41, 42, 42)])
def test_programs_whose_starter_is_gone_or_not_one_are_ranks_where_one_says_so(
    parents: tuple[int, ...],
) -> None:
    """`nohup python train.py --gpu 1 --of 3 &` in a script that has ended; or two terminals."""
    shells = [process(pid, 1, "bash", name="bash") for pid in (41, 42)]
    words = [(PYTHON, "train.py", "--gpu", str(n), "--of", "3") for n in range(3)]
    processes = table(*shells, *(process(101 + n, parents[n], *words[n]) for n in range(3)))
    looks = {101: meets_as(101, 0, 3), 102: told(None, 102), 103: meets_as(103, 2, 3)}
    found = read_ranks_from_stacks(processes, looks)
    assert {(rank.pid, rank.number, rank.world) for rank in found} == {
        (101, 0, 3),
        (102, 1, 3),
        (103, 2, 3),
    }
    # Another number or size in the group: then the arguments mean something else.
    other = looks | {103: meets_as(103, 1, 3)}
    assert {rank.pid: rank.number for rank in read_ranks_from_stacks(processes, other)} != {
        101: 0,
        102: 1,
        103: 2,
    }
    alone = {pid: told(None, pid) for pid in looks}
    assert read_ranks_from_stacks(processes, alone) == []


def two_nodes(flag: str, call: str = "wait4") -> tuple[dict[int, Process], dict[int, Look]]:
    """Two programs of a shell's script, each with its number, that have spawned two workers each:
    what their functions say is a worker's number on its node.
    """
    shell = process(90, 1, "bash", "start.sh", name="bash")
    nodes = [process(100 + n, 90, PYTHON, "train.py", flag, str(n)) for n in range(2)]
    pids = {110: 100, 111: 100, 120: 101, 121: 101}
    spawned = [
        process(pid, of, PYTHON, "-c", "x", "--multiprocessing-fork") for pid, of in pids.items()
    ]
    looks = {pid: look("train train.py:9", pid=pid) for pid in pids}
    for pid, one in looks.items():
        frames = (Frame("_wrap", SPAWN, 90, locals=(("i", str(pid % 10)),)),)
        looks[pid] = replace(one, threads=(replace(one.threads[0], os_id=pid, frames=frames),))
    looks |= {one.pid: look("main train.py:30", pid=one.pid, call=call) for one in nodes}
    return table(shell, *nodes, *spawned), looks


SPAWN = "/env/lib/python3.11/site-packages/torch/multiprocessing/spawn.py"


def test_programs_that_stand_for_nodes_and_only_wait_have_started_the_ranks_of_one_job() -> None:
    """The ImageNet example of PyTorch, started twice on one machine."""
    found = read_ranks_from_stacks(*two_nodes("--rank"))
    assert {rank.pid: rank.number for rank in found} == {110: 0, 111: 1, 120: 2, 121: 3}
    assert {rank.world for rank in found} == {4}
    assert {rank.launcher for rank in found} == {90}


def test_programs_that_do_more_than_wait_are_ranks_and_what_they_started_are_helpers() -> None:
    found = read_ranks_from_stacks(*two_nodes("--rank", "recvfrom"))
    assert {rank.pid: rank.number for rank in found} == {100: 0, 101: 1}


def test_programs_with_a_seed_each_are_no_nodes() -> None:
    found = read_ranks_from_stacks(*two_nodes("--seed"))
    assert len({rank.launcher for rank in found}) == 2
    assert {rank.pid: rank.number for rank in found} == {110: 0, 111: 1, 120: 0, 121: 1}


# ---- actors of Ray -------------------------------------------------------------------------------

RAY = "/env/lib/python3.11/site-packages/ray"


def ray_cluster(*titles: str) -> dict[int, Process]:
    """Return a driver (100) with its services, and actors with these titles, from 300 on."""
    actors = (process(300 + n, 200, one) for n, one in enumerate(titles))
    return table(
        process(100),
        process(150, 100, "/env/bin/python", f"{RAY}/dashboard/dashboard.py"),
        process(200, 100, f"{RAY}/core/src/ray/raylet/raylet"),
        process(250, 200, "ray::DashboardAgent"),
        process(251, 200, "ray::IDLE"),
        *(replace(one, python=True) for one in actors),
    )


def test_actors_are_looked_at_and_services_are_not() -> None:
    processes = ray_cluster("ray::Trainer.setup", "ray::Idle")
    assert [one.pid for one in find_candidates(processes, [], set())] == [300, 301]


def test_actors_of_one_class_are_ranks_if_one_meets_others_below_the_driver() -> None:
    processes = ray_cluster("ray::Trainer.setup", "ray::Trainer.setup", "ray::Idle")
    store = look("_create_c10d_store SP/torch/distributed/rendezvous.py:199", pid=300)
    (frame,) = store.threads[0].frames
    frame = replace(frame, locals=(("rank", "0"), ("world_size", "2")))
    store = replace(store, threads=(replace(store.threads[0], frames=(frame,)),))
    looks = {300: store, 301: look("load train.py:3", pid=301), 302: look("x y.py:1", pid=302)}
    found = read_ranks_from_stacks(processes, looks)
    # Of two ranks one is known: the other is the other one.
    assert {(rank.pid, rank.number, rank.launcher) for rank in found} == {
        (300, 0, 100),
        (301, 1, 100),
    }


def test_actors_that_meet_nobody_are_no_ranks() -> None:
    processes = ray_cluster("ray::Reader.read", "ray::Reader.read")
    looks = {pid: look("read train.py:14", pid=pid) for pid in (300, 301)}
    assert read_ranks_from_stacks(processes, looks) == []


def test_the_resource_tracker_is_no_rank() -> None:
    """A parent that sets RANK before it starts a rank starts the tracker with it too."""
    code = "from multiprocessing.resource_tracker import main;main(5)"
    tracker = process(101, 100, PYTHON, "-B", "-c", code, environ=of_torchrun(0))
    ranks = [process(103 + n, 100, environ=of_torchrun(n)) for n in range(2)]
    assert numbers(process(100, 1), tracker, *ranks) == {103: 0, 104: 1}


def by_hand(*started: tuple[int, str]) -> dict[int, Process]:
    """Programs that a person started in one shell, by pid and script."""
    shell = process(40, 1, "bash", name="bash")
    return table(shell, *(process(pid, 40, PYTHON, script) for pid, script in started))


def test_two_programs_of_one_shell_whose_ranks_have_the_same_numbers_are_two_jobs() -> None:
    processes = by_hand((101, "a.py"), (102, "a.py"), (103, "b.py"), (104, "b.py"))
    looks = {101: told(0, 101), 102: told(1, 102), 103: told(0, 103), 104: told(1, 104)}
    ranks = read_ranks_from_stacks(processes, looks)
    assert {rank.pid: rank.number for rank in ranks} == {101: 0, 102: 1, 103: 0, 104: 1}
    jobs = group_ranks(processes, ranks)
    assert sorted(sorted(job.pids) for job in jobs) == [[101, 102], [103, 104]]


def test_two_programs_of_one_shell_that_complete_each_other_are_one_job() -> None:
    """A trainer, rank 0 of the group for the weights, and its engine, rank 1."""
    processes = by_hand((101, "train.py"), (102, "engine.py"))
    (job,) = group_ranks(
        processes, read_ranks_from_stacks(processes, {101: told(0, 101), 102: told(1, 102)})
    )
    assert job.pids == {101, 102}


def test_kernels_of_one_notebook_server_are_jobs_of_their_own() -> None:
    server = process(40, 1, PYTHON, "/venv/bin/jupyter-lab")
    words = (PYTHON, "-m", "ipykernel_launcher", "-f", "kernel.json")
    processes = table(server, process(101, 40, *words), process(102, 40, *words))
    ranks = read_ranks_from_stacks(processes, {101: told(0, 101), 102: told(0, 102)})
    assert sorted(sorted(job.pids) for job in group_ranks(processes, ranks)) == [[101], [102]]


def numbered(starter: Process, *words: str) -> list[Process]:
    """What a process has started: three programs with these arguments, of which "%" is a number."""
    arguments = ([word.replace("%", str(n)) for word in words] for n in range(3))
    return [process(101 + n, 100, PYTHON, *given) for n, given in enumerate(arguments)]


LAUNCHER = process(100, 1, PYTHON, "launch.py")
SHELL = process(100, 1, "bash")


@pytest.mark.parametrize(("starter", "known"), [(LAUNCHER, 100), (SHELL, None)])
def test_programs_whose_flag_names_their_rank_are_ranks(
    starter: Process, known: int | None
) -> None:
    """The script that started them belongs to them, a person's shell does not."""
    processes = table(starter, *numbered(starter, "train.py", "--process-id=%"))
    assert [one.pid for one in find_candidates(processes, [], set())] == [101, 102, 103]
    looks = {pid: told(None, pid) for pid in (101, 102)}
    found = read_ranks_from_stacks(processes, looks, unseen=[103])
    assert [(r.pid, r.number, r.launcher, r.by) for r in found] == [
        (pid, pid - 101, known, "arguments") for pid in (101, 102, 103)
    ]
    (job,) = group_ranks(processes, found)
    assert (job.world, job.launchers, job.has_one_command) == (3, (), known is not None)
    assert job.command[1] == ("launch.py" if known else "train.py")


def test_programs_with_numbers_of_any_kind_are_ranks_if_they_are_connected() -> None:
    """Else each may be a run of its own, with another seed."""
    processes = table(LAUNCHER, *numbered(LAUNCHER, "train.py", "--seed", "%"))
    looks = {pid: told(None, pid) for pid in (101, 102, 103)}
    assert read_ranks_from_stacks(processes, looks) == []
    socket = Socket(7, "tcp", state="ESTABLISHED", peer_pids=(103,))
    looks[101] = replace(looks[101], sockets=(socket,))
    assert [rank.number for rank in read_ranks_from_stacks(processes, looks)] == [0, 1, 2]


def test_a_stack_that_tells_another_number_is_believed() -> None:
    processes = table(LAUNCHER, *numbered(LAUNCHER, "train.py", "--rank=%"))
    looks = {101: told(2, 101), 102: told(1, 102), 103: told(0, 103)}
    found = read_ranks_from_stacks(processes, looks)
    assert {rank.pid: (rank.number, rank.by) for rank in found} == {
        **{101: (2, "stack"), 102: (1, "stack"), 103: (0, "stack")}
    }


def test_whoever_names_what_started_them_means_all_programs_that_it_numbered() -> None:
    processes = table(LAUNCHER, *numbered(LAUNCHER, "train.py", "--seed", "%"))
    job = find_job_of_process([], processes, 100, unread=())
    assert [(rank.pid, rank.number) for rank in job.ranks] == [(101, 0), (102, 1), (103, 2)]
    assert (job.launchers, job.command) == ((100,), ("python", "launch.py"))
    does_more = find_job_of_process([], processes, 100, unread=(), at_work={100})
    assert [rank.pid for rank in does_more.ranks] == [100]
    # Each has loaded torch, and is a job by itself for whoever names none of them.
    known = [make_lone_job(processes, one) for one in (101, 102, 103)]
    job = find_job_of_process(known, processes, 100, unread=())
    assert [rank.number for rank in job.ranks] == [0, 1, 2]
    alone = find_job_of_process([], processes, 102, unread=())
    assert [rank.pid for rank in alone.ranks] == [102]


def test_the_shell_of_a_person_who_names_it_is_no_part_of_the_job() -> None:
    """It would be ended with the job, by `--kill`."""
    for shell in (SHELL, process(100, 1, "-bash"), process(100, 1, "bash", "-i")):
        processes = table(shell, *numbered(shell, "train.py", "--seed", "%"))
        job = find_job_of_process([], processes, 100, unread=())
        assert [(rank.pid, rank.number) for rank in job.ranks] == [(101, 0), (102, 1), (103, 2)]
        assert job.pids == frozenset([101, 102, 103])
        assert not job.launchers
        assert not job.has_one_command


def test_below_a_watch_of_ours_it_is_the_command_that_is_meant() -> None:
    front = process(90, 1, PYTHON, "/venv/bin/hangbisect", "run", "--", "python", "launch.py")
    command = replace(LAUNCHER, ppid=90)
    alone = find_job_of_process([], table(front, command), 90, unread=())
    assert [rank.pid for rank in alone.ranks] == [100]
    processes = table(front, command, *numbered(LAUNCHER, "train.py", "%"))
    assert len(find_job_of_process([], processes, 90, unread=()).ranks) == 3


def test_programs_that_read_what_their_starter_writes_to_them_are_its_workers() -> None:
    """Whatever number they are given: a rank has the input of who has started it."""
    processes = table(LAUNCHER, *numbered(LAUNCHER, "worker.py", "--worker-id=%"))

    def looks(fd: int) -> dict[int, Look]:
        pipes = {n: (Descriptor(fd, "pipe", f"pipe:[{n}]", other_ends=(100,)),) for n in range(3)}
        return {
            101 + n: look("serve worker.py:9", pid=101 + n, call="read", descriptors=pipes[n])
            for n in range(3)
        }

    assert read_ranks_from_stacks(processes, looks(0)) == []
    assert [rank.number for rank in read_ranks_from_stacks(processes, looks(5))] == [0, 1, 2]
