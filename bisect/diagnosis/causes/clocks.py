"""Clocks that are wrong, and what checks the time: certificates, tokens, signed requests."""

from __future__ import annotations

from ..other_nodes import describe_clocks_apart
from .known_cause import Found, KnownCause, Scene, also, describe_sign, need
from .signs import ended_with

# OpenSSL (crypto/x509/x509_txt.c), S3 (API reference, error responses), google-auth (jwt.py),
# Kerberos (krb5_err.et), munge (munge_error.c).
_WRONG_TIME = (
    r"certificate is not yet valid|RequestTimeTooSkewed|Token used too early"
    r"|[Cc]lock skew too great|Rewound credential"
)
_EXPIRED = r"certificate has expired|Expired credential|[Tt]oken (?:has )?expired"

_says_that_the_time_is_wrong = ended_with(_WRONG_TIME, "What it asked says that the time is wrong")
_says_that_it_is_too_late = ended_with(_EXPIRED, "What it asked says that it is too late")


@describe_sign("The time is wrong for what it asked, or too late while the nodes' clocks differ")
def _time_is_wrong(scene: Scene) -> Found | None:
    found = _says_that_the_time_is_wrong(scene)
    if found is None and describe_clocks_apart(scene.job.clocks):
        found = _says_that_it_is_too_late(scene)
    return found


def _clocks_are_apart(scene: Scene) -> Found | None:
    """The clocks of two nodes of the job are more than two seconds apart."""
    apart = describe_clocks_apart(scene.job.clocks)
    return Found(apart) if apart else None


CAUSES = (
    KnownCause(
        id="clocks-apart",
        title="a node's clock is wrong, and what checks the time refuses it",
        signs=(need(_time_is_wrong, 0.75), also(_clocks_are_apart, 0.7, proves=True)),
        why="Certificates, tokens and signed requests hold from one moment to another, by the "
        "clock of who checks them: a node whose clock is off is refused what others get.",
        avoid=(
            "on each node: timedatectl; chronyc tracking: is the clock synchronised?",
            "chronyc makestep, then start again; leave the node out until its clock is right",
        ),
        references=("facebookarchive/nuclide#847",),
        outcomes=("hang", "crash", "interrupted"),
    ),
)
