"""Names of checkpoints and phases that a command is asked about."""

from __future__ import annotations

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.pipeline import check_timeouts, known_names, names_of

OURS = ("torchrun", "-m", "bisect", "--pipeline", "startup")


def test_a_name_that_the_pipeline_does_not_have_is_refused_with_the_nearest() -> None:
    check_timeouts(["", "launcher", "wandb_logger", "process_group"], OURS)
    with pytest.raises(UsageError, match="did you mean 'wandb_logger'"):
        check_timeouts(["wandb_loger"], OURS)


def test_of_a_pipeline_that_there_is_not_no_name_is_wrong() -> None:
    assert names_of("other") == ()
    check_timeouts(["x"], ("-m", "bisect", "--pipeline", "other"))
    assert known_names(("-m", "bisect")) == names_of("startup")
