"""What was masked in a report. Facts only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Masked:
    """How much a redactor found."""

    secrets: int = 0  # different ones
    counts: Mapping[str, int] = field(default_factory=dict)  # places, by kind: "W&B key", ...

    @property
    def words(self) -> str:
        """Return it in words, "" if nothing was masked."""
        if not self.counts:
            return ""
        kinds = ", ".join(f"{kind} {number}×" for kind, number in sorted(self.counts.items()))  # noqa: RUF001  # times
        secrets = f"{self.secrets} secret{'' if self.secrets == 1 else 's'}" if self.secrets else ""
        return f"{secrets} ({kinds})" if secrets else kinds


NOTHING = Masked()
