"""Builds OpenEDT's container images: ``make images``, or ``python deploy/images.py [IMAGE …]``.

Only the steps before a build use the network: this machine's pip, with its own settings, collects the wheels once for
each set of requirements into ``build/images``. The build takes them from its context. An image with unchanged inputs is
not built again. If only OpenEDT's own code has changed, the build makes one small last layer.

    EDT_BASE_IMAGE      image with Python to build on; default python:3.x-slim with the x of this Python
    TORCH_INDEX_URL     package index with the wanted build of torch (the Makefile sets it)
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "images"
DEFAULT_BASE = f"python:{sys.version_info.major}.{sys.version_info.minor}-slim"
INPUTS_LABEL = "edt.inputs"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


@dataclass(frozen=True)
class Image:
    """The inputs of an image."""

    dockerfile: str
    extras: tuple[str, ...]
    """Extras of openedt, such as ``server`` in ``openedt[server]``."""
    packages: tuple[str, ...] = ()
    """Further packages."""
    alone: tuple[str, ...] = ()
    """Further extras of openedt, whose packages are installed without their dependencies: the image has these under
    other names.
    """
    base: str | None = None
    """Name of the image of this project whose stage ``runtime`` is the base; None for the common base image."""


@dataclass(frozen=True)
class Python:
    """An interpreter of this machine, and the version of the image's Python for which it collects packages."""

    path: str
    version: str


TELL_VERSION = "import platform; print(platform.python_version())"
IMAGES = {
    "api": Image("api/Dockerfile", ("server",)),
    "scheduler": Image("scheduler/Dockerfile", ("server",)),
    "provisioner": Image("runners/Dockerfile.provisioner", ("kubernetes",)),
    "runner-torch": Image("runners/Dockerfile.torch", ("torch", "onnx", "tensorboard"), ("scikit-learn",)),
    "runner-tensorflow": Image(
        "runners/Dockerfile.tensorflow", ("tensorflow",), alone=("keras2",), base="runner-torch"
    ),
    "agent": Image("runners/Dockerfile.agent", ("agent", "docker"), base="runner-torch"),
}


