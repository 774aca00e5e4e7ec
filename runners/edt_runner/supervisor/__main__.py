"""``python -m edt_runner.supervisor``: import the framework, wait for an attempt spec on standard input, live by it.

--cold: read the spec and set its environment before importing the framework, for jobs that set variables which
libraries read at import. --log: where what it prints goes, for one whose output nobody else keeps. --user and
--script-user, each UID:GID: begun as root, go on as the one, and run the job's code as the other (``users``). End of
input without a spec, or SIGTERM before its attempt begins: exit 0.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from types import FrameType

from edt_contract import processes
from edt_contract.attempt import AttemptSpec
from edt_contract.crash_points import CrashPoint, crash_point
from edt_contract.durable import CANNOT_WRITE
from edt_contract.encoding import ContractError, load_object
from edt_runner import frameworks
from edt_runner.errors import RunnerError
from edt_runner.supervisor import users
from edt_runner.supervisor.supervisor import Supervisor


def main() -> int:
    parser = argparse.ArgumentParser(prog="edt_runner.supervisor")
    parser.add_argument("--framework", default="pytorch")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--log")
    parser.add_argument("--user", type=users.parse)
    parser.add_argument("--script-user", type=users.parse)
    options = parser.parse_args()
    if options.user:
        users.become(options.user, options.script_user or options.user)
    if options.log:
        _print_to(options.log)
    # As the first process of a container it is deaf to signals that it does not handle.
    signal.signal(signal.SIGTERM, _go)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s supervisor %(message)s", stream=sys.stderr)
    processes.set_name("edt-supervisor")
    try:
        if not options.cold:
            frameworks.by_name(options.framework).warm()
        line = sys.stdin.buffer.readline()
        if not line.strip():
            return 0
        spec = AttemptSpec.from_json_object(load_object(line))
        if options.cold:
            os.environ.update(spec.environ)
            frameworks.by_name(spec.framework).warm()
    except (ContractError, RunnerError) as error:
        logging.error("%s", error)
        return 2
    return live(spec)


def live(spec: AttemptSpec) -> int:
    """Be the supervisor of ``spec`` until its attempt is over; returns the exit status."""
    os.environ.update(spec.environ)
    processes.adopt_orphans()
    crash_point(CrashPoint.SUPERVISOR_START)
    try:
        supervisor = Supervisor(spec)
    except OSError as error:
        logging.error("%s does not begin, since %s cannot be written: %s", spec.job, spec.spool_dir, error)
        return CANNOT_WRITE
    return supervisor.run()


def _print_to(path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _go(number: int, frame: FrameType | None) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    ended_with = main()
    logging.shutdown()
    # Slots come free when this process is gone: a framework is not taken down piece by piece first.
    os._exit(ended_with)
