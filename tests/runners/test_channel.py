"""Hints over a channel: a peer that does not read costs nothing."""

from __future__ import annotations

import selectors
import socket
import time

import pytest

from edt_contract.encoding import dump_line
from edt_runner.protocol.channel import Channel, LineChannel
from edt_runner.protocol.messages import Message, MetricsLogged, Note


def test_a_hint_to_a_peer_that_does_not_read_is_dropped_at_once() -> None:
    ours, theirs = socket.socketpair()
    channel = LineChannel(ours, write_seconds=60.0)
    start = time.monotonic()

    for number in range(5000):
        channel.hint(b"report %d\n" % number)

    assert time.monotonic() - start < 60.0
    assert not channel.closed
    peer = LineChannel(theirs)
    assert peer.read_lines()[0] == b"report 0"
    channel.close()
    peer.close()


def test_a_hint_to_a_peer_that_is_gone_is_dropped() -> None:
    ours, theirs = socket.socketpair()
    channel = LineChannel(ours)
    theirs.close()

    channel.hint(b"report 1\n")

    assert not channel.closed
    assert channel.read_lines() == []
    assert channel.closed
    channel.close()


def test_a_peer_that_is_found_gone_while_sending_is_still_seen_by_whoever_selects() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.close()

    channel.send(Note("nobody reads this"))

    assert channel.closed
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        assert selector.select(1.0)
        assert channel.read() == []
        selector.unregister(channel)
    channel.close()


def test_posting_to_a_peer_that_does_not_read_never_blocks_and_loses_nothing() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        for number in range(3000):
            channel.post(Note(f"{number} {'x' * 200}"))
        assert channel.backlog > 0 and not channel.closed
        reader = Channel(theirs)
        got: list[Message] = []
        while len(got) < 3000:
            got += reader.read()
            channel.pump()
        assert [message.text.split()[0] for message in got if isinstance(message, Note)] == [
            str(number) for number in range(3000)
        ]


def test_a_line_that_is_no_message_closes_the_connection_and_the_log_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours)
        theirs.sendall(dump_line(MetricsLogged(1)) + b'{"kind":"unheard-of"}\n')
        assert channel.read() == [] and channel.closed
    assert "unknown kind 'unheard-of'" in caplog.text
