"""Messages as bytes: whatever comes, in whatever pieces, it is a message of ours or refused."""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from itertools import pairwise
from typing import Any

import pytest
from hangbisect.link.channel import (
    LARGEST,
    MOST,
    Credentials,
    Decoder,
    Refused,
    Seal,
    answer_greeting,
    check_answer,
    check_welcome,
    make_greeting,
    make_seals,
    pack,
)
from hangbisect.link.messages import FROM_NODE, Digest, Echo, Join, RankWord, decode, encode
from hypothesis import given
from hypothesis import strategies as st

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=8,
)
MESSAGES = st.dictionaries(st.text(), JSON).map(lambda one: {**one, "t": "digest"})
KEY = bytes(32)


def read_all(decoder: Decoder, pieces: list[bytes]) -> list[dict[str, Any]]:
    found = []
    for piece in pieces:
        decoder.feed(piece)
        while (message := decoder.next()) is not None:
            found.append(message)
    return found


def cut(data: bytes, at: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(one % (len(data) + 1) for one in at)})
    return [data[a:b] for a, b in pairwise(ends)]


@given(st.lists(MESSAGES, max_size=5), st.lists(st.integers(0, 1 << 20), max_size=8))
def test_messages_come_out_as_they_went_in_however_they_are_cut(
    messages: list[dict[str, Any]], at: list[int]
) -> None:
    ours = Seal(KEY)
    data = b"".join(pack(one, ours) for one in messages)
    found = read_all(Decoder(Seal(KEY)), cut(data, at))
    assert json.dumps(found) == json.dumps(messages)


@given(st.binary(max_size=2000), st.booleans())
def test_garbage_is_refused_or_waited_for(data: bytes, is_sealed: bool) -> None:
    decoder, found = Decoder(Seal(KEY) if is_sealed else None), list[dict[str, Any]]()
    with contextlib.suppress(Refused):
        found = read_all(decoder, [data])
    assert not (is_sealed and found)
    assert all(isinstance(message["t"], str) for message in found)


@given(MESSAGES, st.integers(0, 1 << 20), st.integers(1, 255))
def test_a_sealed_message_that_was_changed_is_refused(
    message: dict[str, Any], at: int, by: int
) -> None:
    data = bytearray(pack(message, Seal(KEY)))
    data[4 + at % (len(data) - 4)] ^= by
    with pytest.raises(Refused):
        read_all(Decoder(Seal(KEY)), [bytes(data)])


def test_a_message_that_comes_again_or_out_of_turn_is_refused() -> None:
    ours = Seal(KEY)
    first, second = pack({"t": "a"}, ours), pack({"t": "b"}, ours)
    for pieces in ([first, first], [second], [first, second, first]):
        with pytest.raises(Refused, match="changed, left out or repeated"):
            read_all(Decoder(Seal(KEY)), pieces)


def test_sizes_are_refused_before_anything_is_kept() -> None:
    for size in (0, LARGEST + 1, (1 << 32) - 1):
        decoder = Decoder()
        decoder.feed(size.to_bytes(4, "big"))
        with pytest.raises(Refused, match="no message of the link"):
            decoder.next()
    with pytest.raises(ValueError, match="is the most"):
        pack({"t": "a", "text": "x" * LARGEST})


