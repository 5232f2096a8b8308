"""Write docs/causes/: a page for each known cause, and their list, from the declarations.

    python docs/make_causes.py

The words are those of bisect/diagnosis/causes/. tests/test_docs_causes.py fails while a page is not
what they say.
"""

from __future__ import annotations

import importlib
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent / "causes"
_MADE = "<!-- made from the code: python docs/make_causes.py -->"
_KINDS = {"needed": "needed", "supporting": "makes it likelier", "against": "rules it out"}


def pages() -> dict[str, str]:
    """Return the text of each page by the name of its file."""
    families = _ours("diagnosis.causes.catalogue").FAMILIES
    found = {"README.md": "\n".join(_list(families)) + "\n"}
    for family in families:
        for known in family.causes:
            found[f"{known.id}.md"] = "\n".join(_page(known, family)) + "\n"
    return found


def _ours(name: str) -> Any:
    """Return a module of the package, which somebody has imported as `hangbisect`."""
    return importlib.import_module(f"hangbisect.{name}")


def _list(families: Any) -> Iterator[str]:
    count = sum(len(family.causes) for family in families)
    yield f"# {count} known causes"
    yield ""
    yield _MADE
    yield ""
    yield "What a verdict can name as the cause of a hang, or of an end that people take for one."
    yield "Each page says why it happens, how it is recognised, what avoids it and at what cost,"
    yield "and who reported it. `hangbisect causes` lists them, `hangbisect causes ID` explains"
    yield "one. A hang that fits none is located all the same; its cause is then `unknown`."
    for family in families:
        yield ""
        yield f"## {family.title}"
        yield ""
        yield "| cause | what happened |"
        yield "|---|---|"
        for known in family.causes:
            title = escaped(known.title)
            yield f"| [{known.id}]({known.id}.md) | {title} |"


def _page(known: Any, family: Any) -> Iterator[str]:
    words = _ours("report.catalogues")
    title = escaped(known.title)
    yield f"# {title[:1].upper()}{title[1:]}"
    yield ""
    yield _MADE
    yield ""
    yield f"`{known.id}`: {escaped(family.title)}. [All causes](README.md)"
    yield ""
    yield escaped(known.why)
    yield ""
    yield "## How it is recognised"
    yield ""
    yield f"Looked for when a job {words.outcomes(known)}. {words.levels_in_words(known)}"
    yield ""
    yield "| sign | |"
    yield "|---|---|"
    for sign in known.signs:
        yield f"| {escaped(sign.words)} | {_KINDS[words.kind_of(sign)]} |"
    yield ""
    yield "## What avoids it"
    yield ""
    for text in known.avoid:
        yield f"- {escaped(text)}"
    for option, cost in words.settings(known):
        yield f"- `{option}` {escaped(cost)}"
    if known.references:
        yield ""
        yield "## Reported"
        yield ""
        for reference in known.references:
            yield f"- [{reference}]({words.link(reference)})"


def escaped(text: str) -> str:
    """Return words of a declaration as Markdown: {name} slanted, nothing else taken for marks."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        re.sub(r"\{(\w+)\}", r"<\1>", part) if part.startswith("`") else _plain(part)
        for part in parts
    )


def _plain(text: str) -> str:
    text = re.sub(r"([*<>\[\]|])", r"\\\1", text)
    return re.sub(r"\{(\w+)\}", lambda match: f"*{match[1].replace('_', ' ')}*", text)


if __name__ == "__main__":
    # It puts the checkout into sys.modules as `hangbisect`.
    runpy.run_path(str(FOLDER.parents[1] / "bisect" / "__main__.py"), run_name="checkout")
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for file in FOLDER.glob("*.md"):
        if file.name not in made:
            file.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
