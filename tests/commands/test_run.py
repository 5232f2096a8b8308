"""What run says of a command line that it cannot follow, before anything is started."""

from __future__ import annotations

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.commands.run import run

OURS = ("torchrun", "-m", "bisect")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "run needs the command to start"),
        (["--stal", "3"], "there is no argument '--stal'; did you mean '--stall'"),
        (["x.py", "--", "true"], "there is no argument 'x.py'"),
        (["--timeout", "wandb_loger=3", "--", *OURS], "did you mean 'wandb_logger'?"),
        (["--timeout", "x=3", "--repeat", "2", "--", *OURS], "--timeout names 'x', which is none"),
    ],
)
def test_a_command_line_that_is_wrong_is_said_in_a_sentence(words: list[str], said: str) -> None:
    with pytest.raises(UsageError) as raised:
        run(words)
    assert said in str(raised.value)


def test_dashes_that_are_missing_are_put_where_they_belong() -> None:
    with pytest.raises(UsageError, match="-- is missing before the command 'python'") as raised:
        run(["--stall", "3", "python", "x.py", "--json"])
    assert raised.value.help == "hangbisect run --stall 3 -- python x.py --json"
