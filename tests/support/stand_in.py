"""A small real process that behaves to the agent like a supervisor, without a framework. For the agent's tests.

``python stand_in.py [--framework F] [--cold]``. How it behaves comes with the spec, in the variable STAND_IN:
``""`` well; ``mute``: ignores every desired state; ``early``: exits with 4 before its spec; ``refuses``: exits with
2 as after a bad spec; ``daemon``: leaves a process behind in a session of its own; ``lingers``: does not exit;
``shares``: one process holds all slots.
A file ``finish`` in its working directory ends it as finished; at a file ``eat`` it takes all memory that there is.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from edt_contract.attempt import AttemptSpec, DesiredState
from edt_contract.encoding import dump_line, from_json_object, load_line, load_object
from edt_contract.processes import die_with
from edt_contract.reports import ExitKind, Report, ReportKind


class StandIn:
    def __init__(self, spec: AttemptSpec) -> None:
        self.spec = spec
        self.spool = Path(spec.spool_dir)
        reports = self.spool / "reports.jsonl"
        self.seq = len(reports.read_bytes().splitlines()) if reports.exists() else 0
        self.step = 0
        self.engines: dict[int, int] = {}
        self.clients: list[socket.socket] = []
        self.buffers: dict[socket.socket, bytes] = {}
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(spec.socket)
        self.listener.listen()

    def report(self, kind: ReportKind, /, **body: Any) -> None:
        self.seq += 1
        spec = self.spec
        report = Report(spec.job, spec.fence, spec.node, self.seq, kind, time.time(), body)
        with (self.spool / "reports.jsonl").open("ab", buffering=0) as stream:
            stream.write(dump_line(report))
        for client in list(self.clients):
            try:
                client.send(dump_line({"kind": "report", "seq": self.seq}))
            except OSError:
                self.hang_up(client)

    def run(self) -> int:
        stat = Path(f"/proc/{os.getpid()}/stat").read_text()
        starttime = int(stat[stat.rindex(")") + 2 :].split()[19])
        names = {"job": self.spec.job, "fence": self.spec.fence, "node": self.spec.node}
        process = {"pid": os.getpid(), "starttime": starttime, "socket": self.spec.socket, **names}
        (self.spool / "attempt.json").write_text(json.dumps(process))
        self.report(ReportKind.ATTEMPT_STARTED, pid=os.getpid())
        if self.behaves("daemon") and os.fork() == 0:
            os.setsid()
            time.sleep(600)
        while True:
            ready, _, _ = select.select([self.listener, *self.clients], [], [], 0.05)
            for each in ready:
                if each is self.listener:
                    client, _ = self.listener.accept()
                    self.clients.append(client)
                    self.buffers[client] = b""
                elif (
                    each in self.clients
                    and (desired := self.read(each)) is not None
                    and not self.behaves("mute")
                    and self.obey(desired)
                ):
                    return 0
            if self.engines:
                self.step += 1
                self.report(ReportKind.PROGRESS, step=self.step, workers=len(self.engines))
            if Path(self.spec.work_dir, "finish").exists():
                return self.end(ExitKind.FINISHED)
            eaten = []
            while eaten or Path(self.spec.work_dir, "eat").exists():
                eaten.append(bytearray(b"x") * (1 << 24))

    def behaves(self, how: str) -> bool:
        return self.spec.environ.get("STAND_IN") == how

    def read(self, client: socket.socket) -> DesiredState | None:
        try:
            data = client.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self.hang_up(client)
            return None
        *lines, self.buffers[client] = (self.buffers[client] + data).split(b"\n")
        return from_json_object(DesiredState, load_line(lines[-1])) if lines else None

    def hang_up(self, client: socket.socket) -> None:
        if client in self.clients:
            self.clients.remove(client)
            client.close()

    def obey(self, desired: DesiredState) -> bool:
        wanted = {slot.allocation: slot.slot for slot in desired.slots}
        for allocation in [a for a in self.engines if a not in wanted]:
            self.lose(allocation, ExitKind.STOPPED if desired.stop else ExitKind.LEFT)
        if desired.stop or not wanted:
            self.report(ReportKind.CHECKPOINTED, step=self.step, path="")
            self.end(ExitKind.STOPPED if desired.stop else ExitKind.LEFT)
            return True
        for allocation, slot in wanted.items():
            if allocation not in self.engines:
                shared = next(iter(self.engines.values()), None) if self.behaves("shares") else None
                pid = self.engines[allocation] = shared or self.fork_engine()
                self.report(ReportKind.ENGINE_STARTED, allocation=allocation, slot=slot, pid=pid)
        return False

    def fork_engine(self) -> int:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            die_with(parent)
            time.sleep(600)
            os._exit(0)
        return pid

    def lose(self, allocation: int, kind: ExitKind) -> None:
        pid = self.engines.pop(allocation)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.report(ReportKind.ENGINE_GONE, allocation=allocation, kind=kind, code=0, signal=None, seconds=0.1)

    def end(self, kind: ExitKind) -> int:
        for allocation in list(self.engines):
            self.lose(allocation, kind)
        self.report(ReportKind.ATTEMPT_ENDED, kind=kind, code=0, message="", digest="d" * 64, step=self.step)
        if self.behaves("lingers"):
            time.sleep(600)
        return 0


def main() -> int:
    line = sys.stdin.readline()
    if not line:
        return 0
    spec = AttemptSpec.from_json_object(load_object(line))
    print("spec of", spec.job, "argv", sys.argv[1:], flush=True)
    if spec.environ.get("STAND_IN") == "early":
        return 4
    if spec.environ.get("STAND_IN") == "refuses":
        return 2
    return StandIn(spec).run()


if __name__ == "__main__":
    sys.exit(main())
