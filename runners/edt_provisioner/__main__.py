"""``python -m edt_provisioner kubernetes|slurm|process``: keep a pool until a signal ends it. The nodes stay."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import signal
import sys

from edt_provisioner.errors import ProvisionerError
from edt_provisioner.loop import Provisioner

KINDS = ("kubernetes", "slurm", "process")


def main() -> int:
    """Keep the pool.

    Returns:
        The exit status: 0 after a signal; 2, after one sentence on standard error, if it cannot work.
    """
    parser = argparse.ArgumentParser(prog="edt_provisioner", description="Keep a pool of nodes.")
    parser.add_argument("kind", choices=KINDS, help="the cluster manager that the nodes come from")
    parser.add_argument("--api", help="URL of the API (EDT_API)")
    parser.add_argument("--token-file", dest="token_file", help="file with the join token (EDT_TOKEN_FILE)")
    parser.add_argument("--home", help="the platform's folder, which all nodes see (EDT_HOME)")
    parser.add_argument("--pool", help="the pool's name (EDT_POOL); default: the cluster manager's")
    arguments = vars(parser.parse_args())
    kind = arguments.pop("kind")
    logging.basicConfig(level=os.environ.get("EDT_LOG_LEVEL", "INFO").upper(), format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings, cluster = importlib.import_module(f"edt_provisioner.{kind}").cluster(arguments)
        provisioner = Provisioner(settings, cluster)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: provisioner.stop())
        provisioner.run()
    except (ProvisionerError, OSError) as error:
        print(f"edt {kind}: {error}", file=sys.stderr)  # noqa: T201  a person reads it
        return 2
    except ModuleNotFoundError as error:
        print(f"edt {kind}: {error.name} is missing: pip install 'openedt[{kind}]'", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
