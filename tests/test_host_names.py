"""Names of nodes as people write them, and what is no such name."""

from __future__ import annotations

import pytest
from hangbisect.base.errors import UsageError
from hangbisect.base.host_names import MOST_NODES
from hangbisect.nodes.engines import read_named_nodes, read_slurm_nodes
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1,n2", ("n1", "n2")),
        (" n1 , n2,", ("n1", "n2")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("n[1-2,7]-ib,login", ("n1-ib", "n2-ib", "n7-ib", "login")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("10.0.0.7,10.0.0.8", ("10.0.0.7", "10.0.0.8")),
        ("2001:db8::7,[2001:db8::8]", ("2001:db8::7", "2001:db8::8")),
        ("a.example.org,b.example.org", ("a.example.org", "b.example.org")),
    ],
)
def test_names_and_ranges(text: str, names: tuple[str, ...]) -> None:
    assert read_named_nodes(text) == names


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no node"),
        (",,", "names no node"),
        ("n1", "names only n1"),
        ("n1,n1", "names n1 twice"),
        ("n[1-3],n2", "names n2 twice"),
        ("-oProxyCommand=x,n2", "it would be an option"),
        ("n1,n 2", "is no name"),
        ("n1,n2;reboot", "is no name"),
        ("n1,user@n2", "is no name"),
        ("n[1-1000000]", f"more than {MOST_NODES} names"),
        ("n[1-9999999999999999999999]", f"more than {MOST_NODES} names"),
        ("a[1-200]b[1-200]", f"more than {MOST_NODES} nodes"),
        ("n[3-1]", "ends before it begins"),
        ("n[1-", "not closed"),
        ("n[],m", "the range []"),
        ("n[a-b]", "the range [a-b]"),
    ],
)
def test_what_is_no_list_of_nodes_is_said_in_a_sentence(text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        read_named_nodes(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.help


@given(st.text(max_size=40))
def test_whatever_is_given_is_names_or_one_sentence(text: str) -> None:
    try:
        names = read_named_nodes(text)
    except UsageError:
        return
    assert len(set(names)) == len(names) >= 2
    assert not any(name.startswith("-") or name != name.strip() for name in names)


def test_without_an_allocation_it_is_said_how_to_have_one() -> None:
    with pytest.raises(UsageError, match="no SLURM_JOB_ID") as error:
        read_slurm_nodes({"SLURM_CONF": "/etc/slurm.conf"})
    assert "salloc" in error.value.help
    assert "--hosts" in error.value.help
