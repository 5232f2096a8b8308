"""Asks machines for their facts, side by side, and the programs that know of machines, each with a
time limit.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from ...base.deadline import Ran, aside, run
from ...base.errors import HangbisectError, UsageError
from ...base.json_codec import Misfit, from_json
from ...base.lazy_dataclass import dataclass
from ...evidence.external_tools import find_program
from ..node_facts import NodeFacts


@dataclass(frozen=True)
class Node:
    """A machine (a pod), and how it is asked."""

    name: str
    ways: tuple[tuple[str, ...], ...]  # commands, the best first: the next where one fails
    paste: str  # what a person can type to see what there is


@dataclass(frozen=True)
class NodeAnswer:
    """What a machine said. Without facts `trouble` says why, in a sentence."""

    node: Node
    facts: NodeFacts | None = None
    trouble: str = ""


@dataclass(frozen=True)
class RemoteJob:
    """A job on other machines."""

    nodes: tuple[Node, ...]
    says: str  # which job it is: "Slurm's job 4711"
    end_it: str  # how to end it
    is_slurms: bool = False  # srun started what its nodes show as the job's command


# Run as a program it starts us, installed or not.
PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def facts_command(span: float | None, only: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the words of that command, by our own interpreter and folder."""
    return (sys.executable, PACKAGE, *facts_arguments(span, only))


def facts_arguments(span: float | None, only: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return what follows the program's name: `only` are variables that ranks of the job have."""
    limited = () if span is None else ("--for", f"{span:g}")
    chosen = tuple(f"--in={name}={value}" for name, value in (only or {}).items())
    return ("attach", "--facts", *limited, *chosen)


_SEVERAL_JOBS_STATUS = 2  # exit status of `attach` that asks which job is meant
_LEAST_TIME = 1.0  # seconds for a way to be worth trying


async def ask_nodes(nodes: Sequence[Node], limit: float) -> list[NodeAnswer]:
    """Return what each machine answers within `limit` seconds, in their order."""
    return list(await asyncio.gather(*(_ask_node(node, limit) for node in nodes)))


async def _ask_node(node: Node, limit: float) -> NodeAnswer:
    end = time.monotonic() + limit
    troubles: list[str] = []
    for command in node.ways:
        left = end - time.monotonic()
        if troubles and left < _LEAST_TIME:
            break
        try:
            ran = await aside(run, command, left, limit=left + 1.5)
        except OSError as error:
            troubles.append(f"{command[0]} could not be started ({error.strerror or error})")
            continue
        except TimeoutError:
            troubles.append(f"no answer within {limit:.0f} s")
            break
        if ran.status is None:
            troubles.append(f"no answer within {limit:.0f} s")
            break
        try:
            return NodeAnswer(node, parse_facts(ran.out))
        except ValueError as error:
            troubles.append(_describe_failure(ran, str(error)))
    return NodeAnswer(node, None, "; ".join(dict.fromkeys(troubles)))


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
        ran = await aside(run, (program, *command[1:]), limit, limit=limit + 0.5)
    except (OSError, TimeoutError) as error:
        raise HangbisectError(f"{name} did not answer: {error}") from None
    if ran.status is None:
        raise HangbisectError(f"{name} did not answer within {limit:.0f} s")
    if ran.status:
        raise UsageError(f"{name} says: {find_error_line(ran.err) or f'status {ran.status}'}", help)
    return ran.out


def parse_facts(printed: bytes) -> NodeFacts:
    """Return the facts in what a machine printed: the last line that is an object. Whatever
    carried it may have said something of its own before.

    Raises ValueError if there are none.
    """
    for line in reversed(printed.decode(errors="replace").splitlines()):
        if not line.lstrip().startswith("{"):
            continue
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the end of something else
        if isinstance(data, dict) and "ranks" in data:
            try:
                return from_json(NodeFacts, data)
            except Misfit as error:
                told = f"its facts are of another version of hangbisect ({error})"
                raise ValueError(told) from None
    raise ValueError("it printed no facts")


def find_error_line(said: str) -> str:
    """Return the telling line of what a failed program said on stderr: one of our own, else the
    last.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line.removeprefix("hangbisect: ") for line in lines if line.startswith("hangbisect: ")]
    return (own[:1] or lines[-1:] or [""])[0][:300]


def _describe_failure(ran: Ran, fallback: str) -> str:
    if ran.status == _SEVERAL_JOBS_STATUS and "hangbisect: " not in ran.err and "attach" in ran.err:
        return "several jobs run there: --in NAME=VALUE takes the one whose ranks have that"
    return (find_error_line(ran.err) or fallback) if ran.status else fallback
