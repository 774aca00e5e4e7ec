"""A gang without a framework: its ranks meet at MASTER_ADDR:MASTER_PORT and count together until a file is there.

counting_together.py [--until FILE] [--rounds N] [--pace SECONDS]

Rank 0 writes after each round how far they are, and a new attempt goes on from there. If a rank gets SIGTERM, all leave
after the same round. A rank that has lost another one does nothing more: the platform ends it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

GOING, ENDED, LEFT = b"g", b"e", b"l"
asked: list[int] = []
"""Whether this rank got SIGTERM."""


def connected(rank: int, world: int) -> list[socket.socket]:
    """Of rank 0 the connections to all others, of another rank the one to rank 0."""
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    if rank == 0:
        with socket.create_server(place, backlog=world) as server:
            return [server.accept()[0] for _ in range(world - 1)]
    while True:
        try:
            return [socket.create_connection(place, 1)]
        except OSError:
            time.sleep(0.02)


def heard(other: socket.socket) -> bytes:
    """What the other rank says next. If it is gone, wait for the end."""
    try:
        word = other.recv(1)
    except OSError:
        word = b""
    if not word:
        deadline = time.monotonic() + 60
        while not asked:
            if time.monotonic() > deadline:
                raise ConnectionError("another rank is gone, and nobody has ended this one")
            time.sleep(0.02)
        sys.exit(128 + signal.SIGTERM)
    return word


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--until", type=Path)
    parser.add_argument("--rounds", type=int, default=1 << 40)
    parser.add_argument("--pace", type=float, default=0.02)
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    folder = Path(os.environ["RESULT_DIR"])
    saved = folder / "rounds"
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))

    rounds = int(saved.read_text()) if saved.exists() else 0
    print(f"rank {rank} of {world} on {os.environ['MSD_POD_NAME']} begins at round {rounds}", flush=True)
    print(f"rank {rank} has no trouble", file=sys.stderr, flush=True)
    (folder / f"environment-{rank}.json").write_text(json.dumps(dict(os.environ)))
    others = connected(rank, world)
    while True:
        if rank == 0:
            words = {heard(other) for other in others} | ({LEFT} if asked else set())
            rounds += 1
            saved.with_suffix(".new").write_text(str(rounds))
            saved.with_suffix(".new").replace(saved)
            ended = rounds >= options.rounds or (options.until is not None and options.until.exists())
            verdict = LEFT if LEFT in words else ENDED if ended else GOING
            for other in others:
                other.sendall(verdict)
        else:
            others[0].sendall(LEFT if asked else GOING)
            verdict = heard(others[0])
            rounds += 1
        if verdict == LEFT:
            print(f"rank {rank} leaves after round {rounds}", flush=True)
            return 128 + signal.SIGTERM
        if verdict == ENDED:
            break
        time.sleep(options.pace)
    if rank == 0:
        (folder / "model").mkdir(exist_ok=True)
        (folder / "model" / "rounds.json").write_text(json.dumps({"rounds": rounds, "world": world}))
    print(f"rank {rank} ends after round {rounds}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
