"""What was saved, however it was: compressed by gzip, or as a shell of Windows writes it. Pure."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib

_GZIP = b"\x1f\x8b"
_CHUNK = 1 << 20
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def unpacked(data: bytes, most: int) -> bytes:
    """Return `data`, unpacked if gzip has packed it: its first `most` bytes and one more at most.
    Of what is cut off in the middle there is what stands before that.
    """
    if not data.startswith(_GZIP):
        return data
    parts: list[bytes] = []
    left = most + 1
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        try:
            while left > 0 and (part := file.read(min(_CHUNK, left))):
                parts.append(part)
                left -= len(part)
        except (EOFError, OSError, zlib.error):
            pass
    return b"".join(parts)


def text_of(data: bytes) -> str:
    """Return the text that `data` is, in UTF-8 unless its first bytes say UTF-16."""
    coding = "utf-16" if data.startswith(_UTF_16) else "utf-8-sig"
    return data.decode(coding, "replace")
