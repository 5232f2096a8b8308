"""Which processes are the ranks of an inference server, and that it is one job."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.attach.jobs import group_ranks, make_lone_job
from hangbisect.attach.processes import Process
from hangbisect.attach.ranks import Rank
from hangbisect.attach.ranks_by_stack import find_candidates, read_ranks_from_stacks

from ..diagnosis.made_up import look
from .made_up import process, table

API = ("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m")


def titled(pid: int, parent: int, title: str, state: str = "S") -> Process:
    """A process that has overwritten its command line and its variables; a zombie has neither."""
    made = process(pid, parent, title, environ={}, name=title[:15], state=state)
    return replace(made, python=state != "Z", words=made.words if state != "Z" else ())


def vllm(*workers: Process) -> dict[int, Process]:
    server, engine = process(100, 1, *API), titled(110, 100, "VLLM::EngineCore_DP0")
    return table(server, engine, *workers)


def ranks_of(processes: dict[int, Process]) -> list[Rank]:
    found = find_candidates(processes, [], set())
    looks = {one.pid: look("f SP/vllm/x.py:1", pid=one.pid) for one in found}
    return read_ranks_from_stacks(processes, looks)


def test_workers_are_ranks_by_their_titles_and_engine_and_server_are_none() -> None:
    processes = vllm(titled(121, 110, "VLLM::Worker_TP1"), titled(120, 110, "VLLM::Worker_TP0"))
    assert {rank.pid: (rank.number, rank.world) for rank in ranks_of(processes)} == {
        120: (0, 2),
        121: (1, 2),
    }


def test_a_server_is_one_job_from_the_api_server_down() -> None:
    processes = vllm(titled(120, 110, "VLLM::Worker_TP0"), titled(121, 110, "VLLM::Worker_TP1"))
    (job,) = group_ranks(processes, ranks_of(processes))
    assert job.launchers == (100, 110)
    assert job.command == API
    assert job.world == 2


def test_what_has_started_the_server_as_another_program_is_no_part_of_it() -> None:
    trainer = process(90, 1, "python", "train.py")
    server, engine = process(100, 90, *API), titled(110, 100, "VLLM::EngineCore_DP0")
    processes = table(trainer, server, engine, titled(120, 110, "VLLM::Worker_TP0"))
    (job,) = group_ranks(processes, ranks_of(processes))
    assert job.launchers == (100, 110)


def test_a_server_with_a_title_is_no_part_of_the_program_that_has_started_it_in_a_session() -> None:
    harness = process(90, 1, "python", "bench.py")
    server = replace(titled(100, 90, "VLLM::APIServer"), session=100)
    engine = replace(titled(110, 100, "VLLM::EngineCore"), session=100)
    processes = table(harness, server, engine, titled(120, 110, "VLLM::Worker_TP0"))
    (job,) = group_ranks(processes, ranks_of(processes))
    assert job.launchers == (100, 110)


def test_a_worker_that_died_is_counted() -> None:
    dead = titled(121, 110, "VLLM::Worker_TP1", state="Z")
    (only,) = ranks_of(vllm(titled(120, 110, "VLLM::Worker_TP0"), dead))
    assert (only.number, only.world) == (0, 2)


def test_one_that_has_no_title_yet_has_the_number_that_is_left() -> None:
    forked = process(121, 110, "python", "-c", "x", "--multiprocessing-fork")
    ranks = ranks_of(vllm(titled(120, 110, "VLLM::Worker_TP0"), forked))
    assert {rank.pid: rank.number for rank in ranks} == {120: 0, 121: 1}


def test_the_detokenizer_is_no_rank() -> None:
    server = process(100, 1, "python", "-m", "sglang.launch_server")
    titles = ("sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer")
    parts = [titled(110 + n, 100, title) for n, title in enumerate(titles)]
    ranks = ranks_of(table(server, *parts))
    assert {rank.pid: rank.number for rank in ranks} == {110: 0, 111: 1}


def test_processes_with_titles_of_their_own_are_ranks_beside_one_that_meets_others() -> None:
    """Engines of a server that is not known: the title of each says nothing to us, but that one of
    them stands in a collective does. Who is in none is a rank without a number.
    """
    engines = titled(110, 100, "MyServer::Engine_DP0"), titled(111, 100, "MyServer::Engine_DP1")
    processes = table(process(100, 1, "python", "serve.py"), *engines)
    found = find_candidates(processes, [], set())
    assert [one.pid for one in found] == [110, 111]
    meets = look("all_reduce SP/torch/distributed/distributed_c10d.py:3252", pid=110)
    waits = look("Connection._recv STD/multiprocessing/connection.py:395", pid=111)
    ranks = read_ranks_from_stacks(processes, {110: meets, 111: waits})
    assert {rank.pid: rank.number for rank in ranks} == {110: None, 111: None}
    assert read_ranks_from_stacks(processes, {110: replace(waits, pid=110), 111: waits}) == []


def test_an_engine_whose_server_has_ended_has_no_command_that_starts_it_again() -> None:
    engine = titled(110, 1, "VLLM::EngineCore")
    processes = table(engine, titled(120, 110, "VLLM::Worker_TP0"))
    (job,) = group_ranks(processes, ranks_of(processes))
    assert (job.launchers, job.has_one_command) == ((110,), False)


def test_an_actor_whose_driver_is_elsewhere_has_no_command_that_starts_it_again() -> None:
    assert not make_lone_job(table(titled(50, 40, "ray::Trainer.train")), 50).has_one_command
