"""The documents: every link leads somewhere, and the reference can be made."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings make, as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        found = page.parent / file if file else page
        assert found.exists(), f"{target}: there is no {found}"
        assert not anchor or anchor in anchors(found), f"{target}: {found.name} has no such heading"


@pytest.mark.extended
def test_the_reference_is_made_from_the_docstrings(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pdoc", "--docformat", "google", "-o", tmp_path, "fabric_model", "edt_contract"],
        check=True,
        timeout=100,
        capture_output=True,
    )
    page = (tmp_path / "fabric_model.html").read_text()
    assert "user_callback" in page and "Arguments" in page


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/where.md", "docs/protocol.md"])
def test_every_module_that_a_page_names_is_there(page: str) -> None:
    for name in re.findall(r"`(edt_[a-z_]+(?:\.[a-z_]+)*)`", (ROOT / page).read_text()):
        places = [ROOT / folder / Path(*name.split(".")) for folder in ("api", "scheduler", "runners", "migrations")]
        assert any(map(is_module, places)), f"{page}: {name}"


def is_module(place: Path) -> bool:
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_every_short_name_of_a_module_in_the_architecture_is_one() -> None:
    """Such as `engine.link`: without the package that the section is about."""
    packages = [ROOT / "runners/edt_runner", ROOT / "scheduler/edt_scheduler"]
    short = re.findall(r"`([a-z_]+)\.([a-z_]+)`", (ROOT / "ARCHITECTURE.md").read_text())
    ours = [(first, second) for first, second in short if any((package / first).is_dir() for package in packages)]
    assert ours
    for first, second in ours:
        assert any(is_module(package / first / second) for package in packages), f"{first}.{second}"


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/where.md", "docs/trouble.md", "docs/compared.md"])
def test_every_test_that_a_page_names_is_there(page: str) -> None:
    for file, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(?:\w+::)?(\w+))?`", (ROOT / page).read_text()):
        assert (ROOT / file).is_file(), f"{page}: {file}"
        assert f"def {name}" in (ROOT / file).read_text() if name else True, f"{page}: {file}::{name}"
