"""The standard library's six names, for whoever imports `bisect` in our checkout; `step` and
`capture` when they are asked for.
"""

from _bisect import bisect_left as bisect_left
from _bisect import bisect_right as bisect_right
from _bisect import insort_left as insort_left
from _bisect import insort_right as insort_right

bisect = bisect_right
insort = insort_right


def __getattr__(name: str) -> type:
    if name == "step":  # with hangbisect.step("build index"):
        from .rank.watched.user_functions import step

        return step
    if name == "capture":  # hangbisect.capture(module)
        from .captures.forward_hooks import capture

        return capture  # type: ignore[return-value]  # a function: users call both alike
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
