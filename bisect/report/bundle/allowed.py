"""Which files of a run folder go into a bundle: the one place to add another."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

_MIB = 1 << 20


class Form(Enum):
    """How a file is read, and so how it is redacted and cut."""

    JSON = "JSON"  # an object
    LINES = "lines of JSON"
    TEXT = "text"
    TAIL = "text, of which the end tells"


@dataclass(frozen=True)
class Rule:
    """Files of one kind. What has the largest `rank` is cut and left out first."""

    path: str  # a regular expression for the whole of it, below the folder of a run
    rank: int
    form: Form
    most: int  # bytes that are read
    is_of_a_trial: bool = False


REPORTS = {"report.md": 0, "report.html": 3, "trace.json": 6}  # their ranks; they are made fresh
RULES = (
    Rule(r"verdict\.json|isolation\.json|matrix\.json", 1, Form.JSON, 16 * _MIB),
    Rule(r"stacks/merged\.txt", 2, Form.TEXT, 4 * _MIB),
    Rule(r"environment\.json", 2, Form.JSON, 16 * _MIB),
    Rule(r"stacks/[^/]+\.txt", 4, Form.TEXT, _MIB),
    Rule(r"known-hang\.json", 5, Form.JSON, _MIB),
    Rule(r"events\.jsonl", 7, Form.LINES, 16 * _MIB),
    Rule(r"output\.txt|junit\.xml", 8, Form.TAIL, _MIB // 4),
    Rule(r"evidence\.json", 9, Form.JSON, 64 * _MIB),
    Rule(
        r"logs/.+\.(?:log|txt|out|err|json|jsonl|ya?ml|toml|cfg|ini|csv)",
        10,
        Form.TAIL,
        _MIB // 4,
    ),
)
_OF_A_TRIAL = 20  # is added: the whole comes first
_BELOW = r"(?P<trial>trials/[0-9]{1,6}/)?(?:(?:node|attempt)-[0-9]{1,6}/)*"
_COMPILED = tuple((re.compile(rf"{_BELOW}(?:{rule.path})", re.DOTALL), rule) for rule in RULES)


def allowed(path: str) -> Rule | None:
    """Return the rule for a path below the folder of a run; None if it is not for a bundle."""
    for pattern, rule in _COMPILED:
        if found := pattern.fullmatch(path):
            if found["trial"]:
                return replace(rule, rank=rule.rank + _OF_A_TRIAL, is_of_a_trial=True)
            return rule
    return None
