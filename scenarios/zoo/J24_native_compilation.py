"""Rank 0 compiles its kernels for longer than the deadline; the others wait.

"394 s instead of 13 s for the first step" (radixark/miles#3158): a cold cache. The rank itself
sits still in waitpid; its children, one compiler after the other, work. A control: slow, not
hung.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth

SECONDS = 20.0
KERNEL = """
double k{n}(double *x, int n) {{
    double s = 0;
    for (int i = 0; i < n; i++)
        s += x[i] * {n};
    return s;
}}
"""


def load_model(given: Any) -> Any:
    """Return the model, after its kernels have been compiled on rank 0."""
    import subprocess
    import time
    from pathlib import Path

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    model = run_usual_step(given)
    if rank_number(given) == 0:
        end = time.monotonic() + SECONDS
        number = 0
        while time.monotonic() < end:
            source = Path(f"kernels{number}.c")
            names = range(number * 10_000, number * 10_000 + 400)
            source.write_text("\n".join(KERNEL.format(n=n) for n in names))
            subprocess.run(["gcc", "-O3", "-c", "-o", f"{source}.o", str(source)], check=True)
            number += 1
    return model


CASE = Case(
    id="J24",
    title="rank 0 compiles for long: slow, not hung",
    cluster="C21",
    reports=("radixark/miles#3158",),
    truth=Truth(outcome="ok", slow="model"),
    uses={"model": "load_model"},
    options=("--timeout", "model=8"),
    needs=("gcc",),
    limit=120.0,
)
