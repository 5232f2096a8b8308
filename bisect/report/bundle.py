"""Makes one .zip of a run folder for an attachment: redacted, at most 5 MiB, with a manifest.

The most useful files are in it whole, then parts of the others. The same files give the same
bytes; the .zip is written aside and renamed.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from ..base.errors import UsageError
from ..base.lazy_dataclass import dataclass
from ..base.version import VERSION
from ..base.words import format_bytes
from .bundle_contents import (
    REPORTS,
    Form,
    LeftOut,
    Source,
    escape_controls,
    parse_source,
    read_contents,
    redact_source,
)
from .redaction import Redactor, redactor_for
from .report_files import prepare_source, render_reports, replace_file, write_in_time
from .run_reader.run import RecordedRun, read_run

_HINT = "Name another file: --output FILE"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a .zip can name: the time of making says nothing
_READABLE = 0o644 << 16
_MANIFEST = "manifest.json"


def zip_files(folder: str, files: Mapping[str, str]) -> bytes:
    """Return a .zip with `files` (text by name) in one folder, in their order."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(f"{folder}/{name}", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = _READABLE
            entry.create_system = 3  # Unix, wherever it is made
            archive.writestr(entry, text.encode("utf-8", "replace"))
    return made.getvalue()


def write_bundle(path: Path, data: bytes) -> bool:
    """Write a bundle; return whether it took the place of an earlier one.

    Raises UsageError if something else is there, HangbisectError if it cannot be written.
    """

    def replace() -> bool:
        is_there = os.path.lexists(path)
        if is_there and not _is_our_bundle(path):
            raise UsageError(f"{path} is there already, and no bundle of ours", _HINT)
        replace_file(path, data)
        return is_there

    return write_in_time(path, replace, _HINT)


