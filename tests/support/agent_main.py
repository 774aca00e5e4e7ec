"""A real agent whose supervisors are ``stand_in.py``: everything but the training itself."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import sys
from pathlib import Path

from edt_agent.agent import Agent
from edt_agent.settings import from_environment


async def main() -> None:
    settings = from_environment({}, os.environ)
    stand_in = (sys.executable, str(Path(__file__).with_name("stand_in.py")))
    await Agent(dataclasses.replace(settings, supervisor=stand_in)).run()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(main())
