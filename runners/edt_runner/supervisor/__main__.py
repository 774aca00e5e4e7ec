"""``python -m edt_runner.supervisor``: wait warm for a letter on standard input, then live by it.

--cold: read the letter and set its environment before importing the framework, for jobs that set variables which
libraries read at import. --log: where what it prints goes, for one whose output nobody else keeps. --user and
--script-user, each UID:GID: begun as root, go on as the one, and run the job's code as the other (``users``). End of
input without a letter, or SIGTERM before its attempt begins: exit 0.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from types import FrameType

from edt_runner import framework as frameworks
from edt_runner import processes
from edt_runner.contract import ContractError, Letter
from edt_runner.errors import RunnerError
from edt_runner.supervisor import users
from edt_runner.supervisor.loop import live


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
        letter = Letter.from_json(line)
        if options.cold:
            os.environ.update(letter.environ)
            frameworks.by_name(letter.framework).warm()
    except (ContractError, RunnerError) as error:
        logging.error("%s", error)
        return 2
    return live(letter)


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