def _is_our_bundle(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            name = next(n for n in archive.namelist() if n.endswith(f"/{_MANIFEST}"))
            return str(json.loads(archive.read(name))["made_by"]).startswith("hangbisect ")
    except (OSError, ValueError, KeyError, TypeError, StopIteration, zipfile.BadZipFile):
        return False


MOST_BYTES = 5 << 20  # bytes of the .zip: what issue trackers and mail take
_FOR_THE_MANIFEST = 150_000
_HEADERS = 160  # bytes of a file's two entries in the .zip, beside its name
_LEAST = 2000  # characters of a part that is still of use
_LEVEL = 9


@dataclass(frozen=True)
class BundleFile:
    """A file as it stands in the bundle."""

    name: str
    rank: int
    form: Form
    text: str
    size: int  # of what it was made of, bytes
    cut: str = ""  # a sentence: what of it was cut
    # By kind; None: it was made of what had been redacted.
    replaced: Mapping[str, int] | None = None


def fit_files(
    files: Iterable[BundleFile], most: int = MOST_BYTES
) -> tuple[list[BundleFile], list[BundleFile]]:
    """Return the files that together take `most` bytes in a .zip, cut as needed, and what does not
    fit; both in order of use.
    """
    left = most - _FOR_THE_MANIFEST
    inside: list[BundleFile] = []
    outside: list[BundleFile] = []
    for file in sorted(files, key=lambda one: (one.rank, one.name)):
        for part in _split_file(file):
            needed = _zipped_size(part)
            if needed <= left:
                left -= needed
                inside.append(part)
                break
        else:
            outside.append(file)
    return inside, outside


def _zipped_size(file: BundleFile) -> int:
    data = file.text.encode("utf-8", "replace")
    return len(zlib.compress(data, _LEVEL)) + 2 * len(file.name.encode()) + _HEADERS


def _split_file(file: BundleFile) -> Iterator[BundleFile]:
    """Yield the file, then ever smaller parts of it that are whole by themselves."""
    yield file
    if file.form is Form.JSON:
        if (short := _last_looks(file.text)) is not None:
            yield replace(file, text=short, cut="only the last look at each process is kept")
        return
    text = file.text
    while len(text) > 2 * _LEAST:
        text = _half(text, file.form)
        kept = "begins" if file.form is Form.TEXT else "ends"
        yield replace(
            file, text=text, cut=f"{len(text):,} of {len(file.text):,} characters: how it {kept}"
        )


def _half(text: str, form: Form) -> str:
    """Return the better half of a text, in whole lines if it has lines."""
    middle = len(text) // 2
    if form is Form.TEXT:
        return text[: text.rfind("\n", 0, middle) + 1 or middle]
    return text[text.find("\n", middle, -1) + 1 or middle :]


def _last_looks(text: str) -> str | None:
    """Return evidence.json with one look a process; None if it is something else."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):  # a report in HTML; or it was no JSON from the beginning
        return None
    if not isinstance(data, dict) or not isinstance(data.get("ranks"), list):
        return None
    for process in _with_looks(data["ranks"]):
        process["looks"] = process["looks"][-1:]
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _with_looks(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if isinstance(value.get("looks"), list):
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _with_looks(item)


SCHEMA = 1
READ_LIMIT = 60.0  # seconds for the files to be read
_MOST_TOLD = 200  # files that are left out, by name


@dataclass(frozen=True)
class Bundle:
    """What was made."""

    path: Path
    size: int  # bytes
    replaced_one: bool  # an earlier bundle was there
    manifest: dict[str, Any]


def make_bundle(
    folder: Path, output: Path | None = None, *, anonymous: bool = False, most: int = MOST_BYTES
) -> Bundle:
    """Write a bundle of a run folder, of `most` bytes, to `output`, a file or a folder, or
    beside the run folder.

    Raises UsageError if there is no run in `folder`, or something else is at `output`;
    HangbisectError if it cannot be written.
    """
    run = read_run(folder)
    redactor = redactor_for(run, anonymous=anonymous)
    name = redactor.name(folder.resolve().name)
    files, manifest = _fill_bundle(run, folder, redactor, name, most)
    manifest_text = json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"
    texts = {"manifest.json": manifest_text, **{one.name: one.text for one in files}}
    data = zip_files(name, texts)
    path = output or folder.resolve().parent
    if output is None or path.is_dir():
        path = path / f"{name}.zip"
    return Bundle(path, len(data), write_bundle(path, data), manifest)


def _fill_bundle(
    run: RecordedRun, folder: Path, redactor: Redactor, name: str, most: int
) -> tuple[list[BundleFile], dict[str, Any]]:
    left_out: list[LeftOut] = []
    trouble: list[str] = []
    files = _kept_files(read_contents(folder, READ_LIMIT, left_out), redactor)
    files += _reports(run, redactor, trouble)
    inside, outside = fit_files(_named_once(files), most)
    left_out += [
        LeftOut(one.name, f"there is no place for it in {format_bytes(most)}") for one in outside
    ]
    manifest = {
        "schema": SCHEMA,
        "made_by": f"hangbisect {VERSION}",
        "run": name,
        "kind": run.kind,
        "outcome": run.outcome or None,
        "versions": redactor.json(dict(run.verdict.versions) if run.verdict else {}),
        "redaction": _count_redactions(inside, redactor),
        "files": [_manifest_entry(one) for one in inside],
        "left_out": [
            {
                "name": _redact_path(one.path, redactor),
                "why": redactor.text(escape_controls(one.why)),
            }
            for one in left_out[:_MOST_TOLD]
        ],
        "left_out_beside_these": max(0, len(left_out) - _MOST_TOLD),
        "missing": [redactor.text(escape_controls(one)) for one in (*run.missing, *trouble)],
    }
    return inside, manifest


def _kept_files(sources: Sequence[Source], redactor: Redactor) -> list[BundleFile]:
    """Return the files of the folder, redacted; what any of them tells is known in all."""
    held = [parse_source(source) for source in sources]
    for source, one in zip(sources, held, strict=True):
        if source.rule.form is Form.TAIL or source.rule.is_of_a_trial:  # the run's own is known
            redactor.learn(one)
    files = []
    for source, one in zip(sources, held, strict=True):
        before = Counter(redactor.counts)
        text = redact_source(source, one, redactor)
        replaced = dict(Counter(redactor.counts) - before)
        cut = ""
        if len(source.data) < source.size:
            cut = f"{format_bytes(len(source.data))} of {format_bytes(source.size)} were read"
        path = _redact_path(source.path, redactor)
        rank, form = source.rule.rank, source.rule.form
        files.append(BundleFile(path, rank, form, text, source.size, cut, replaced))
    return files


def _reports(run: RecordedRun, redactor: Redactor, trouble: list[str]) -> Iterator[BundleFile]:
    kept = prepare_source(run, redactor, reported=False)
    for name, text in render_reports(kept, trouble).items():
        text = escape_controls(text)
        yield BundleFile(name, REPORTS[name], Form.JSON, text, len(text.encode("utf-8", "replace")))


def _named_once(files: Sequence[BundleFile]) -> Iterator[BundleFile]:
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


def _count_redactions(files: Sequence[BundleFile], redactor: Redactor) -> dict[str, Any]:
    replaced: Counter[str] = Counter()
    for file in files:
        replaced.update(file.replaced or {})
    return {
        "anonymous": redactor.anonymous,
        "secrets": redactor.secrets,
        "replaced": dict(sorted(replaced.items())),
    }


def _manifest_entry(file: BundleFile) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": file.name, "bytes": len(file.text.encode("utf-8", "replace"))}
    if file.replaced is None:
        entry["made"] = "fresh, of the files of the run"
    else:
        entry["of_bytes"] = file.size
    return {**entry, "cut": file.cut} if file.cut else entry


def _redact_path(path: str, redactor: Redactor) -> str:
    shown = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "/".join(redactor.name(part) for part in shown.split("/"))
