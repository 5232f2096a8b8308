"""The declared list of checks."""

from __future__ import annotations

import re

import pytest
from hangbisect.doctor.catalogue import FAMILIES
from hangbisect.doctor.examination import Check

CHECKS = [check for family in FAMILIES for check in family.checks]


def test_every_check_has_a_name_of_its_own() -> None:
    ids = [check.id for check in CHECKS]
    assert len(ids) == len(set(ids))
    assert len({family.title for family in FAMILIES}) == len(FAMILIES)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_every_check_says_what_must_hold_and_why(check: Check[object]) -> None:
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", check.id)
    assert not check.title.endswith(".")
    assert check.why.endswith(".")
