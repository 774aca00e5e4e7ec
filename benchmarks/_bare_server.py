"""What submissions are measured beside: FastAPI and SQLAlchemy without anything around them, as durable as ours.

It keeps the upload as it came, in a file that is synced with its folder before the row of it is committed. Nobody is
asked who they are, and nothing is unpacked. ``python benchmarks/_bare_server.py FOLDER DATABASE_URL`` prints its port
and serves.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import uuid
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, UploadFile
from sqlalchemy import Column, Float, Integer, MetaData, Table, Text, create_engine, event, insert, select

_COLUMNS = ("id", "args", "file", "state")


def application(folder: Path, url: str) -> FastAPI:
    app = FastAPI()
    metadata = MetaData()
    jobs = Table(
        "jobs",
        metadata,
        Column("id", Integer, primary_key=True),
        Column("args", Text, nullable=False),
        Column("file", Text, nullable=False),
        Column("state", Text, nullable=False),
        Column("created_at", Float),
    )
    engine = create_engine(url, pool_size=10, max_overflow=50)
    sqlite = engine.dialect.name == "sqlite"
    if sqlite:
        event.listen(engine, "connect", _durable)
    metadata.create_all(engine)
    # SQLite's own way of waiting for its lock is to sleep: with a lock before it the server takes twice as much.
    one_at_a_time: Any = threading.Lock() if sqlite else nullcontext()

    @app.post("/execs")
    def submit(args: str, file: UploadFile) -> dict[str, Any]:
        path = folder / uuid.uuid4().hex
        with path.open("wb") as kept:
            shutil.copyfileobj(file.file, kept)
            kept.flush()
            os.fsync(kept.fileno())
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        row = {"args": args, "file": path.name, "state": "SUBMITTED"}
        with one_at_a_time, engine.begin() as tx:
            number = tx.execute(insert(jobs).values(**row).returning(jobs.c.id)).scalar_one()
        return {"id": number, **row}

    @app.get("/execs/{number}")
    def one(number: int) -> dict[str, Any]:
        with engine.connect() as tx:
            return dict(tx.execute(select(*jobs.c[_COLUMNS]).where(jobs.c.id == number)).mappings().one())

    @app.get("/execs")
    def listing(limit: int) -> list[dict[str, Any]]:
        with engine.connect() as tx:
            return [dict(row) for row in tx.execute(select(*jobs.c[_COLUMNS]).limit(limit)).mappings()]

    return app


def _durable(connection: Any, _record: Any) -> None:
    connection.execute("PRAGMA busy_timeout=10000")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")


def main() -> None:
    folder, url = Path(sys.argv[1]), sys.argv[2]
    # A socket without its protocol's number gets no TCP_NODELAY from asyncio: every answer would be 40 ms late.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        print(listening.getsockname()[1], flush=True)
        config = uvicorn.Config(
            application(folder, url), access_log=False, server_header=False, proxy_headers=False, ws="none",
            log_level="warning",
        )  # fmt: skip
        uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
