"""The command of one connection: the server of ``edt-rsh`` starts it, passes input and output on, and ends it.

Nothing here waits for one side alone. Output that the client does not read yet, and input that the command does not
read yet, are held in buffers of limited size, so the end of the command and of the connection are always seen.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping

from edt_contract import processes
from edt_runner.rsh import wire
from edt_runner.rsh.wire import Kind, Link, WireError

_MOST_HELD = 1 << 18
"""Bytes that wait for the client; while there are more, no output of the command is read."""
_LOOK_SECONDS = 0.1


def run(sock: socket.socket, line: str, environ: Mapping[str, str], folder: str, grace_seconds: float) -> None:
    """Run a command until it has ended or the connection has. In the second case its processes are ended, too.

    Args:
        sock: the connection.
        line: the command, for a shell.
        environ: environment of the command.
        folder: working directory of the command.
        grace_seconds: seconds from SIGTERM to SIGKILL for a command whose connection has ended.

    Raises:
        WireError, OSError: the connection ended or broke before the command had ended.
    """
    processes.adopt_orphans()
    command = _Command(sock, line, environ, folder)
    try:
        command.pass_on()
    except (OSError, WireError):
        command.end(grace_seconds)
        raise
    command.finish()


class _Command:
    def __init__(self, sock: socket.socket, line: str, environ: Mapping[str, str], folder: str) -> None:
        parent = os.getpid()
        process = subprocess.Popen(
            ["/bin/sh", "-c", line],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env=dict(environ),
            start_new_session=True,
            preexec_fn=lambda: processes.die_with(parent),  # noqa: PLW1509 - this process has one thread
        )
        assert process.stdin and process.stdout and process.stderr
        self._process = process
        self._link = Link(sock)
        self._stdin = process.stdin.fileno()
        self._outputs = {process.stdout.fileno(): Kind.OUTPUT, process.stderr.fileno(): Kind.ERRORS}
        for descriptor in (self._stdin, *self._outputs):
            os.set_blocking(descriptor, False)
        self._held = bytearray()
        """Input that the command has not read yet."""
        self._input_ended = False
        """The client has sent all input."""
        self._takes_input = True
        """The command's standard input is open."""

    def pass_on(self) -> None:
        """Pass input and output on until the command has ended.

        Raises:
            WireError, OSError: the connection ended or broke before.
        """
        ended = os.pidfd_open(self._process.pid)
        while True:
            outputs = self._outputs if self._link.waiting < _MOST_HELD else ()
            readable, writable = wire.wait(
                [self._link.descriptor, ended, *outputs],
                [*self._link.if_waiting(), *([self._stdin] if self._held else [])],
            )
            if self._link.descriptor in readable:
                self._receive()
            if self._stdin in writable:
                self._write_input()
            for descriptor in self._outputs.keys() & readable:
                self._read_output(descriptor)
            self._link.flush()
            if ended in readable:
                break
        self._reap()

    def finish(self) -> None:
        """Send the last output and the exit status of the command, which has ended.

        Raises:
            OSError: the connection broke.
        """
        self._send_last_output()
        status = self._process.returncode
        self._link.send(Kind.EXITED, str(status if status >= 0 else 128 - status).encode())
        self._link.finish()

    def end(self, grace_seconds: float) -> None:
        """End the command and all processes that it has started: SIGTERM, and SIGKILL after the grace. What they still
        print is read, so that they do not wait for it, and is lost."""
        until = time.monotonic() + grace_seconds
        self._close_input()
        termination = processes.Termination()
        termination.ask_group(self._process.pid)
        while left := processes.descendants(os.getpid()):
            if time.monotonic() >= until:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(pid, signal.SIGKILL)
            elif self._process.returncode is not None:
                termination.ask_orphans()
            readable, _ = wire.wait(self._outputs, [], _LOOK_SECONDS)
            for descriptor in readable:
                if not _read(descriptor):
                    del self._outputs[descriptor]
            self._reap()

    # ── input ─────────────────────────────────────────────────────────────────────────────────────────────────
    def _receive(self) -> None:
        for kind, data in self._link.receive():
            if kind is not Kind.INPUT:
                continue
            self._input_ended = self._input_ended or not data
            self._held += data
            if len(self._held) > wire.INPUT_BYTES:
                raise WireError("more input than the command has room for")
        self._write_input()

    def _write_input(self) -> None:
        """Write what the command has room for, and tell the client. What a command does not want is dropped."""
        taken = len(self._held)
        if self._takes_input:
            try:
                taken = os.write(self._stdin, self._held) if self._held else 0
            except BlockingIOError:
                taken = 0
            except OSError:  # the command has closed its input
                self._close_input()
        if taken:
            del self._held[:taken]
            self._link.send(Kind.TAKEN, str(taken).encode())
        if self._input_ended and not self._held:
            self._close_input()

    def _close_input(self) -> None:
        if self._takes_input:
            self._takes_input = False
            os.close(self._stdin)
            self._process.stdin = None

    # ── output ────────────────────────────────────────────────────────────────────────────────────────────────
    def _read_output(self, descriptor: int) -> None:
        data = _read(descriptor)
        if data:
            self._link.send(self._outputs[descriptor], data)
        elif data is not None:
            del self._outputs[descriptor]

    def _send_last_output(self) -> None:
        """Send what the ended command has left in its pipes, and no more than they hold: processes that it has started
        may go on writing."""
        for descriptor, kind in self._outputs.items():
            for _ in range(0, fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ), wire.PIECE_BYTES):
                if data := _read(descriptor):
                    self._link.send(kind, data)

    def _reap(self) -> None:
        for pid, status in processes.ended_children():
            if pid == self._process.pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)


def _read(descriptor: int) -> bytes | None:
    """Output that has arrived; b"": its end; None: nothing now."""
    try:
        return os.read(descriptor, wire.PIECE_BYTES)
    except BlockingIOError:
        return None
