"""``python -m edt_agent``: run the agent of one node until a signal ends it.

SIGTERM ends only the agent, for example for an upgrade: training continues, and the next agent adopts the supervisors.
At SIGINT (Ctrl-C) all engines write checkpoints and leave; then the agent ends. A second SIGINT kills all processes.
With EDT_TEMPORARY=true SIGTERM means that the node leaves (``leaving``).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from edt_agent.agent import Agent
from edt_agent.errors import AgentError
from edt_agent.settings import AgentSettings, read_settings


def main() -> int:
    """Run the agent.

    Returns:
        The exit status: 0 after a signal; 2, after one sentence on standard error, if the node cannot work.
    """
    parser = argparse.ArgumentParser(prog="edt_agent", description="The agent of one node.")
    parser.add_argument("--api", help="URL of the API (EDT_API)")
    parser.add_argument("--token-file", dest="token_file", help="file with the join token (EDT_TOKEN_FILE)")
    parser.add_argument("--home", help="folder for the agent's files (EDT_HOME)")
    parser.add_argument("--name", help="this node's name (EDT_NAME); default: the machine's")
    parser.add_argument("--host", dest="agent_host", help="address for the job's other nodes (EDT_AGENT_HOST)")
    arguments = parser.parse_args()
    logging.basicConfig(level=os.environ.get("EDT_LOG_LEVEL", "INFO").upper(), format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings = read_settings(vars(arguments))
        asyncio.run(_run(settings))
    except (AgentError, OSError) as error:
        print(f"edt agent: {error}", file=sys.stderr)  # noqa: T201  a person reads it
        return 2
    return 0


async def _run(settings: AgentSettings) -> None:
    await Agent(settings).run()


if __name__ == "__main__":
    sys.exit(main())
