"""What happens after each checkpoint: an option of the watch, and a toggle."""

from __future__ import annotations

MODES = ("off", "observe", "lockstep")
DEFAULT = "lockstep"
HELP = (
    "after each checkpoint: nothing; only write down who arrived; hold every rank until all are "
    "there"
)
