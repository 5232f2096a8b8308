"""What is open for the command is open for the program below `hangbisect run`, and nothing else."""

from __future__ import annotations

import itertools

import pytest

from .side_by_side import Beside


def test_descriptors_that_a_shell_opened_are_the_programs(beside: Beside) -> None:
    program = "$RUN bash -c 'echo x >&7; cat <&8; cat <(echo hi)'"
    both = beside(f"exec 7>seven 8<<<eight; {program}; cat seven; rm seven").check()
    assert both.plain.out == "eight\nhi\nx\n"


def test_a_file_that_a_process_writes_to_a_descriptor_is_read(beside: Beside) -> None:
    """`--config <(envsubst < c.yaml)`: the descriptor is the command's, not the program's own."""
    assert beside("$RUN cat <(echo one) <(echo two)").check().plain.out == "one\ntwo\n"


MAKEFILE = """
all: ; +@$(RUNS) $(MAKE) --no-print-directory sub
sub: a b
a b: ; @echo made >> made; sleep 0.2
"""


def test_the_job_server_of_make_is_handed_down(beside: Beside) -> None:
    """GNU make says "jobserver unavailable" where its descriptors are not there."""
    write = f"printf '%s' '{MAKEFILE}' > Makefile; "
    beside(write + "RUNS='$RUN ' make -s -j2 all; cat made; rm made Makefile").check()


def test_the_program_has_no_descriptor_more_and_none_less(beside: Beside) -> None:
    script = "exec 7</dev/null 30>&1; $RUN bash -c 'cd /proc/$$/fd; echo *; readlink 0 7'"
    beside(script).check()


CLOSED = [
    " ".join(each)
    for count in range(1, 4)
    for each in itertools.combinations(("<&-", ">&-", "2>&-"), count)
]


def test_closed_standard_streams_are_closed_for_the_program(beside: Beside) -> None:
    """Of all combinations: what is opened first takes the number that is free (open(2))."""
    runs = [
        f"$RUN bash -c 'cd /proc/$$/fd && echo * > $HOME/{number}; exit 4' {closed}; echo $?"
        for number, closed in enumerate(CLOSED)
    ]
    both = beside("; ".join([*runs, "cat ~/[0-9]; rm ~/[0-9]"])).check()
    assert both.plain.out.count("4\n") >= len(CLOSED), both


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_rank_with_closed_streams_ends_as_without_us(beside: Beside, closed: str) -> None:
    both = beside(f"$RUN $PYTHON $PROGRAMS/writes.py {closed}; echo $?; cat wrote; rm wrote")
    assert both.check().plain.out == "0\nwrote\n"


def test_a_thousand_descriptors_are_open_before_the_first_import(beside: Beside) -> None:
    both = beside("ulimit -n 4096; $RUN $PYTHON $PROGRAMS/opens.py 1100").check()
    assert "internal error" not in both.watched.err, both
    assert '"begin"' in (both.watched.folder / "run" / "events.jsonl").read_text(), both


def test_a_full_pipe_that_nobody_reads_waits_for_its_reader(beside: Beside) -> None:
    """Lines that come late, come: a reader that sleeps two seconds loses none."""
    script = "$RUN $PYTHON -c 'print(\"x\" * 300000)' | (sleep 2; wc -c)"
    assert beside(script).check().plain.out == "300001\n"


def test_standard_input_is_the_programs(beside: Beside) -> None:
    both = beside("(echo one; sleep 2; echo two) | $RUN cat; seq 3 | { $RUN head -n 1; cat; }")
    assert both.check().plain.out.startswith("one\ntwo\n1\n")
