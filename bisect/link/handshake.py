"""How a node and the lead find out that they belong to one job and one user, before either says
anything else.

    lead  {"t": "lead", "v": 1, "nonce": ..., "secret": true}
    node  {"t": "node", "v": 1, "nonce": ..., "job": ..., "proof": ...}
    lead  {"t": "in", "proof": ...}

Who listens speaks first, so a node knows at once whether it has met a lead at a port. Each proves
by a MAC over both nonces that it has the token, without showing it; the keys of the connection are
made of the token and both nonces, so nothing of one connection is of use in another. Where a job
has no token, the proofs show nothing but that both speak of the same job; on Slurm a node sends a
token of its own then, which the lead alone can read ("munge", munge.py).
"""

from __future__ import annotations

import hmac
import os
from hashlib import blake2b

from ..base.lazy_dataclass import dataclass
from .framing import VERSION, Message, Refused, Seal

NONCE_SIZE = 16  # bytes
_LONGEST_TOKEN = 64  # bytes: the longest key that BLAKE2b takes (RFC 7693, 2.1)


@dataclass(frozen=True)
class Credentials:
    """What both sides have to have the same of."""

    job: str
    token: bytes = b""
    by_munge: bool = False  # of a node without a token munge may tell that it is of the same user

    @property
    def has_token(self) -> bool:
        return bool(self.token)

    @property
    def can_prove(self) -> bool:
        """Return whether the other side can be shown that we are of the same user."""
        return self.has_token or self.by_munge

    def prove(self, who: str, nonces: bytes) -> bytes:
        """Return the proof of one side, or a key: `who` says which."""
        proved = nonces + self.job.encode()
        key = self.token[:_LONGEST_TOKEN]
        return blake2b(proved, digest_size=32, key=key, person=who.encode()).digest()


def make_greeting(credentials: Credentials) -> Message:
    """Return what the lead says first."""
    nonce = os.urandom(NONCE_SIZE).hex()
    greeting = {"t": "lead", "v": VERSION, "nonce": nonce, "secret": credentials.has_token}
    return {**greeting, "munge": True} if credentials.by_munge else greeting


def answer_greeting(credentials: Credentials, greeting: Message) -> Message:
    """Return what a node answers a lead. Raises Refused if that is none, or none for this job."""
    _check(greeting, "lead")
    if greeting.get("secret") is not credentials.has_token:
        whose = "we have none" if greeting.get("secret") else "it has none"
        raise Refused(f"the lead and this node have no token in common: {whose}")
    nonce = os.urandom(NONCE_SIZE)
    proof = credentials.prove("node", _nonce_of(greeting) + nonce).hex()
    answer = {"t": "node", "v": VERSION, "nonce": nonce.hex(), "job": credentials.job}
    return {**answer, "proof": proof}


def check_answer(credentials: Credentials, greeting: Message, answer: Message) -> Message:
    """Return what the lead says to a node that it knows by its answer. Raises Refused."""
    _check(answer, "node")
    if answer.get("job") != credentials.job:
        raise Refused("it is of another job")
    nonces = _nonce_of(greeting) + _nonce_of(answer)
    if not _matches_proof(answer.get("proof"), credentials.prove("node", nonces)):
        raise Refused("it does not have the token of this job")
    return {"t": "in", "proof": credentials.prove("lead", nonces).hex()}


def check_welcome(
    credentials: Credentials, greeting: Message, answer: Message, welcome: Message
) -> None:
    """Check what the lead said to the node's answer. Raises Refused."""
    nonces = _nonce_of(greeting) + _nonce_of(answer)
    if welcome.get("t") != "in" or not _matches_proof(
        welcome.get("proof"), credentials.prove("lead", nonces)
    ):
        raise Refused("who listens there does not have the token of this job")


def make_seals(credentials: Credentials, greeting: Message, answer: Message) -> tuple[Seal, Seal]:
    """Return the seals of a connection: of what the lead sends, and of what the node sends."""
    nonces = _nonce_of(greeting) + _nonce_of(answer)
    return Seal(credentials.prove("from lead", nonces)), Seal(
        credentials.prove("from node", nonces)
    )


def _check(message: Message, kind: str) -> None:
    if message["t"] != kind:
        raise Refused("what it sent is no greeting of the link")
    if message.get("v") != VERSION:
        raise Refused(f"it speaks version {message.get('v')!r:.20} of the link, and we {VERSION}")


def _nonce_of(message: Message) -> bytes:
    value = message.get("nonce")
    try:
        nonce = bytes.fromhex(value) if isinstance(value, str) else b""
    except ValueError:
        nonce = b""
    if len(nonce) != NONCE_SIZE:
        raise Refused("what it sent is no greeting of the link")
    return nonce


def _matches_proof(claimed: object, proof: bytes) -> bool:
    return isinstance(claimed, str) and hmac.compare_digest(claimed.encode(), proof.hex().encode())
