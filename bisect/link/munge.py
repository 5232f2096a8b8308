"""Munge, which Slurm has on all its nodes: whoever shows a credential of it runs as the user that
the credential names, on a machine that has the cluster's key (munge(1), unmunge(1)).

A node that has no token sends a secret that the lead alone can read: only a process of the same
user may decode it. That secret is the token of their connection.
"""

from __future__ import annotations

import os
import secrets
import shutil

from ..base.deadline import call_with_limit, run_command
from .framing import Refused

_LIMIT = 2.0  # seconds for munged to answer
_LIFETIME = 60  # seconds for which a credential holds: clocks of nodes may be apart
_LONGEST = 4096  # characters of a credential; one of ours has some 250
_SECRET_SIZE = 32  # bytes
_KEYS = ("STATUS", "UID")


def has_munge() -> bool:
    """Return whether this is a job of Slurm's whose nodes can prove their user by munge."""
    programs = ("munge", "unmunge")
    return "SLURM_JOB_ID" in os.environ and all(map(shutil.which, programs))


async def make_secret() -> tuple[bytes, str]:
    """Return a new secret, and the credential that it is in. Raises Refused."""
    secret = secrets.token_hex(_SECRET_SIZE).encode()
    words = ["munge", f"--restrict-uid={os.getuid()}", f"--ttl={_LIFETIME}"]
    status, printed, error = await _run(words, secret)
    if status != 0 or not printed.startswith(b"MUNGE:"):
        raise Refused(f"munge made no credential: {error or status}")
    return secret, printed.decode().strip()


async def read_secret(credential: object) -> bytes:
    """Return the secret in a credential that a process of this user made. Raises Refused."""
    is_one = isinstance(credential, str) and credential.startswith("MUNGE:")
    if not isinstance(credential, str) or not is_one or len(credential) > _LONGEST:
        raise Refused("what it showed is no credential of munge")
    words = ["unmunge", f"--keys={','.join(_KEYS)}", "--numeric"]
    status, printed, error = await _run(words, credential.encode())
    head, _, secret = printed.partition(b"\n\n")
    found = dict(line.split(":", 1) for line in head.decode(errors="replace").splitlines())
    if status != 0 or found.get("STATUS", "").strip() != "0":
        raise Refused(f"munge does not accept its credential: {error or status}")
    if found.get("UID", "").strip() != str(os.getuid()):
        raise Refused(f"it is of user {found.get('UID', '').strip()}, and we of {os.getuid()}")
    if len(secret) != 2 * _SECRET_SIZE:
        raise Refused("its credential of munge has no secret")
    return secret


async def _run(words: list[str], given: bytes) -> tuple[int | None, bytes, str]:
    """Return the status, what was printed, and the error. Raises Refused."""
    try:
        ran = await call_with_limit(run_command, words, _LIMIT, given, limit=_LIMIT + 1.0)
    except (OSError, TimeoutError, RuntimeError) as error:
        raise Refused(f"{words[0]}: {error}") from None
    return ran.status, ran.out, " ".join(ran.err.split())[-200:]
