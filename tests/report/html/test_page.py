"""report.html as a whole: valid, complete, and never anything but text of what a run holds."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from hangbisect.base.checkpoints import STARTUP_BY_NAME
from hangbisect.base.verdict_facts import Outcome
from hangbisect.report.html.page import html_page
from hangbisect.report.run_reader.run import RecordedRun, RecordedTrial, read_run
from hangbisect.report.run_reader.run_files import JobEnvironment
from hangbisect.search.cells import RecordedMatrix
from hangbisect.search.isolation import Isolation
from hypothesis import given, settings
from hypothesis import strategies as st

from ...examples import examples
from .made_up import by_class, job, parsed, plain, text_of, with_a_child, with_texts

PARTS = [
    *("Verdict", "Who waits for whom", "Timeline", "Stacks", "What differs between ranks"),
    *("Looks side by side", "This run"),
]
ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</title></style></script><svg onload=alert(1)>",
    "]]><!--",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt; &amp;",
    "\x1b[31mred\x1b[0m",
    "a\nb\r\nc\0d",
    "\udcff\ud800",
    "\u202egnp.exe",
    "../../etc/passwd",
    "x" * 5000,
]
HOSTILE = st.one_of(
    st.sampled_from(ATTACKS),
    st.lists(st.sampled_from(["<", ">", "&", '"', "'", "/", "script", "=", "`", "\\", "\0"])).map(
        "".join
    ),
    st.text(max_size=60),
)
# What a page is made of; whatever is not in here came from a run.
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "a", "header", "h1", "h2", "h3", "span"),
    *("p", "nav", "ul", "li", "main", "section", "dl", "dt", "dd", "strong", "code", "div", "svg"),
    *("defs", "marker", "path", "g", "rect", "text", "circle", "ol", "pattern", "label", "input"),
    *("output", "line", "details", "summary", "table", "caption", "thead", "tbody", "tr", "th"),
    *("td", "footer", "script", "b"),
}
ATTRIBUTES = {
    *(
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "href",
        "id",
        "tabindex",
        "role",
    ),
    *("aria-label", "aria-labelledby", "aria-hidden", "width", "height", "viewBox", "refX", "refY"),
    *("markerWidth", "markerHeight", "orient", "d", "marker-end", "transform", "x", "y", "r"),
    *("patternUnits", "patternTransform", "hidden", "for", "type", "autocomplete", "x1", "x2"),
    *("y1", "y2", "data-who", "data-seconds", "open", "scope", "colspan", "title"),
}


def page(run: RecordedRun) -> Element:
    return parsed(html_page(run, plain()))


def outside(root: Element) -> list[str]:
    """Return what of a page no template of ours has."""
    found = [f"<{one.tag}>" for one in root.iter() if one.tag not in TAGS]
    found += [name for one in root.iter() for name in one.attrib if name not in ATTRIBUTES]
    found += [
        link
        for one in root.iter("a")
        if not (link := one.get("href", "")).startswith(("#", "./"))
        or ":" in link
        or "/../" in link
    ]
    return found


# ---- whole ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 8, 20])
def test_a_page_is_valid_and_has_all_parts(ranks: int) -> None:
    root = page(job(ranks, 3))
    assert [text_of(one).strip() for one in root.iter("h2")] == PARTS
    assert outside(root) == []
    number = STARTUP_BY_NAME["wandb_logger"].number
    assert text_of(next(root.iter("h1"))).split() == (
        ["Hang", "at", "checkpoint", f"{number},", "WandbLogger", "ready"]
    )


def test_headings_go_down_one_level_at_a_time_and_every_table_has_a_caption() -> None:
    root = page(with_a_child(job(8)))
    levels = [int(one.tag[1]) for one in root.iter() if one.tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert all(table[0].tag == "caption" for table in root.iter("table"))


def test_every_identifier_is_there_once_and_every_link_within_the_page_leads_to_one() -> None:
    root = page(job(8))
    names = [name for one in root.iter() if (name := one.get("id"))]
    assert len(names) == len(set(names))
    inside = [one.get("href", "")[1:] for one in root.iter("a")]
    assert inside
    assert set(inside) <= set(names)


def test_a_browser_is_told_to_load_nothing_and_to_run_this_script_alone() -> None:
    root = page(job(2))
    (policy,) = [
        one.get("content", "")
        for one in root.iter("meta")
        if one.get("http-equiv") == "Content-Security-Policy"
    ]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for name in ("script", "style"):
        (element,) = root.iter(name)
        digest = hashlib.sha256(text_of(element).encode()).digest()
        assert rules[f"{name}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"


# ---- hostile -------------------------------------------------------------------------------------


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_what_a_run_holds_is_shown_as_text(attack: str) -> None:
    run = with_texts(with_a_child(job(4, 3)), lambda text: f"{text[:20]}{attack}")
    root = page(run)
    assert outside(root) == []
    assert len(list(root.iter("script"))) == len(list(root.iter("style"))) == 1
    if attack.isprintable() and len(attack) < 80:
        shown = " ".join(attack.split())
        for part in ("facts", "box", "row", "frames", "looks"):
            assert any(shown in text_of(one) for one in by_class(root, part)), part


@settings(max_examples=examples(15))
@given(HOSTILE, st.booleans())
def test_no_text_makes_an_element(text: str, alone: bool) -> None:
    run = with_texts(job(2), (lambda _: text) if alone else (lambda old: old + text))
    made = html_page(run, plain())
    made.encode("utf-8")
    assert outside(parsed(made)) == []


def test_a_line_of_a_megabyte_is_cut_and_its_length_is_told() -> None:
    run = job(2)
    assert run.verdict
    verdict = replace(run.verdict, notes=("<i>" + "x" * (1 << 20),))
    made = html_page(replace(run, verdict=verdict), plain())
    assert len(made) < len(html_page(run, plain())) + 2000
    assert "1,048,579 characters" in made


def test_nothing_of_a_run_is_needed() -> None:
    empty = RecordedRun(Path("run"))
    assert "nobody wrote one" in text_of(page(empty))
    verdict = job(2).verdict
    for part in (RecordedRun(Path("run"), verdict=verdict), replace(job(2), verdict=None)):
        assert [text_of(one).strip() for one in page(part).iter("h2")] == PARTS


@pytest.mark.parametrize("outcome", ["ok", "hang", "slow", "crash", "interrupted"])
def test_every_outcome_has_its_page(outcome: Outcome) -> None:
    run = job(2)
    assert run.verdict
    root = page(replace(run, verdict=replace(run.verdict, outcome=outcome)))
    assert text_of(next(by_class(root, "outcome"))).lower() == outcome


# ---- secrets -------------------------------------------------------------------------------------


def test_a_secret_planted_in_any_field_is_not_in_the_page() -> None:
    planted: list[str] = []

    def with_a_secret(text: str) -> str:
        digest = hashlib.sha256(text.encode()).hexdigest()
        planted.append(f"hf_{digest[:34]}")
        return f"{text} {planted[-1]} "

    made = html_page(with_texts(with_a_child(job(8, 3)), with_a_secret), plain())
    assert len(set(planted)) > 100
    assert [secret for secret in planted if secret in made] == []
    assert "[Hugging Face token" in made  # what is there was seen


def test_the_value_of_a_variable_with_a_secret_name_is_a_mark_that_still_differs() -> None:
    run = job(2)
    ranks = {"0": {"WANDB_API_KEY": "correct-horse-1"}, "1": {"WANDB_API_KEY": "battery-staple"}}
    environment = replace(run.environment or JobEnvironment(), ranks=ranks)
    made = html_page(replace(run, environment=environment), plain())
    assert "WANDB_API_KEY" in made
    assert "correct-horse-1" not in made
    assert "battery-staple" not in made
    (table,) = [one for one in parsed(made).iter("table") if text_of(one[0]) == "WANDB_API_KEY"]
    values = {text_of(code) for code in table.iter("code")}
    assert len(values) == 2


# ---- trials --------------------------------------------------------------------------------------


def trials(
    *links: str,
    answer: Isolation | RecordedMatrix | None = None,
    kind: str = "isolation",
    result: str = "hang",
) -> RecordedRun:
    rows = tuple(
        RecordedTrial(at, f"wandb={link}", {"wandb": link}, result, "in wandb.init", 12.0, link)
        for at, link in enumerate(links, 1)
    )
    return RecordedRun(Path("iso"), kind=kind, trials=rows, answer=answer)


@pytest.mark.parametrize(
    ("result", "leads"), [("hang", "./trial-01/report.html"), ("pass", "./trial-01/")]
)
def test_each_start_leads_to_its_own_report_or_to_what_there_is_of_it(
    result: str, leads: str
) -> None:
    answer = Isolation("not_isolated", ("train.py",), (), 0.0, why="it varies")
    root = page(trials("trial-01", "", answer=answer, result=result))
    links = [one.get("href") for one in root.iter("a") if one.get("class") is None]
    assert links == [leads]
    assert text_of(next(root.iter("h1"))).startswith("Not isolated")
    assert "it varies" in text_of(root)


def test_the_starts_of_an_isolation_lie_in_a_folder_of_their_own() -> None:
    root = page(trials("trials/01"))
    links = [one.get("href") for one in root.iter("a") if one.get("class") is None]
    assert links == ["./trials/01/report.html"]


@pytest.mark.parametrize("attack", [*ATTACKS, "..", ".", "%2e%2e", "a b?c#d"])
def test_the_name_of_a_folder_is_no_address(attack: str) -> None:
    root = page(trials(attack))
    assert outside(root) == []
    links = [one.get("href", "") for one in root.iter("a") if one.get("class") is None]
    assert all(link.startswith("./") and link.endswith("/report.html") for link in links)
    assert all(link.count("/") == 2 for link in links)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"outcome": 7, "changes": "x", "command": [1], "with_it": [], "p_value": "x"},
        {"outcome": "isolated", "changes": [{}, 3], "with_it": {"starts": 3, "hangs": None}},
        {"outcome": "isolated", "seconds": float("nan"), "changes": [{"toggle": "wandb"}]},
        {"scenario": 3, "title": "x", "cells": [{"number": 1, "name": "a"}]},
    ],
)
@pytest.mark.parametrize("kind", ["isolation", "matrix"])
def test_whatever_lies_in_the_file_of_an_isolation_there_is_a_page(
    answer: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    (tmp_path / f"{kind}.json").write_text(json.dumps(answer))
    assert outside(page(read_run(tmp_path))) == []


def test_a_matrix_says_what_it_examines() -> None:
    matrix = RecordedMatrix("mine.yaml", "all loggers", "/", "", 3.0, 1, 3, True, ())
    assert "all loggers" in text_of(page(trials("a", answer=matrix, kind="matrix")))
