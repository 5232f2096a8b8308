"""Control: an old lock file lies in the hub's cache, and nobody holds it.

flock(2) locks end with their process; the file that stays behind is harmless. People remove it
anyway, and sometimes the hang is gone by then for another reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth


@contextlib.contextmanager
def left_behind(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts import servers

    home = place.tmp / "hf"
    with servers.serve_hub(place.tmp) as served:
        for file in served.etags:
            lock = served.lock(home, file)
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        yield Stage(environment={**served.environment, "HF_HOME": str(home)})


CASE = Case(
    id="I17",
    title="control: an old lock file that nobody holds",
    cluster="control",
    reports=("huggingface/huggingface_hub#2543",),
    truth=Truth(outcome="ok"),
    options=("--tokenizer", "people/small", "--until", "tokenizer"),
    stage=left_behind,
)
