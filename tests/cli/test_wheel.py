"""The wheel, away from the sources: what it installs is the whole platform, the dashboard with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import httpx
import pytest

from support.credentials import PASSWORD
from support.running_platform import Platform

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]  # packages are built and installed

ROOT = Path(__file__).parents[2]
PACKAGES = ("callbacks", "edt_runner", "emetrics", "fabric_model", "openedt", "pyedt")
SCRIPT = f"""
import importlib, os
print("libs", os.path.isdir(os.path.join(os.environ["FABRIC_HOME"], "libs")))
print("from", *[importlib.import_module(name).__file__ for name in {PACKAGES!r}])
"""


def run(*words: str | Path, folder: Path, **environ: str) -> str:
    done = subprocess.run(
        words, cwd=folder, env={**os.environ, **environ}, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A virtual environment that has the wheel, and of this one's packages all but the editable install."""
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT, folder=tmp_path)
    [wheel] = tmp_path.glob("openedt-*.whl")
    place = tmp_path / "elsewhere"
    venv.create(place, symlinks=True)
    pip = (sys.executable, "-m", "pip", "--python", place / "bin" / "python", "install", "--no-deps", "--no-index")
    run(*pip, "--quiet", "--disable-pip-version-check", wheel, folder=tmp_path)
    # A folder named in a .pth file is searched, but what .pth files it holds itself, the editable one's, is not read.
    paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    [packages] = (place / "lib").glob("python*/site-packages")
    (packages / "libraries.pth").write_text("".join(f"{path}\n" for path in sorted(paths)))
    return place


def test_edt_up_from_a_wheel_in_an_empty_folder_runs_a_script(elsewhere: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    platform = Platform(empty, slots=1)
    platform.environ.pop("PYTHONPATH", None)
    platform.command = (str(elsewhere / "bin" / "edt"),)
    with platform:
        client = {"EDT_API": platform.url, "EDT_TAG": platform.tag, "XDG_CONFIG_HOME": str(empty / "config")}
        (empty / "main.py").write_text(SCRIPT)
        edt = elsewhere / "bin" / "edt"
        subprocess.run(
            [edt, "login"],
            env={**platform.environ, **client},
            input=f"{PASSWORD}\n",
            text=True,
            timeout=120,
            check=True,
        )
        output = run(edt, "submit", "main.py", "-f", folder=empty, **client)
        catalogue = json.loads(run(edt, "frameworks", "list", "-o", "json", folder=empty, **client))
        assert {"edtPyTorch", "distPyTorch", "disttensorflow"} <= {each["name"] for each in catalogue}
        page = httpx.get(f"{platform.url}/ui/jobs", trust_env=False)
        assert '<div id="root"' in page.text
        saved = httpx.get(f"{platform.url}/ui/tools/dlicmd.py", trust_env=False)
        assert saved.text.startswith("#!/usr/bin/env python3\n")
        assert "--exec-start FRAMEWORK" in run(elsewhere / "bin" / "dlicmd", "--help", folder=empty)
    assert "libs True" in output.splitlines()
    [line] = [line for line in output.splitlines() if line.startswith("from ")]
    files = [Path(file) for file in line.split()[1:]]
    assert tuple(file.parent.name for file in files) == PACKAGES
    assert all(file.is_relative_to(elsewhere) for file in files), files


def test_a_source_distribution_holds_the_dashboard_and_what_it_is_built_from_so_its_wheel_needs_no_node(
    tmp_path: Path,
) -> None:
    build = (sys.executable, "-m", "build", "--no-isolation", "--outdir", tmp_path)
    run(*build, "--sdist", ROOT, folder=tmp_path)
    [sdist] = tmp_path.glob("openedt-*.tar.gz")
    (tmp_path / "sources").mkdir()
    run("tar", "-xzf", sdist, "-C", tmp_path / "sources", folder=tmp_path)
    [sources] = (tmp_path / "sources").iterdir()
    assert (sources / "api" / "dashboard" / "package-lock.json").is_file()
    assert not (sources / "api" / "dashboard" / "node_modules").exists()
    run(*build, "--wheel", sources, folder=tmp_path, PATH=str(tmp_path / "nothing"))
    [wheel] = tmp_path.glob("openedt-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "edt_scheduler/catalogue/distPyTorch.toml" in names
    assert "edt_api/static/index.html" in names
    assert any(name.startswith("edt_api/static/assets/") and name.endswith(".js") for name in names)
    assert not any("node_modules" in name or "packaging" in name for name in names)
