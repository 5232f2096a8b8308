"""Our name alone, and a pid in the place of a command."""

from __future__ import annotations

import sys

import pytest
from hangbisect import cli
from hangbisect.attach.jobs import Job
from hangbisect.attach.ranks import Rank
from hangbisect.commands.attach import jobs_of_user

Ran = list[tuple[str, list[str]]]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Commands that only note what they were given."""
    noted: Ran = []

    def command(name: str) -> object:
        return lambda argv: noted.append((name, argv)) or 0  # type: ignore[func-returns-value]

    monkeypatch.setattr(cli, "_command", command)
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HANGBISECT_FOLDER", "HANGBISECT_JOB"):
        monkeypatch.delenv(name, raising=False)
    return noted


def test_a_pid_is_attached_to(ran: Ran) -> None:
    cli.main(["4711", "--json"])
    assert ran == [("attach", ["4711", "--json"])]


def test_our_name_alone_lists_the_jobs(ran: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/hangbisect"])
    cli.main()
    assert ran == [("jobs", [])]


def test_as_a_rank_or_by_a_module_it_is_the_pipeline(
    ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/x/hangbisect/__main__.py"])
    cli.main()
    monkeypatch.setattr(sys, "argv", ["/usr/bin/hangbisect"])
    monkeypatch.setenv("RANK", "0")
    cli.main()
    assert [name for name, _ in ran] == ["walk", "walk"]


def test_a_process_that_stands_alone_is_taken_only_where_there_is_no_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    lone = Job((Rank(50, 0, by="alone"),))
    job = Job((Rank(60, 0, by="environment"),))
    starting = Job((), (70,))
    assert jobs_of_user([lone, job]) == [job]
    assert jobs_of_user([lone, starting]) == [starting]
    assert jobs_of_user([lone]) == [lone]
