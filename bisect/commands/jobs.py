"""List the jobs that run here, whether they move, and what to do next.

hangbisect              the same
"""

from __future__ import annotations

import asyncio

from ..base.argument_types import Parser


def run(argv: list[str]) -> int:
    """Print the jobs; return 0."""
    parser = Parser(prog="hangbisect jobs", epilog=__doc__)
    parser.add_argument("-h", "--help", action="help", help="show this")
    parser.parse_all(argv)
    return asyncio.run(_print())


async def _print() -> int:
    from ..attach.job_list import list_jobs
    from ..attach.jobs import find_jobs

    print("\n".join(await list_jobs(await find_jobs())))
    return 0
