"""What ended ranks that raised, on the page."""

from __future__ import annotations

from dataclasses import replace

from hangbisect.base.verdict_facts import Ranks, Verdict
from hangbisect.report.html.page import html_page
from hangbisect.report.html.page_parts import tracebacks

from .made_up import by_class, job, parsed, plain, text_of

BEGIN = "Traceback (most recent call last):\n"
RAISED = f'{BEGIN}  File "a.py", line 3, in f\n    <script>raise</script>\nValueError: bad\n'
FOLLOWED = f"{BEGIN}ConnectionError: closed by peer\n"
CRASH = Verdict("crash", "", (), 0, 4, None, Ranks(culprit=(2,)))


def test_ranks_that_raised_the_same_share_one_and_the_culprit_is_first() -> None:
    texts = (FOLLOWED, FOLLOWED, RAISED, "Thread 1 (idle)")
    stacks = {f"rank-{rank}.txt": text for rank, text in enumerate(texts)}
    found = tracebacks(replace(job(4), stacks=stacks), CRASH)
    assert [(one.who, one.culprit) for one in found] == [("rank 2", True), ("ranks 0-1", False)]
    assert [(len(indent), words) for indent, words in found[0].lines] == [
        (0, BEGIN.strip()),
        (2, 'File "a.py", line 3, in f'),
        (4, "<script>raise</script>"),
        (0, "ValueError: bad"),
    ]


def test_of_a_long_one_the_end_is_kept() -> None:
    text = BEGIN + "".join(f"line {n}\n" for n in range(5000))
    (one,) = tracebacks(replace(job(4), stacks={"rank-2.txt": text}), CRASH)
    assert one.lines[-1] == ("", "line 4999")
    assert one.left_out + len(one.lines) == 5001


def test_they_stand_on_the_page_as_text() -> None:
    root = parsed(html_page(replace(job(4), stacks={"rank-2.txt": RAISED}), plain()))
    (shown,) = by_class(root, "traceback")
    assert "<script>raise</script>" in text_of(shown)
    assert "ValueError: bad" in text_of(shown)
