"""GLOO_SOCKET_IFNAME names an interface that this machine has not.

Names differ between nodes and images (aws-samples/aws-do-eks PR 51; `^lo,docker` is NCCL's
syntax, not gloo's). gloo says "Unable to find address for" and raises. A control: a crash must
be called a crash.
"""

from __future__ import annotations

from hangbisect.zoo.case import Case, Truth

CASE = Case(
    id="I46",
    title="GLOO_SOCKET_IFNAME of no interface: a crash",
    cluster="C6",
    reports=("aws-samples/aws-do-eks PR 51",),
    truth=Truth(
        outcome="crash",
        culprit=(0, 1),
        checkpoint="training",
        component=("strategy",),
        cause=("no-such-interface",),
        avoids=("gloo_socket_ifname=lo",),
    ),
    environment={"GLOO_SOCKET_IFNAME": "nope0"},
)
