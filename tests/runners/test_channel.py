"""Hints over a channel: a peer that does not read costs nothing."""

from __future__ import annotations

import selectors
import socket
import time

from edt_runner.channel import Channel


def test_a_hint_to_a_peer_that_does_not_read_is_dropped_at_once() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours, write_seconds=60.0)
    start = time.monotonic()

    for number in range(5000):
        channel.hint({"kind": "report", "seq": number})

    assert time.monotonic() - start < 60.0
    assert not channel.closed
    peer = Channel(theirs)
    assert peer.read()[0] == {"kind": "report", "seq": 0}
    channel.close()
    peer.close()


def test_a_hint_to_a_peer_that_is_gone_is_dropped() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.close()

    channel.hint({"kind": "report", "seq": 1})

    assert not channel.closed
    assert channel.read() == []
    assert channel.closed
    channel.close()


def test_a_peer_that_is_found_gone_while_sending_is_still_seen_by_whoever_selects() -> None:
    ours, theirs = socket.socketpair()
    channel = Channel(ours)
    theirs.close()

    channel.send({"kind": "report"})

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
            channel.post({"kind": "metrics", "number": number, "text": "x" * 200})
        assert channel.backlog > 0 and not channel.closed
        reader, got = Channel(theirs), []
        while len(got) < 3000:
            got += reader.read()
            channel.pump()
        assert [message["number"] for message in got] == list(range(3000))
