"""All checks, family by family. A new family is a file with a FAMILY, and its name here."""

from __future__ import annotations

from . import (
    contradictions,
    devices,
    folders,
    interfaces,
    leftovers,
    limits,
    lock_files,
    names,
    nodes,
    pci,
    port,
    proxies,
    services,
    shared_memory,
    tracing,
)

FAMILIES = (
    contradictions.FAMILY,
    names.FAMILY,
    port.FAMILY,
    nodes.FAMILY,
    interfaces.FAMILY,
    proxies.FAMILY,
    services.FAMILY,
    leftovers.FAMILY,
    lock_files.FAMILY,
    folders.FAMILY,
    shared_memory.FAMILY,
    limits.FAMILY,
    devices.FAMILY,
    pci.FAMILY,
    tracing.FAMILY,
)
