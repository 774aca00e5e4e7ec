"""A node as ``edt_agent.temporary`` runs it, with real agents whose supervisors are ``stand_in.py``."""

from __future__ import annotations

import sys
from pathlib import Path

from edt_agent.temporary import run_node

if __name__ == "__main__":
    sys.exit(run_node([sys.executable, str(Path(__file__).with_name("agent_main.py"))]))
