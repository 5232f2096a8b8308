"""What NCCL_SOCKET_IFNAME, NCCL_IB_HCA and GLOO_SOCKET_IFNAME name, in the spelling of each."""

from __future__ import annotations

from .lazy_dataclass import dataclass


@dataclass(frozen=True)
class Wanted:
    """What a value of NCCL_SOCKET_IFNAME or NCCL_IB_HCA says."""

    names: tuple[str, ...]
    exact: bool = False
    excluded: bool = False

    def fits(self, name: str) -> bool:
        """Return whether NCCL would take an interface of this name."""
        if not self.names:  # NCCL: without a list every name is in it
            return not self.excluded
        among = name in self.names if self.exact else name.startswith(self.names)
        return among != self.excluded


def parse_nccl(value: str) -> Wanted:
    """Return what a value means to NCCL: prefixes, separated by commas, each with an optional port
    (`mlx5_0:1`); `=` before the list for exact names, `^` for all others, `^=` for both.

    As parseStringList and ncclFindInterfaces have it (src/misc of NCCL).
    """
    excluded = value.startswith("^")
    value = value.removeprefix("^")
    exact = value.startswith("=")
    names = (word.partition(":")[0] for word in value.removeprefix("=").split(","))
    return Wanted(tuple(name for name in names if name), exact, excluded)


def parse_gloo(value: str) -> tuple[str, ...]:
    """Return the interfaces that a value of GLOO_SOCKET_IFNAME names: exact, separated by commas;
    one character alone counts as not set (createProcessGroupGloo, torch's c10d/init.cpp).
    """
    return tuple(value.removesuffix(",").split(",")) if len(value) > 1 else ()
