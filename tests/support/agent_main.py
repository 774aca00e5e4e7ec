"""A real agent whose supervisors are ``stand_in.py``: everything but the training itself.

With TEST_NVML, the path of a file, its GPUs are those of the file (``nvml``).
"""

from __future__ import annotations

import asyncio
import logging
import os
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
    if "TEST_NVML" in os.environ:
        import nvml  # beside this file

        nvml.install(Path(os.environ["TEST_NVML"]))
    logging.basicConfig(level="INFO", format="%(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asyncio.run(main())
