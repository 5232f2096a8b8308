"""A bundle of a run folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from ...version import VERSION
from ..kept.run import KeptRun, read
from ..making import material, texts
from ..redaction import Redactor, redactor_for
from .allowed import REPORTS, Form
from .archive import write, zipped
from .clean import cleaned, harmless, objects
from .contents import LeftOut, Source, contents
from .fitting import MOST, File, fitted

SCHEMA = 1
LIMIT = 60.0  # seconds for the files to be read
_MOST_TOLD = 200  # files that are left out, by name


@dataclass(frozen=True)
class Bundle:
    """What was made."""

    path: Path
    size: int  # bytes
    replaced_one: bool  # an earlier bundle was there
    manifest: dict[str, Any]


def bundle(
    folder: Path, output: Path | None = None, *, anonymous: bool = False, most: int = MOST
) -> Bundle:
    """Write a bundle of a run folder, of `most` bytes, to `output`, a file or a folder, or
    beside the run folder.

    Raises UsageError if there is no run in `folder`, or something else is at `output`;
    HangbisectError if it cannot be written.
    """
    run = read(folder)
    redactor = redactor_for(run, anonymous=anonymous)
    name = redactor.name(folder.resolve().name)
    files, manifest = _made(run, folder, redactor, name, most)
    manifest_text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    texts = {"manifest.json": manifest_text, **{one.name: one.text for one in files}}
    data = zipped(name, texts)
    path = output or folder.resolve().parent
    if output is None or path.is_dir():
        path = path / f"{name}.zip"
    return Bundle(path, len(data), write(path, data), manifest)


def _made(
    run: KeptRun, folder: Path, redactor: Redactor, name: str, most: int
) -> tuple[list[File], dict[str, Any]]:
    left_out: list[LeftOut] = []
    trouble: list[str] = []
    files = _kept_files(contents(folder, LIMIT, left_out), redactor)
    files += _reports(run, redactor, trouble)
    inside, outside = fitted(_named_once(files), most)
    left_out += [
        LeftOut(one.name, f"there is no place for it in {most:,} bytes") for one in outside
    ]
    manifest = {
        "schema": SCHEMA,
        "made_by": f"hangbisect {VERSION}",
        "run": name,
        "kind": run.kind,
        "outcome": run.outcome or None,
        "versions": redactor.json(dict(run.verdict.get("versions", {}))),
        "redaction": _redaction(inside, redactor),
        "files": [_told(one) for one in inside],
        "left_out": [
            {"name": _path(one.path, redactor), "why": redactor.text(harmless(one.why))}
            for one in left_out[:_MOST_TOLD]
        ],
        "left_out_beside_these": max(0, len(left_out) - _MOST_TOLD),
        "missing": [redactor.text(harmless(one)) for one in (*run.missing, *trouble)],
    }
    return inside, manifest


def _kept_files(sources: Sequence[Source], redactor: Redactor) -> list[File]:
    """Return the files of the folder, redacted; what any of them tells is known in all."""
    held = [objects(source) for source in sources]
    for source, one in zip(sources, held, strict=True):
        if source.rule.form is Form.TAIL or source.rule.is_of_a_trial:  # the run's own is known
            redactor.learn(one)
    files = []
    for source, one in zip(sources, held, strict=True):
        before = Counter(redactor.counts)
        text = cleaned(source, one, redactor)
        replaced = dict(Counter(redactor.counts) - before)
        cut = ""
        if len(source.data) < source.size:
            cut = f"{len(source.data):,} of {source.size:,} bytes were read"
        path = _path(source.path, redactor)
        rank, form = source.rule.rank, source.rule.form
        files.append(File(path, rank, form, text, source.size, cut, replaced))
    return files


def _reports(run: KeptRun, redactor: Redactor, trouble: list[str]) -> Iterator[File]:
    kept = material(run, redactor, reported=False)
    for name, text in texts(kept, trouble).items():
        text = harmless(text)
        yield File(name, REPORTS[name], Form.JSON, text, len(text.encode("utf-8", "replace")))


def _named_once(files: Sequence[File]) -> Iterator[File]:
    """Yield the files, each with a name of its own."""
    taken: set[str] = {"manifest.json"}
    for file in files:
        path = PurePosixPath(file.name)
        name, number = file.name, 2
        while name.lower() in taken:
            name = str(path.with_name(f"{path.stem} ({number}){path.suffix}"))
            number += 1
        taken.add(name.lower())
        yield replace(file, name=name)


def _redaction(files: Sequence[File], redactor: Redactor) -> dict[str, Any]:
    replaced: Counter[str] = Counter()
    for file in files:
        replaced.update(file.replaced or {})
    return {
        "anonymous": redactor.anonymous,
        "secrets": redactor.secrets,
        "replaced": dict(sorted(replaced.items())),
    }


def _told(file: File) -> dict[str, Any]:
    told: dict[str, Any] = {"name": file.name, "bytes": len(file.text.encode("utf-8", "replace"))}
    if file.replaced is None:
        told["made"] = "fresh, of the files of the run"
    else:
        told["of_bytes"] = file.size
    return {**told, "cut": file.cut} if file.cut else told


def _path(path: str, redactor: Redactor) -> str:
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "/".join(redactor.name(part) for part in shown.split("/"))
