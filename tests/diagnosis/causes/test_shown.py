"""Every cause on a scene that shows it; none of them on the scenes of others."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hangbisect.base.process_facts import Look, Thread
from hangbisect.base.rank_facts import MachineFacts
from hangbisect.diagnosis.causes.catalogue import CAUSES, find_likeliest_cause
from hangbisect.diagnosis.causes.known_cause import LEAST_AGREEMENT

from .scenes import Facts, causes_of, scene_of

# A general cause that is right as well where a special one is.
ALSO_RIGHT = {
    "hub-conversion": {"thread-at-exit"},
    "password-prompt": {"child-program"},
    "rank-died": {"killed-from-outside"},
    "self-deadlock": {"deadlock"},
    "wrong-interface": {"peer-unreachable"},
}


def _shows() -> dict[str, Callable[[], Facts]]:
    """Return the scenes of all test modules beside this one, by the id of the cause."""
    found: dict[str, Callable[[], Facts]] = {}
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        if file.stem != Path(__file__).stem:
            module = importlib.import_module(f".{file.stem}", __package__)
            found.update(getattr(module, "SHOWS", {}))
    return found


SHOWS = _shows()


def test_every_scene_is_of_a_cause_that_there_is() -> None:
    assert set(SHOWS) <= {cause.id for cause in CAUSES}


@pytest.mark.parametrize("name", SHOWS)
def test_a_scene_is_explained_by_its_cause(name: str) -> None:
    cause = find_likeliest_cause(scene_of(SHOWS[name]()))
    assert cause is not None
    assert cause.id == name, causes_of(SHOWS[name]())
    assert cause.agreement >= LEAST_AGREEMENT
    assert cause.matched
    assert "?" not in cause.why, cause.why
    assert cause.avoid


HOLES: dict[str, Callable[[Look], Look]] = {
    "no Python stack": lambda one: replace(one, threads=(), rung="proc"),
    "no frames": lambda one: replace(one, threads=tuple(_bare(t) for t in one.threads)),
    "no system call": lambda one: replace(one, kernel=()),
    "no sockets": lambda one: replace(one, sockets=()),
    "gone": lambda one: replace(one, state="", threads=(), kernel=()),
}


def _bare(thread: Thread) -> Thread:
    return replace(thread, frames=())


@pytest.mark.parametrize("name", SHOWS)
def test_no_declaration_fails_where_a_fact_is_missing(name: str) -> None:
    job, ranks = SHOWS[name]()
    for tear in HOLES.values():
        torn = [
            replace(
                facts,
                looks=tuple(tear(one) for one in facts.looks),
                children=tuple(tuple(tear(child) for child in looks) for looks in facts.children),
            )
            for facts in ranks
        ]
        for machine in (job.machine, MachineFacts()):
            causes_of((replace(job, machine=machine), torn))


@pytest.mark.parametrize("name", SHOWS)
def test_no_other_cause_is_sure_of_it(name: str) -> None:
    others = {
        other: cause.level
        for other, cause in causes_of(SHOWS[name]()).items()
        if other not in {name, *ALSO_RIGHT.get(name, ())} and cause.level == "seen"
    }
    assert others == {}
