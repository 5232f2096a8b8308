"""Whether this user may have processes of ours beside the job's (RLIMIT_NPROC, getrlimit(2))."""

from __future__ import annotations

import os
import resource

_FEW = 256  # a limit of so many processes leaves room for the job's before ours
_ROOM = 32  # processes that must be left below such a limit


def why_no_room() -> str:
    """Return in words why no process of ours may be started, "" if it may: where there are few,
    they are the job's.
    """
    allowed = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if allowed == resource.RLIM_INFINITY or allowed > _FEW or os.geteuid() == 0:
        return ""
    used, user = 0, os.geteuid()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                used += os.stat(f"/proc/{name}").st_uid == user
            except OSError:
                continue
    if used + _ROOM <= allowed:
        return ""
    return f"this user may have {allowed} processes, and has {used}"
