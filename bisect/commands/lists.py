"""The commands that list something, or explain one of it: causes, toggles, jobs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..base.argument_types import nearest
from ..base.errors import UsageError
from . import make_parser

HELP = {
    "causes": """List the known causes of hangs, or explain one.

hangbisect causes              all of them, family by family
hangbisect causes ID           why it happens, how it is recognised, what avoids it and at what
                               cost, and who reported it
hangbisect causes [ID] --json  the same, to be read by a program
""",
    "toggles": """\
List what can be changed about a run, from as you run it to safest, or explain one toggle.

hangbisect toggles                all of them
hangbisect toggles NAME           how it is applied, when it is read, what it costs to live with
hangbisect toggles [NAME] --json  the same, to be read by a program
""",
    "jobs": """List the jobs that run here, whether they move, and what to do next.

hangbisect              the same
""",
}

T = TypeVar("T")


def causes(argv: list[str]) -> int:
    """Print the list, or one cause."""
    from ..diagnosis.causes.catalogue import FAMILIES
    from ..report.catalogues import cause_json, explain_cause, list_causes

    parser = make_parser("causes", HELP["causes"])
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("id", nargs="?", metavar="ID", help="the cause to explain")
    args = parser.parse_all(argv)
    table = {known.id: (known, family) for family in FAMILIES for known in family.causes}
    if args.id is not None and args.id not in table:
        raise _make_unknown_name_error("cause", args.id, args.id, table)
    chosen = None if args.id is None else table[args.id]
    if args.json:
        _print_json(table, chosen, lambda one: cause_json(*one))
    else:
        print(list_causes(FAMILIES) if chosen is None else explain_cause(*chosen))
    return 0


def toggles(argv: list[str]) -> int:
    """Print the table, or one toggle."""
    from ..report.catalogues import explain_toggle, list_toggles, toggle_json
    from ..toggles.table import TOGGLES

    parser = make_parser("toggles", HELP["toggles"])
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the toggle to explain")
    args = parser.parse_all(argv)
    # By its name, its flag or its variable: make_logs_dir, --make-logs-dir, NCCL_P2P_DISABLE.
    asked = None if args.name is None else args.name.lstrip("-").replace("-", "_").lower()
    table = {entry.name: entry for entry in TOGGLES}
    if asked is not None and asked not in table:
        raise _make_unknown_name_error("toggle", args.name, asked, table)
    chosen = None if asked is None else table[asked]
    if args.json:
        _print_json(table, chosen, toggle_json)
    else:
        print(list_toggles(TOGGLES) if chosen is None else explain_toggle(chosen))
    return 0


def _make_unknown_name_error(
    what: str, name: str, asked: str, table: Mapping[str, Any]
) -> UsageError:
    return UsageError(
        f"there is no {what} {name!r}{nearest(asked, table)}",
        f"`hangbisect {what}s` lists them all.",
    )


def _print_json(table: Mapping[str, T], chosen: T | None, as_json: Callable[[T], object]) -> None:
    data = [as_json(one) for one in table.values()] if chosen is None else as_json(chosen)
    print(json.dumps(data, indent=2, ensure_ascii=False))


def jobs(argv: list[str]) -> int:
    """Print the jobs; return 0."""
    make_parser("jobs", HELP["jobs"]).parse_all(argv)
    return asyncio.run(_print_jobs())


async def _print_jobs() -> int:
    from ..attach.answer import list_jobs
    from ..attach.job_search import find_jobs

    print("\n".join(await list_jobs(await find_jobs())))
    return 0
