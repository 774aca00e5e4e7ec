"""``python -m edt_runner.supervisor``: wait warm for a letter on standard input, then live by it.

--cold: read the letter and set its environment before importing the framework, for jobs that set variables which
libraries read at import. End of input without a letter: exit 0.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from edt_runner import processes
from edt_runner.contract import ContractError, Letter
from edt_runner.errors import RunnerError
from edt_runner.supervisor import zygote
from edt_runner.supervisor.loop import live


def main() -> int:
    parser = argparse.ArgumentParser(prog="edt_runner.supervisor")
    parser.add_argument("--framework", default="pytorch")
    parser.add_argument("--cold", action="store_true")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s supervisor %(message)s", stream=sys.stderr)
    processes.set_name("edt-supervisor")
    try:
        if not options.cold:
            zygote.warm(options.framework)
        line = sys.stdin.buffer.readline()
        if not line.strip():
            return 0
        letter = Letter.from_json(line)
        if options.cold:
            os.environ.update(letter.environ)
            zygote.warm(letter.framework)
    except (ContractError, RunnerError) as error:
        logging.error("%s", error)
        return 2
    return live(letter)


if __name__ == "__main__":
    sys.exit(main())