def main() -> int:
    """Build the images. Return exit status 0 if all images exist, otherwise the status of the command that failed."""
    parser = argparse.ArgumentParser(prog="deploy/images.py", description="Build OpenEDT's container images.")
    parser.add_argument("images", nargs="*", metavar="IMAGE", help=f"of {', '.join(IMAGES)}; default all")
    parser.add_argument("--tag", default="latest", help="default latest, which is tagged with the version, too")
    parser.add_argument("--base", default=os.environ.get("EDT_BASE_IMAGE") or DEFAULT_BASE)
    given = parser.parse_args()
    if unknown := set(given.images) - set(IMAGES):
        parser.error(f"no such image: {', '.join(sorted(unknown))}; there are {', '.join(IMAGES)}")
    wanted = [name for name in IMAGES if name in with_bases(given.images or IMAGES)]
    BUILD.mkdir(parents=True, exist_ok=True)
    try:
        with (BUILD / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # a second build at the same time waits here
            python = python_like(given.base)
            forget_old_packages(python)
            product = own_wheel()
            for name in wanted:
                build(name, given.tag, given.base, python, product)
    except subprocess.CalledProcessError as error:
        return error.returncode or 1
    return 0


def python_like(base: str) -> Python:
    """Return a Python of this machine that collects the packages which the image's Python needs.

    The same version is preferred, because some packages are needed only below a certain patch release. Otherwise the
    same minor version must exist.

    Raises:
        SystemExit: this machine has no Python of that minor version.
        subprocess.CalledProcessError: Docker cannot run ``base``.
    """
    version = output("docker", "run", "--rm", "--network", "none", "--entrypoint", "python3", base, "-c", TELL_VERSION)
    minor = ".".join(version.split(".")[:2])
    found = (sys.executable, f"/usr/bin/python{minor}", shutil.which(f"python{minor}"))
    there = {path: output(path, "-c", TELL_VERSION) for path in found if path and Path(path).exists()}
    for same in (version, minor):
        for path, its_version in there.items():
            if f"{its_version}.".startswith(f"{same}."):
                return Python(path, version)
    sys.exit(f"{base} holds Python {version}, and this machine has no Python {minor} to collect packages for it")


def with_bases(names: Iterable[str]) -> set[str]:
    """Return the images and the images that they are built on."""
    chosen = set(names)
    return chosen | {base for name in chosen if (base := IMAGES[name].base)}


def build(name: str, tag: str, base: str, python: Python, product: Path) -> None:
    """Build one image, unless it exists with the same inputs."""
    image, full = IMAGES[name], f"openedt/{name}:{tag}"
    base = f"openedt/{image.base}:{tag}-runtime" if image.base else base
    wheels = packages(image, python)
    dockerfile = (ROOT / image.dockerfile).read_text()
    inputs = digest(dockerfile, wheels.name, product.read_bytes().hex(), _inspect(base, "{{.Id}}") or base)
    if _inspect(full, f'{{{{index .Config.Labels "{INPUTS_LABEL}"}}}}') == inputs:
        print(f"{full} is there", flush=True)
        return
    context = BUILD / "context" / name
    shutil.rmtree(context, ignore_errors=True)
    shutil.copytree(wheels, context / "packages", copy_function=os.link)
    (context / "product").mkdir()
    shutil.copy2(product, context / "product")
    (context / "Dockerfile").write_text(dockerfile)
    began = time.monotonic()
    command = ("docker", "build", "--network", "none", "--build-arg", f"BASE={base}")
    if name in {other.base for other in IMAGES.values()}:
        run(*command, "--target", "runtime", "-t", f"{full}-runtime", context)
    run(*command, "--label", f"{INPUTS_LABEL}={inputs}", "-t", full, context)
    if tag == "latest":
        run("docker", "tag", full, f"openedt/{name}:{_project()['version']}")
    shutil.rmtree(context)
    print(f"{full} built in {time.monotonic() - began:.0f} s", flush=True)


def requirements(image: Image) -> list[str]:
    """Return the requirements of the image, apart from openedt and from the requirements of its base."""
    table = _project()
    lines = {*table["dependencies"], *_extras(image.extras), *image.packages}
    return sorted(_plain(lines) - (set(requirements(IMAGES[image.base])) if image.base else set()))


def requirements_alone(image: Image) -> list[str]:
    """Return the requirements that are installed without their dependencies."""
    return sorted(_plain(_extras(image.alone)))


def _extras(names: Iterable[str]) -> set[str]:
    """Return the requirements of openedt's extras, and of the extras that they name."""
    table, found = _project()["optional-dependencies"], set()
    for name in names:
        for line in table[name]:
            own = re.fullmatch(r"openedt\[([\w,-]+)\]", line)
            found |= _extras(own[1].split(",")) if own else {line}
    return found


def _plain(lines: Iterable[str]) -> set[str]:
    return {re.sub(r"\s+", " ", line) for line in lines}


def _project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def packages_folder(image: Image, python: Python) -> Path:
    """Return the folder for the image's wheels. Images with the same requirements share one."""
    constraints = (ROOT / "constraints.txt").read_text()
    index = os.environ.get("TORCH_INDEX_URL", "")
    wanted = (*requirements(image), *requirements_alone(image))
    return BUILD / "packages" / digest(*wanted, constraints, python.version, index)


def packages(image: Image, python: Python) -> Path:
    """Return the folder with all wheels that the image needs. Fill the folder if it is missing."""
    folder = packages_folder(image, python)
    if folder.is_dir():
        return folder
    draft = folder.with_name(f".{folder.name}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    lists = {"requirements.txt": requirements(image), "alone.txt": requirements_alone(image)}
    for name, lines in lists.items():
        if lines:
            (draft / name).write_text("".join(f"{line}\n" for line in lines))
    began = time.monotonic()
    command = (*PIP, "--python", python.path, "download", "--quiet")
    # Of two builds of one version pip prefers the one with a local label, such as 2.13.0+cpu.
    indexes = ("--extra-index-url", index) if (index := os.environ.get("TORCH_INDEX_URL", "")) else ()
    files = ("--only-binary", ":all:", "-c", ROOT / "constraints.txt", "-d", draft)
    run(*command, *indexes, *files, "-r", draft / "requirements.txt")
    if lists["alone.txt"]:
        run(*command, *indexes, *files, "--no-deps", "-r", draft / "alone.txt")
    draft.rename(folder)
    print(f"packages for [{','.join(image.extras)}] collected in {time.monotonic() - began:.0f} s", flush=True)
    return folder


def forget_old_packages(python: Python) -> None:
    """Remove wheels that no image needs any more."""
    needed = {packages_folder(image, python) for image in IMAGES.values()}
    for folder in (BUILD / "packages").glob("*"):
        if folder not in needed:
            shutil.rmtree(folder)


def own_wheel() -> Path:
    """Build openedt's own wheel and return its path. Equal sources give equal bytes."""
    folder = BUILD / "product"
    shutil.rmtree(folder, ignore_errors=True)
    isolation = ("--no-build-isolation",) if importlib.util.find_spec("hatchling") else ()
    run(*PIP, "wheel", "--no-deps", *isolation, "-w", folder, ROOT)
    return next(folder.glob("*.whl"))


def _inspect(name: str, template: str) -> str | None:
    """Return a property of an image; None if the daemon does not have the image, or if the property is empty."""
    command = ("docker", "image", "inspect", "-f", template, name)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None if done.returncode == 0 else None


def digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def run(*command: str | Path) -> None:
    """Run a command. If it fails, show its output.

    Raises:
        subprocess.CalledProcessError: the command failed.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout + done.stderr, file=sys.stderr)
        done.check_returncode()


def output(*command: str) -> str:
    return subprocess.run(
        command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
