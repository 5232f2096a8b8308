"""Clocks of nodes that are apart, and what checks the time."""

from __future__ import annotations

import pytest
from hangbisect.base.rank_facts import ClockOffset

from ..made_up import ALL_REDUCE, gone, job, rank
from .scenes import Facts, Shows, causes_of

# Words of OpenSSL (x509_txt.c), of AWS's S3 (Error Responses), of google-auth (jwt.py), of MIT
# Kerberos (krb5_err.et) and of munge (munge_error.c).
NOT_YET = (
    "SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: "
    "certificate is not yet valid (_ssl.c:1006)"
)
EXPIRED = NOT_YET.replace("certificate is not yet valid", "certificate has expired")
TIME_ERRORS = (
    "ClientError: An error occurred (RequestTimeTooSkewed) when calling the GetObject operation",
    "ValueError: Token used too early, 1700000000 < 1700003600. Check that your computer's clock "
    "is set correctly.",
    "GSSError: Clock skew too great",
    "RuntimeError: auth/munge: Munge decode failed: Rewound credential",
)


def failed(error: str, *clocks: ClockOffset, host: str = "n2") -> Facts:
    ranks = [rank(0, ALL_REDUCE, ALL_REDUCE, host="n1"), gone(1, 1, error, left_at=90.0, host=host)]
    return job("crash", clocks=clocks), ranks


def clocks_apart() -> Facts:
    return failed(NOT_YET, ClockOffset("n1", 0.0, 0.0), ClockOffset("n2", -3600.0, 0.001))


SHOWS: Shows = {"clocks-apart": clocks_apart}


def test_which_clock_is_apart_is_said_and_by_how_much() -> None:
    found = causes_of(clocks_apart())["clocks-apart"]
    assert found.level == "seen"
    assert "the clock of n2 is 60 min behind that of n1" in " ".join(found.matched)


@pytest.mark.parametrize("error", [NOT_YET, *TIME_ERRORS])
def test_what_only_a_wrong_clock_brings_about_needs_no_other_clock(error: str) -> None:
    found = causes_of(failed(error))
    assert found["clocks-apart"].level == "fits"


def test_a_certificate_may_have_expired_by_every_clock() -> None:
    assert "clocks-apart" not in causes_of(failed(EXPIRED))
    apart = ClockOffset("n2", 3e8, 0.001)
    assert "clocks-apart" in causes_of(failed(EXPIRED, ClockOffset("n1", 0.0, 0.0), apart))


@pytest.mark.parametrize(("ahead", "error"), [(1.5, 0.0), (3.0, 1.5)])
def test_clocks_that_are_apart_by_less_than_is_known_are_not(ahead: float, error: float) -> None:
    clocks = (ClockOffset("n1", 0.0, 0.0), ClockOffset("n2", ahead, error))
    assert "clocks-apart" not in causes_of(failed(EXPIRED, *clocks))


def test_clocks_apart_are_no_cause_of_what_checks_no_time() -> None:
    clocks = (ClockOffset("n1", 0.0, 0.0), ClockOffset("n2", 3600.0, 0.001))
    assert "clocks-apart" not in causes_of(failed("ValueError: no such shard", *clocks))
