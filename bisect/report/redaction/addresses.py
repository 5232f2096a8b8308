"""Addresses of machines in a text: IPv4, IPv6 and MAC; those that every machine has stay."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter

from .pseudonyms import Pseudonyms

_BYTE = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_BYTE}(?:\.{_BYTE}){{3}}"
# At least three groups, the first as networks have it: `c10d::` of C++ is none, nor is 12:30:45.
_IPV6 = r"(?:fe[89ab][0-9a-f]|f[cd][0-9a-f]{2}|[23][0-9a-f]{3})(?::[0-9a-f]{0,4}){2,7}"
ADDRESS = re.compile(rf"{_IPV4}|\[?{_IPV6}\]?", re.IGNORECASE)
_IN_TEXT = re.compile(
    rf"(?<![\w.:-])(?P<four>{_IPV4})(?![\w-]|\.[0-9])|(?<![\w:.])(?P<six>{_IPV6})(?![\w:])"
    r"|(?<![\w:-])(?P<mac>[0-9a-f]{2}(?::[0-9a-f]{2}){5,19})(?![\w:])",
    re.IGNORECASE,
)
# In front of a version, which may have four parts too: nvidia-cublas-cu12 12.4.5.8, ==12.4.5.8
_VERSION = re.compile(
    r"(?:==|>=|<=|~=|version[:= ]*|[-_/ ]v|\b[a-z]+[\w-]*-cu[0-9]+[ =]+)\Z", re.IGNORECASE
)


def replaced(text: str, names: Pseudonyms, counts: Counter[str]) -> str:
    """Return `text` with pseudonyms for the addresses in it; ports stay."""

    def instead(found: re.Match[str]) -> str:
        if found["mac"]:
            counts["hardware address"] += 1
            return names.of("mac", found["mac"].lower())
        address = _parsed(found[0])
        if address is None or address.is_loopback or address.is_unspecified:
            return found[0]
        if _VERSION.search(text, max(0, found.start() - 40), found.start()):
            return found[0]
        if address.version == 4 and str(address).startswith(("255.", "224.")):
            return found[0]
        counts["address"] += 1
        return names.of("address", str(address))

    return _IN_TEXT.sub(instead, text) if "." in text or ":" in text else text


def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
