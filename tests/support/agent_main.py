"""A real agent whose supervisors are ``stand_in.py``: everything but the training itself."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import ClassVar

from edt_agent.agent import Agent
from edt_agent.settings import AgentSettings


class Settings(AgentSettings):
    supervisor: ClassVar[tuple[str, ...]] = (sys.executable, str(Path(__file__).with_name("stand_in.py")))


async def main() -> None:
    await Agent(Settings()).run()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(main())
