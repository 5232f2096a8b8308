"""Two ranks with a DataLoader worker each, and nothing is wrong.

A control. It also has what cases of hangs have: a fork after threads, and tokenizers.
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="J43",
    title="a healthy job with workers",
    cluster="control",
    reports=(),
    truth=Truth(outcome="ok"),
    options=("--num-workers", "1"),
)
