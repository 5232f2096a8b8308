"""What holds of every declaration, whoever wrote it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from hangbisect.diagnosis.causes.catalogue import CAUSES, FAMILIES, find_known_cause
from hangbisect.diagnosis.causes.known_cause import (
    LEAST_AGREEMENT,
    Found,
    KnownCause,
    Scene,
    Sign,
    also,
    need,
)
from hangbisect.toggles.table import TOGGLES

from ...examples import for_each
from ..made_up import job, look, rank
from .scenes import scene_of

EACH = for_each(CAUSES, lambda known: known.id)


def advice(known: KnownCause) -> Iterator[str]:
    yield from known.avoid
    yield known.why


def test_names_are_unique_and_of_one_kind() -> None:
    names = [known.id for known in CAUSES]
    assert len(names) == len(set(names))
    assert [name for name in names if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name)] == []
    assert [find_known_cause(name) for name in names] == list(CAUSES)
    assert find_known_cause("nothing") is None


def test_families_say_what_their_causes_have_in_common() -> None:
    assert [family.name for family in FAMILIES if not family.title or not family.causes] == []
    assert len({family.title for family in FAMILIES}) == len(FAMILIES)


@EACH
def test_every_sign_says_what_it_looks_for(known: KnownCause) -> None:
    for sign in known.signs:
        assert sign.words, f"{sign.looks_for} has no docstring"
        assert sign.words[:1].upper() == sign.words[:1]
        assert len(sign.words) < 160, sign.words


@EACH
def test_weights_are_shares_of_certainty(known: KnownCause) -> None:
    needed = [sign for sign in known.signs if sign.needed]
    assert needed, "nothing rules it out"
    assert all(0.0 < sign.weight < 1.0 for sign in known.signs if not sign.against)
    doubt = 1.0
    for sign in needed:
        doubt *= 1.0 - sign.weight
    assert 1.0 - doubt >= LEAST_AGREEMENT, "what it needs does not make it worth saying"


@EACH
def test_titles_are_whole_and_without_values(known: KnownCause) -> None:
    assert known.title
    assert "{" not in known.title
    assert not known.title.endswith(".")
    assert known.why.endswith(".")
    assert known.avoid


@EACH
def test_toggles_are_remedies_that_there_are(known: KnownCause) -> None:
    by_name = {entry.name: entry for entry in TOGGLES}
    for name, value in known.toggles:
        entry = by_name[name]
        assert entry.kind == "remedy", f"{name} is a probe: it makes nearly every hang vanish"
        assert entry.accepts != "choice" or value in entry.values


@EACH
def test_references_are_public(known: KnownCause) -> None:
    for reference in known.references:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|https://\S+", reference), reference


def test_a_fact_that_two_signs_show_counts_once() -> None:
    def shows(_: Scene) -> Found:
        """It is so."""
        return Found("it is so")

    def doubts(_: Scene) -> Found:
        """It may be so."""
        return Found("it may be so", trust=0.5)

    def made(*signs: Sign) -> float:
        known = KnownCause("x", "x", signs, why="x.", outcomes=("ok",))
        cause = known.match(scene_of((job("done"), [rank(0, look())])))
        assert cause is not None
        return cause.agreement

    assert made(need(shows, 0.6), also(shows, 0.5)) == 0.6
    assert made(need(doubts, 0.6)) == 0.3
    assert made(need(shows, 0.6), also(doubts, 0.5)) == 0.7


# ---- advice that makes things worse --------------------------------------------------------------


@EACH
def test_no_advice_makes_things_worse(known: KnownCause) -> None:
    for text in advice(known):
        # pytorch/pytorch#129672: it makes healthy jobs hang, or die.
        assert "TORCH_DISTRIBUTED_DEBUG=DETAIL" not in text.replace(" ", "")
        if re.search(r"\b(spawn|forkserver)\b", text):
            assert "guard" in " ".join(advice(known)), "it runs the script again without one"
        if "NCCL_P2P_DISABLE" in text:
            assert "cost" in text, "it makes all traffic between GPUs slower"


# ---- what matchers may look at -------------------------------------------------------------------


def _constants(file: Path) -> Iterator[str]:
    """Yield every string in a module that is no docstring."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in docstrings:
            yield text


def _our_names(package: Path, checkout: Path) -> set[str]:
    """Return what a matcher could know us, or a case of the zoo, by."""
    names = {"bisect", "hangbisect", "injection", "injections"}
    for folder in ("rank", "pipelines", "zoo"):
        names |= {f"{folder}/{file.name}" for file in (package / folder).rglob("*.py")}
    for file in (checkout / "scenarios" / "zoo").glob("*.py"):
        names |= {file.name, file.stem}
    return names


def test_no_matcher_knows_our_own_names(package: Path, checkout: Path) -> None:
    ours = _our_names(package, checkout)
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(ours)))})(?![\w-])")
    case = re.compile(r"\bI\d\d\b")
    found = [
        f"{file.name}: {text!r}"
        for file in sorted((package / "diagnosis" / "causes").glob("*.py"))
        for text in _constants(file)
        if pattern.search(text) or case.search(text)
    ]
    assert found == []
