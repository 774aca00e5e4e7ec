"""Which certificate of an API is accepted, and the address of the API of this machine's home.

These count, the first that is there: the file of EDT_CA_FILE; the file of `edt login --ca`, for the API of that login;
the certificate of this machine's own `edt up`; the authorities that the HTTP client knows. None ever means: any
certificate.
"""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from urllib.parse import urlsplit

from edt_cli.errors import CannotStart
from edt_cli.up.certificate import remembered_certificate
from edt_cli.up.home import DEFAULT_PORT, remembered_port
from edt_contract import tls

_THIS_MACHINE = frozenset({"127.0.0.1", "::1", "localhost"})


def home_address(home: Path) -> str:
    """Return the address of the API that `edt up` starts in this home."""
    scheme = "http" if remembered_certificate(home) is None else "https"
    return f"{scheme}://127.0.0.1:{remembered_port(home) or DEFAULT_PORT}"


def accepted(api: str, home: Path, ca: str | None = None) -> ssl.SSLContext | bool:
    """Return what the HTTP client is to accept as the certificate of ``api``; True: what it accepts by itself.

    Args:
        api: URL of the API.
        home: the home of this machine.
        ca: file with authorities that the login names; None: it names none.

    Raises:
        CannotStart: a file cannot be used.
    """
    if not api.startswith("https://"):
        return True
    try:
        if named := os.environ.get(tls.CA_FILE_VARIABLE) or ca:
            return tls.by_authorities(Path(named))
        own = remembered_certificate(home)
        return tls.by_itself(own.certificate) if own is not None and _is_of_home(api, home) else True
    except tls.BadCertificateFile as error:
        raise CannotStart(str(error)) from error


def _is_of_home(api: str, home: Path) -> bool:
    where = urlsplit(api)
    try:
        port = where.port
    except ValueError:
        return False
    return port == remembered_port(home) and where.hostname in _THIS_MACHINE | {socket.gethostname().lower()}