def test_one_connection_may_send_only_so_much() -> None:
    """However short it is made on its way."""
    for text in ("x" * (LARGEST - 100), os.urandom(LARGEST // 2 - 100).hex()):
        decoder, data = Decoder(), pack({"t": "a", "text": text})
        with pytest.raises(Refused, match="64 MiB"):
            read_all(decoder, [data] * (MOST // (LARGEST - 200) + 1))
        decoder.most = 2 * MOST  # as time goes by
        read_all(decoder, [data])


def test_what_is_longer_than_a_message_once_it_is_decompressed_is_refused() -> None:
    words = {"t": "a", "text": "ranks wait " * 1000}
    assert len(pack(words)) < 500
    assert read_all(Decoder(), [pack(words)]) == [words]
    for text in (b'{"t": "a"}'.ljust(LARGEST + 1), b" " * (1 << 28)):
        body = zlib.compress(text)
        with pytest.raises(Refused, match="too long"):
            read_all(Decoder(), [len(body).to_bytes(4, "big") + body])
    body = zlib.compress(json.dumps(words).encode())[:-4]
    with pytest.raises(Refused, match="cut off"):
        read_all(Decoder(), [len(body).to_bytes(4, "big") + body])


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_a_digest_takes_at_most_64_bytes_a_rank(ranks: int) -> None:
    """As it goes over the network, with its length and its MAC."""
    step = "9 WandbLogger created"
    words = tuple(RankWord(n, "runs", step, still=n + 0.5) for n in range(ranks))
    assert len(pack(encode(Digest(words)), Seal(KEY))) <= 64 * ranks


@pytest.mark.parametrize(
    "text", ["NaN", '{"t": "a", "n": NaN}', '{"t": 1}', "[]", "[" * 9999, '{"t": "a"', "\xff", "1"]
)
def test_what_is_no_object_with_a_kind_is_refused(text: str) -> None:
    body = text.encode("latin-1")
    with pytest.raises(Refused):
        read_all(Decoder(), [len(body).to_bytes(4, "big") + body])


# ---- what messages say ---------------------------------------------------------------------------


def test_messages_of_a_newer_version_are_read_without_what_is_new() -> None:
    told = encode(Digest((RankWord(3, "runs", "4 Tokenizer loaded"),)))
    assert decode({**told, "color": "blue"}, FROM_NODE) == Digest(
        (RankWord(3, "runs", "4 Tokenizer loaded"),)
    )
    assert decode({"t": "something new"}, FROM_NODE) is None
    assert decode({"t": "beat", "at": 1.0}, FROM_NODE) is None, "only a lead says this"


@pytest.mark.parametrize(
    "told",
    [
        {"t": "echo", "beat": 1.0, "at": -1.0},
        {"t": "echo", "beat": 1.0, "at": 1e999},
        {"t": "digest", "ranks": [{"rank": 0, "state": "runs", "step": "1", "still": -2.0}]},
        {"t": "digest", "ranks": [{"rank": 0, "state": "flies", "step": "1"}]},
        {"t": "join", "node": "0", "host": "n1", "process": "a", "ranks": [0, 0], "world_size": 2},
        {"t": "join", "node": "0", "host": "n1", "process": "a", "ranks": [2], "world_size": 2},
        {"t": "join", "node": "", "host": "n1", "process": "a", "ranks": [0], "world_size": 2},
    ],
)
def test_what_cannot_be_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="cannot be"):
        decode(told, FROM_NODE)


def test_secrets_do_not_go_on_the_way() -> None:
    secret = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cE1gI3k"
    told = json.dumps(encode(Digest((RankWord(0, "runs", f"login with {secret}"),))))
    assert secret not in told


@given(st.dictionaries(st.text(max_size=5), JSON), st.sampled_from(["echo", "join", "report"]))
def test_any_object_is_a_message_or_refused(told: dict[str, Any], kind: str) -> None:
    try:
        said = decode({**told, "t": kind}, FROM_NODE)
    except Refused:
        return
    assert isinstance(said, Echo | Join)


# ---- the greeting --------------------------------------------------------------------------------


def greet(lead: Credentials, node: Credentials) -> tuple[tuple[Seal, Seal], tuple[Seal, Seal]]:
    greeting = make_greeting(lead)
    answer = answer_greeting(node, greeting)
    check_welcome(node, greeting, answer, check_answer(lead, greeting, answer))
    return make_seals(lead, greeting, answer), make_seals(node, greeting, answer)


@pytest.mark.parametrize("token", [b"", b"x" * 32, b"y" * 100])
def test_who_has_the_token_gets_the_same_keys(token: bytes) -> None:
    ours, theirs = greet(Credentials("job", token), Credentials("job", token))
    assert [one.key for one in ours] == [one.key for one in theirs]
    assert ours[0].key != ours[1].key, "what a node said cannot be sent back to it"
    again, _ = greet(Credentials("job", token), Credentials("job", token))
    assert again[0].key != ours[0].key, "nothing of one connection is of use in another"


@pytest.mark.parametrize(
    ("lead", "node", "why"),
    [
        (Credentials("a", b"x"), Credentials("a", b"y"), "does not have the token"),
        (Credentials("a", b"x"), Credentials("b", b"x"), "another job"),
        (Credentials("a", b"x"), Credentials("a"), "we have none"),
        (Credentials("a"), Credentials("a", b"x"), "it has none"),
    ],
)
def test_others_are_refused_in_a_sentence(lead: Credentials, node: Credentials, why: str) -> None:
    with pytest.raises(Refused, match=why):
        greet(lead, node)


def test_who_listens_must_have_the_token_too() -> None:
    node, greeting = Credentials("a", b"x"), make_greeting(Credentials("a", b"x"))
    answer = answer_greeting(node, greeting)
    for welcome in ({"t": "in"}, {"t": "in", "proof": "00"}, {"t": "in", "proof": answer["proof"]}):
        with pytest.raises(Refused, match="who listens there"):
            check_welcome(node, greeting, answer, welcome)


@pytest.mark.parametrize("said", [{"t": "lead", "v": 2}, {"t": "HTTP"}, {"t": "lead", "v": 1}])
def test_another_version_or_something_else_is_refused(said: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        answer_greeting(Credentials("a"), {"secret": False, **said})
