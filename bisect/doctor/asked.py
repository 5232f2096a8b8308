"""How somebody on the network answered a question, and in words."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from typing import Literal

PATIENCE = 3.0  # seconds for an answer

# "silent": connected, and then nothing; "refused", "unreachable", "unknown name": failed at once.
State = Literal["answers", "silent", "no connection", "refused", "unreachable", "unknown name"]
IN_WORDS = {
    "silent": f"accepts the connection and says nothing for {PATIENCE:g} s",
    "no connection": f"does not answer within {PATIENCE:g} s",
    "refused": "refuses the connection",
    "unreachable": "cannot be reached",
    "unknown name": "is not found: nobody here knows its name",
}


@dataclass(frozen=True)
class Asked:
    """How somebody answered, after how many seconds; `detail` in its own or the kernel's words."""

    state: State
    seconds: float = 0.0
    detail: str = ""


ANSWERED = Asked("answers")


def unverified() -> ssl.SSLContext:
    """Return what encrypts and trusts everybody."""
    # Whether it answers is asked, not who it is: nothing is sent that anybody may not know.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def failed(error: OSError, took: float, connected: bool) -> Asked:
    """Return what an error says of who was asked; `connected`: it came after that."""
    if isinstance(error, TimeoutError):
        return Asked("silent" if connected else "no connection", took)
    if connected:
        return Asked("answers", took, str(error))  # it ended the connection: that is an answer
    if isinstance(error, socket.gaierror):
        return Asked("unknown name", took, error.strerror or "")
    if isinstance(error, ConnectionRefusedError):
        return Asked("refused", took)
    return Asked("unreachable", took, error.strerror or str(error))
