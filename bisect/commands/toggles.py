"""List what can be changed about a run, from as you run it to safest, or explain one toggle.

hangbisect toggles                all of them
hangbisect toggles NAME           how it is applied, when it is read, what it costs to live with
hangbisect toggles [NAME] --json  the same, to be read by a program
"""

from __future__ import annotations

import json

from ..base.argument_types import Parser, nearest
from ..base.errors import UsageError


def run(argv: list[str]) -> int:
    """Print the table, or one toggle."""
    from ..report import toggles
    from ..toggles.table import TOGGLES

    parser = Parser(prog="hangbisect toggles", epilog=__doc__)
    parser.add_argument("-h", "--help", action="help", help="show this")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("name", nargs="?", metavar="NAME", help="the toggle to explain")
    args = parser.parse_all(argv)
    # By its name, its flag or its variable: make_logs_dir, --make-logs-dir, NCCL_P2P_DISABLE.
    asked = None if args.name is None else args.name.lstrip("-").replace("-", "_").lower()
    by_name = {entry.name: entry for entry in TOGGLES}
    if asked is not None and asked not in by_name:
        raise UsageError(
            f"there is no toggle {args.name!r}{nearest(asked, by_name)}",
            "`hangbisect toggles` lists them all.",
        )
    chosen = TOGGLES if asked is None else (by_name[asked],)
    if args.json:
        data = [toggles.toggle_json(entry) for entry in chosen]
        print(json.dumps(data if asked is None else data[0], indent=2, ensure_ascii=False))
    elif asked is None:
        print(toggles.list_toggles(TOGGLES))
    else:
        print(toggles.explain_toggle(chosen[0]))
    return 0
