"""W&B: its server, its process, git."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangbisect.base.process_facts import LogTail, Look, Socket

from ..made_up import WANDB, gone, held, job, look, rank
from .scenes import TORCHRUN, Facts, Shows, causes_of, tcp, with_native

SERVER = "127.0.0.1:18080"
STARTS = (
    "poll_for_token SP/wandb/sdk/lib/service/service_port_file.py:66",
    "_launch_server SP/wandb/sdk/lib/service/service_process.py:160",
    "start SP/wandb/sdk/lib/service/service_process.py:33",
    "_WandbSetup.ensure_service SP/wandb/sdk/wandb_setup.py:390",
    "init SP/wandb/sdk/wandb_init.py:1480",
    "<module> train.py:7",
)
GIT = (
    "Popen.communicate STD/subprocess.py:1209",
    "run STD/subprocess.py:550",
    "run_git SP/wandb/sdk/lib/gitlib.py:57",
    "GitRepo.dirty SP/wandb/sdk/lib/gitlib.py:259",
    "_WandbInit.init SP/wandb/sdk/wandb_init.py:880",
    "init SP/wandb/sdk/wandb_init.py:1536",
    "<module> train.py:7",
)


def core(*sockets: Socket, **more: Any) -> tuple[Look, ...]:
    one = look(pid=4899, ppid=100, name="wandb-core", call="", sockets=sockets, rung="proc")
    return (replace(one, **more),)


def with_core(*sockets: Socket, frames: Look = WANDB, **more: Any) -> Facts:
    first = rank(0, frames, environment=TORCHRUN, children=(core(*sockets, **more),))
    return job(), [first, held(1)]


def service_silent() -> Facts:
    return with_core(tcp(SERVER, received=0))


def test_a_process_of_wandb_that_is_stopped_is_not_its_servers_fault() -> None:
    for state in "TtD":
        found = causes_of(with_core(tcp(SERVER, received=0), state=state))
        assert "service-silent" not in found


def service_unreachable() -> Facts:
    return with_core(tcp("35.186.228.49:443", "SYN_SENT"))


def service_retries() -> Facts:
    line = '{"level":"WARN","msg":"api: retrying","error":"dial tcp: connection refused"}'
    log = LogTail("/home/ada/wandb/run-1/logs/debug-core.log", (line,))
    return with_core(logs=(log,))


def service_start_slow() -> Facts:
    one = look(*STARTS, call="clock_nanosleep")
    return job(), [rank(n, one, children=(core(),)) for n in (0, 1)]


def service_timed_out() -> Facts:
    error = "CommError: Run initialization has timed out after 90.0 sec."
    return job("crash"), [gone(0, 1, error, left_at=90.0), held(1)]


def wandb_git() -> Facts:
    git = (look(pid=4900, ppid=100, name="git", command=("git", "diff", "HEAD"), rung="proc"),)
    one = look(*GIT, call="poll")
    return job(), [rank(0, one, children=(git,)), held(1)]


SHOWS: Shows = {
    "service-silent": service_silent,
    "service-unreachable": service_unreachable,
    "service-retries": service_retries,
    "service-start-slow": service_start_slow,
    "service-timed-out": service_timed_out,
    "wandb-git": wandb_git,
}


def test_a_silent_server_is_certain_from_two_facts() -> None:
    found = causes_of(service_silent())["service-silent"]
    assert found.agreement > 0.85
    assert any("wandb-core (4899) is connected to 127.0.0.1:18080" in m for m in found.matched)


def test_the_connection_between_rank_and_service_is_not_the_server() -> None:
    inner = tcp("127.0.0.1:33001", peer_pids=(100,))
    assert "service-silent" not in causes_of(with_core(inner))


def test_an_older_service_written_in_python_is_found_by_its_command() -> None:
    words = ("python3", "/venv/bin/wandb", "service", "--port-filename", "/tmp/x")
    old = with_core(tcp(SERVER), name="python3", command=words)
    assert "service-silent" in causes_of(old)


def test_in_native_frames_of_the_wait_it_is_found_as_well() -> None:
    deep = with_native(WANDB, "__futex_abstimed_wait", "PyThread_acquire_lock_timed")
    assert "service-silent" in causes_of(with_core(tcp(SERVER), frames=deep))


def test_a_connection_of_something_else_is_not_wandbs() -> None:
    other = (look(pid=4800, ppid=100, name="nsys", sockets=(tcp(SERVER),), rung="proc"),)
    ranks = [rank(0, WANDB, environment=TORCHRUN, children=(other, core())), held(1)]
    assert "service-silent" not in causes_of((job(), ranks))


def test_git_of_the_job_is_not_wandbs() -> None:
    facts, ranks = wandb_git()
    plain = look("Popen.communicate STD/subprocess.py:1209", "<module> train.py:3", call="poll")
    assert "wandb-git" not in causes_of((facts, [replace(ranks[0], looks=(plain,)), ranks[1]]))


def test_a_log_without_trouble_says_nothing() -> None:
    log = LogTail("/home/ada/wandb/run-1/logs/debug-core.log", ('{"level":"INFO","msg":"up"}',))
    assert len(causes_of(with_core(logs=(log,)))["service-retries"].matched) == 2
