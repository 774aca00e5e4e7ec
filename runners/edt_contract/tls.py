"""TLS between the API and our own clients. This module reads files of certificates and keys; it connects to nothing.

``serving`` is for the API. Clients check its certificate in one of two ways. ``by_authorities`` is the usual one: the
certificate must come from an authority in a file, and hold the host's name. ``by_itself`` is for a client that has the
API's own certificate: only this certificate is accepted, at whatever address the API is reached. Neither way ever
accepts an unknown certificate.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path

CA_FILE_VARIABLE = "EDT_CA_FILE"
"""Environment variable with the file that ``by_authorities`` reads, for `edt` and for agents."""
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


class BadCertificateFile(Exception):
    """A file of certificates cannot be used. The message names the file and the reason."""


def by_authorities(ca_file: Path) -> ssl.SSLContext:
    """Return a context that accepts certificates of these authorities for the host's name.

    A certificate that nobody but itself has signed is its own authority.

    Raises:
        BadCertificateFile: the file cannot be read, or holds no certificate.
    """
    return _context(ca_file, _read(ca_file))


def by_itself(certificate: Path) -> ssl.SSLContext:
    """Return a context that accepts the first certificate of this file and no other.

    The host's name is not compared: whoever has the certificate's key is the API.

    Raises:
        BadCertificateFile: the file cannot be read, or holds no certificate.
    """
    context = _context(certificate, first(certificate))
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # its authority need not be in the context
    context.check_hostname = False
    return context


def first(certificate: Path) -> str:
    """Return the first certificate of a file, which is the server's own, as PEM.

    Raises:
        BadCertificateFile: the file cannot be read, or holds no certificate.
    """
    found = _CERTIFICATE.search(_read(certificate))
    if found is None:
        raise BadCertificateFile(f"{certificate} holds no certificate in PEM form")
    return found[0]


def _context(file: Path, certificates: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise BadCertificateFile(f"{file} holds no certificate in PEM form") from error


def _read(file: Path, what: str = "certificate") -> str:
    try:
        return file.read_text()
    except OSError as error:
        raise BadCertificateFile(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise BadCertificateFile(f"{file} holds no {what} in PEM form") from error


def serving(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return the context of a server that shows this certificate.

    Raises:
        BadCertificateFile: a file cannot be read or is none of its kind, the key is encrypted, or the two do not belong
            together.
    """
    first(certificate)
    if "-----BEGIN" not in _read(key, "key"):
        raise BadCertificateFile(f"{key} holds no key in PEM form")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, password=_refuse)
    except _Encrypted:
        raise BadCertificateFile(f"{key} is encrypted: the API takes a key without a password") from None
    except (ssl.SSLError, ValueError) as error:
        raise BadCertificateFile(f"{certificate} and {key} are no certificate with its key") from error
    return context


class _Encrypted(Exception):
    """OpenSSL asks for a password."""


def _refuse() -> str:
    raise _Encrypted
