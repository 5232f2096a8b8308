"""Put a run into one .zip for an attachment: at most 5 MiB, secrets masked, nothing is sent.

hangbisect bundle runs/20261120T174812-a1               runs/20261120T174812-a1.zip
hangbisect bundle runs/... --output hang.zip
hangbisect bundle runs/... --anonymous                  users, hosts, addresses are masked as well
hangbisect bundle runs/iso-20261120T180201              an isolation or a matrix, with its starts

In it are the reports (made fresh), verdict, stacks, environment, events, evidence, and the ends of
the job's own logs; manifest.json says what was cut, left out and masked.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base.argument_types import Parser
from ..base.errors import UsageError
from ..base.words import format_bytes
from ..report.issue.markdown import Masked


def run(argv: list[str]) -> int:
    """Make it, and print where it is and what was masked."""
    parser = Parser(prog="hangbisect bundle", epilog=__doc__)
    add = parser.add_argument
    add("-h", "--help", action="help", help="show this")
    add("--output", metavar="FILE", help="the .zip (beside the run folder, with its name)")
    add("--anonymous", action="store_true", help="pseudonyms for users, homes, hosts, addresses")
    add("--json", action="store_true", help="its manifest, as JSON")
    add("folder", nargs="?", metavar="RUN", help="the folder of a run, an isolation or a matrix")
    args = parser.parse_all(argv)
    if args.folder is None:
        raise UsageError("bundle needs a run folder", "hangbisect bundle runs/20261120T174812-a1")

    from ..report.bundle import make_bundle

    output = Path(args.output) if args.output else None
    made = make_bundle(Path(args.folder), output, anonymous=args.anonymous)
    if args.json:
        told = {"path": str(made.path), "bytes": made.size, **made.manifest}
        print(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        print("\n".join(_lines(made.path, made.size, made.manifest)))
    if made.replaced_one:
        print(f"hangbisect: an earlier bundle was replaced: {made.path}", file=sys.stderr)
    for sentence in made.manifest["missing"]:
        print(f"hangbisect: {sentence}", file=sys.stderr)
    return 0


def _lines(path: Path, size: int, manifest: Mapping[str, Any]) -> Iterator[str]:
    yield f"{path}: {len(manifest['files'])} files, {format_bytes(size)}; attach it to an issue"
    found = manifest["redaction"]
    masked = Masked(found["secrets"], found["replaced"])
    yield f"masked: {masked.words or 'no secret was found'}"
    cut = [one["name"] for one in manifest["files"] if "cut" in one]
    left = len(manifest["left_out"]) + manifest["left_out_beside_these"]
    if cut or left:
        yield f"{len(cut)} cut, {left} left out: manifest.json in it says which, and why"
    yield f"look into it before you attach it: unzip -l {shlex.quote(str(path))}"
