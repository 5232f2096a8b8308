"""Asking machines side by side, and the programs that know of them, each with a time limit."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from ...errors import HangbisectError, UsageError
from ...evidence.aside import Ran, aside, run
from ...evidence.programs import executable
from ...report.kept.readers import reader
from ..node_facts import NodeFacts
from .node import Answer, Node

_SEVERAL = 2  # exit status of `attach` that asks which job is meant
_LEAST = 1.0  # seconds for a way to be worth trying


async def ask(nodes: Sequence[Node], limit: float) -> list[Answer]:
    """Return what each machine answers within `limit` seconds, in their order."""
    return list(await asyncio.gather(*(_ask(node, limit) for node in nodes)))


async def _ask(node: Node, limit: float) -> Answer:
    end = time.monotonic() + limit
    troubles: list[str] = []
    for command in node.ways:
        left = end - time.monotonic()
        if troubles and left < _LEAST:
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
            return Answer(node, parse(ran.out))
        except ValueError as error:
            troubles.append(_why(ran, str(error)))
    return Answer(node, None, "; ".join(dict.fromkeys(troubles)))


async def output_of(command: Sequence[str], limit: float, instead: str, help: str = "") -> bytes:
    """Return what a program that knows the machines prints.

    Raises UsageError where there is none (`instead`: what to do then), or where it refuses (`help`:
    what to look at); HangbisectError where it does not answer within `limit` seconds.
    """
    name = command[0]
    program = executable(name)
    if program is None:
        raise UsageError(f"there is no {name} here", instead)
    try:
        ran = await aside(run, (program, *command[1:]), limit, limit=limit + 0.5)
    except (OSError, TimeoutError) as error:
        raise HangbisectError(f"{name} did not answer: {error}") from None
    if ran.status is None:
        raise HangbisectError(f"{name} did not answer within {limit:.0f} s")
    if ran.status:
        raise UsageError(f"{name} says: {last_words(ran.err) or f'status {ran.status}'}", help)
    return ran.out


def parse(printed: bytes) -> NodeFacts:
    """Return the facts in what a machine printed: the last line that is an object. Whatever
    carried it may have said something of its own before.

    Raises ValueError if there are none.
    """
    for line in reversed(printed.decode(errors="replace").splitlines()):
        if not line.lstrip().startswith("{"):
            continue
        try:
            data = json.loads(line)
            if isinstance(data, dict) and "ranks" in data:
                found: NodeFacts = reader(NodeFacts)(data)
                return found
        except (ValueError, RecursionError):
            continue  # the end of something else
        except (TypeError, KeyError) as error:
            raise ValueError(f"its facts are of another version of hangbisect ({error})") from None
    raise ValueError("it printed no facts")


def last_words(said: str) -> str:
    """Return the telling line of what a failed program said on stderr: one of our own, else the
    last.
    """
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line.removeprefix("hangbisect: ") for line in lines if line.startswith("hangbisect: ")]
    return (own[:1] or lines[-1:] or [""])[0][:300]


def _why(ran: Ran, fallback: str) -> str:
    if ran.status == _SEVERAL and "hangbisect: " not in ran.err and "attach" in ran.err:
        return "several jobs run there: --in NAME=VALUE takes the one whose ranks have that"
    return (last_words(ran.err) or fallback) if ran.status else fallback
