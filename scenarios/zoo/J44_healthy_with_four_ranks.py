"""Four ranks on a machine with fewer cores, and nothing is wrong.

A control: everything takes longer, and imports of four ranks at once are slow.
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="J44",
    title="a healthy job with four ranks",
    cluster="control",
    reports=(),
    truth=Truth(outcome="ok"),
    ranks=4,
    limit=180.0,
)
