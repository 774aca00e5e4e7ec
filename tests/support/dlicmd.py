"""``dlicmd`` as people type it: its file, run by a Python that sees no installed package, with a home of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

FILE = Path(__file__).parents[2] / "api" / "edt_cli" / "dlicmd.py"


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it wrote."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What a script reads: everything from the first ``{`` or ``[`` on."""
        begin = min(at for at in (self.out.find("{"), self.out.find("[")) if at >= 0)
        return json.loads(self.out[begin:])


@dataclass(frozen=True)
class Dlicmd:
    """The command of a person with this home, for a server at this URL."""

    home: Path
    url: str
    file: Path = FILE

    @property
    def place(self) -> tuple[str, ...]:
        at = urlsplit(self.url)
        return "--rest-host", str(at.hostname), "--rest-port", str(at.port)

    def __call__(self, *words: str, stdin: str = "", environ: Mapping[str, str] | None = None) -> Ran:
        """Type a command; the server's place is added behind the verb and its values."""
        end = words.index("--") if "--" in words else len(words)
        return self.as_typed(*words[:end], *self.place, *words[end:], stdin=stdin, environ=environ)

    def as_typed(self, *words: str, stdin: str = "", environ: Mapping[str, str] | None = None) -> Ran:
        """Type a command as it is, in the home."""
        self.home.mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-I", "-S", str(self.file), *words],
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", **(environ or {})},
            cwd=self.home,
            input=stdin.encode(),
            capture_output=True,
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())
