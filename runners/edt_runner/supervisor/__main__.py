"""``python -m edt_runner.supervisor``: import the framework, read an attempt spec from standard input, run the attempt.

* ``--framework NAME``: the framework to import; ``none``: none, for gangs.
* ``--cold``: read the spec and set its environment before the framework is imported. Jobs need this when they set
  variables that libraries read at import.
* ``--log FILE``: append standard output and error to this file. A container's supervisor needs this.
* ``--user UID:GID``, ``--script-user UID:GID``: the process starts as root, continues as the first user, and runs the
  job's code as the second user (``users``).

Exit status: 0 when the attempt is over, when the input ends without a spec, or at SIGTERM before the attempt begins;
2 where the spec or the framework cannot be used; CANNOT_WRITE where the spool folder cannot be written.
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
from edt_contract.frameworks import NO_FRAMEWORK
from edt_runner import frameworks
from edt_runner.errors import RunnerError
from edt_runner.supervisor import users
from edt_runner.supervisor.elastic import ElasticSupervisor
from edt_runner.supervisor.gang import GangSupervisor


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
    # The first process of a container gets only those signals for which it has a handler.
    signal.signal(signal.SIGTERM, _go)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s supervisor %(message)s", stream=sys.stderr)
    processes.set_name("edt-supervisor")
    try:
        if not options.cold and options.framework != NO_FRAMEWORK:
            frameworks.by_name(options.framework).warm()
        line = sys.stdin.buffer.readline()
        if not line.strip():
            return 0
        spec = AttemptSpec.from_json_object(load_object(line))
        if options.cold and spec.gang is None:
            os.environ.update(spec.environ)
            frameworks.by_name(spec.framework).warm()
    except (ContractError, RunnerError) as error:
        logging.error("%s", error)
        return 2
    return live(spec)


def live(spec: AttemptSpec) -> int:
    """Run the supervisor of ``spec`` until its attempt is over; returns the exit status."""
    os.environ.update(spec.environ)
    processes.adopt_orphans()
    crash_point(CrashPoint.SUPERVISOR_START)
    try:
        supervisor = ElasticSupervisor(spec) if spec.gang is None else GangSupervisor(spec)
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
    # Slots come free when this process is gone, so it does not spend time on the framework's cleanup.
    os._exit(ended_with)
