"""Whenever a wheel or a source distribution is made, the dashboard in it is of these sources.

An editable install tries too, and goes on without: who installs so has a clone, and `make dashboard`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))  # hatchling loads this file alone

from dashboard_build import Dashboard, NotBuilt, ensure


class DashboardHook(BuildHookInterface):  # type: ignore[type-arg]  # any target's
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del build_data
        api = Path(self.root) / "api"
        dashboard = Dashboard(api / "dashboard", api / "edt_api" / "static")
        try:
            self.app.display_info(ensure(dashboard))
        except NotBuilt as error:
            if version != "editable":
                self.app.abort(f"The dashboard is not built: {error}")
            self.app.display_warning(f"Installed without the dashboard: {error}")
