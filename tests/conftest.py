"""Rules for the whole suite; what is missing on a machine is the plugin's affair."""

from __future__ import annotations

import hypothesis

pytest_plugins = ["suite.plugin"]

hypothesis.settings.register_profile("edt", deadline=None)  # machines are as slow as they are
hypothesis.settings.load_profile("edt")
