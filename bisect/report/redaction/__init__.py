"""What a file that leaves may not hold: secrets, and on request who and where its job ran.

`Redactor` replaces both in texts, values and JSON by marks, the same for the same thing in all
files and ranks of one run. It is pure: it opens no file and asks no other process.
"""

from __future__ import annotations

from .pseudonyms import Known
from .redactor import Redactor
from .run_redaction import redactor_for

__all__ = ["Known", "Redactor", "redactor_for"]
