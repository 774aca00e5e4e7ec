"""docs/wmla.md says of each option what the code does with it, and nothing of others."""

from __future__ import annotations

from pathlib import Path

from edt_api.protocol import MOST_HEAD_BYTES
from edt_api.submissions.args import LONGEST
from edt_api.submissions.frameworks import PREBUILT
from edt_api.submissions.main_script import COMPILED_BYTES
from edt_api.submissions.options import OPTIONS, Option
from edt_scheduler.model.catalogue import built_in

PAGE = (Path(__file__).parents[2] / "docs" / "wmla.md").read_text()


def test_the_table_of_options_is_the_codes() -> None:
    rows = [row.strip("| ").split(" | ") for row in PAGE.splitlines() if row.startswith("| --")]
    assert rows == [[name, option.takes, said(option)] for name, option in OPTIONS.items()]


def said(option: Option) -> str:
    if option.effect:
        return "has an effect"
    seen = f"; the script finds it in {option.variable}" if option.variable else ""
    return f"accepted without effect{seen}"


def test_frameworks_prebuilt_models_and_limits_are_the_codes() -> None:
    for name in (*built_in(), *(model for models in PREBUILT.values() for model in models)):
        assert name in PAGE
    assert f"at most {LONGEST} characters" in PAGE
    assert (COMPILED_BYTES, MOST_HEAD_BYTES) == (128 * 1024, 1 << 20) and "128 KiB" in PAGE and "1 MiB" in PAGE
