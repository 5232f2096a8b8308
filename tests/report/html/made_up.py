"""Runs as they lie in folders, and the page of one taken apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from xml.etree.ElementTree import Element

import made_up_job
from hangbisect.base.json_codec import from_json, to_json
from hangbisect.base.verdict_facts import Verdict
from hangbisect.report.redaction import Redactor
from hangbisect.report.run_reader.run import RecordedRun, read_run
from hangbisect.report.run_reader.run_files import JobEnvironment
from tinyhtml5.parser import HTMLParser

# Of these only certain words are valid.
_WORDS = ("outcome", "kind", "t", "rung", "seen_by", "state", "family", "level")


@cache
def job(ranks: int, stacks: int = 2) -> RecordedRun:
    """Return the run folder of a made-up job as it is read."""
    with TemporaryDirectory() as folder:
        made_up_job.write(Path(folder) / "run", ranks, stacks)
        return replace(read_run(Path(folder) / "run"), folder=Path("run"))


def with_texts(run: RecordedRun, change: Callable[[str], str]) -> RecordedRun:
    """Return a run in which every text that is free is another one, also the names of things."""

    def changed(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            return value if key in _WORDS else change(value)
        if isinstance(value, Mapping):
            return {
                (change(k) if key in ("versions", "0", "1") else k): changed(v, k)
                for k, v in value.items()
            }
        if isinstance(value, list | tuple):
            return type(value)(changed(one, key) for one in value)
        return value

    return replace(
        run,
        verdict=run.verdict and from_json(Verdict, changed(to_json(run.verdict))),
        events=changed(run.events),
        evidence=changed(run.evidence),
        environment=run.environment
        and from_json(JobEnvironment, changed(to_json(run.environment))),
        missing=(*run.missing, change("missing")),
    )


def with_a_child(run: RecordedRun) -> RecordedRun:
    """Return a run in which the first rank that was looked at has a child that looks like it."""
    evidence = deepcopy(dict(run.evidence or {}))
    first = evidence["ranks"][0]
    first["children"] = [first["looks"]]
    return replace(run, evidence=evidence)


def parsed(page: str) -> Element:
    """Return the elements of a page. Raises AssertionError if it is no valid HTML."""
    parser = HTMLParser(namespace_html_elements=False)
    root: Element = parser.parse(page)
    assert parser.errors == []
    for one in root.iter():
        one.tag = str(one.tag).rpartition("}")[2]  # without the namespace of SVG
    return root


def text_of(element: Element) -> str:
    return "".join(element.itertext())


def by_class(root: Element, name: str) -> Iterator[Element]:
    return (one for one in root.iter() if name in one.get("class", "").split())


def plain() -> Redactor:
    return Redactor()
