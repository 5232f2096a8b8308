"""What is said over the link holds no secret, wherever it stood."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from hangbisect.base.node_record import NodeClock, make_node_record
from hangbisect.link.messages import Leave, RankLooks, Said, encode
from planted import planted

from ..diagnosis.made_up import SLEEP, job, rank
from .test_star import join_of, report_of


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_no_planted_secret_crosses_the_link(seed: int) -> None:
    """In a command, word by word, as in an environment, a local, a line that was printed, a note.
    Only the first line of a key of several is looked for.
    """
    crossed = []
    for one in planted(seed):
        words = tuple(shlex.split(one.text)) if one.place == "argv" else (one.text,)
        name, equals, value = one.text.partition("=")
        environment = {name: value} if equals and name.isidentifier() else {"TEXT": one.text}
        facts = replace(job("still", 4), command=("python", *words), notes=(one.text,))
        own = replace(rank(0, SLEEP, SLEEP), environment=environment)
        record = make_node_record("n1", facts, [own], NodeClock(1.0, 2.0))
        said: list[Said] = [
            replace(report_of(join_of(1)), record=record),
            RankLooks(own, looks=[{"command": list(words)}, environment]),
            Leave(one.text),
        ]
        crossed += [one for message in said if one.secret in json.dumps(encode(message))]
    assert crossed == []
