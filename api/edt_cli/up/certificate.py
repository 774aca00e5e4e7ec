"""TLS of the API that `edt up` starts: which certificate it shows, and the certificate of the home's own making.

The choice is kept in ``tls/choice.json`` of the home for the next start. A certificate of the home's own making and its
key lie beside it. Nothing else is written.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import ipaddress
import json
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edt_cli.errors import CannotStart
from edt_contract import tls
from edt_contract.durable import write_whole

if TYPE_CHECKING:
    from cryptography import x509

_DAYS = 3650
_RENEWED_BEFORE_DAYS = 30
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104  compared, not listened on
_EARLIER = datetime.timedelta(days=1)
"""A new certificate is valid from a day ago, for clients whose clock is behind."""


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as files in PEM form."""

    certificate: Path
    key: Path

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, as browsers and `openssl x509 -fingerprint -sha256` show it."""
        digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(tls.first(self.certificate))).digest()
        return digest.hex(":").upper()


def remembered_certificate(home: Path) -> Certificate | None:
    """Return the certificate that the API of this home shows; None if it speaks plain HTTP."""
    try:
        kept = json.loads((home / "tls" / "choice.json").read_text())
        return Certificate(Path(kept["certificate"]), Path(kept["key"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def choose(home: Path, host: str, wanted: bool | None, given: tuple[Path | None, Path | None]) -> Certificate | None:
    """Choose the certificate for this start, and keep the choice for the next one.

    Args:
        home: the platform's home.
        host: address to listen on.
        wanted: whether the API is to speak TLS; None: if a certificate is given, or if it did at the last start.
        given: files of a certificate and its key; None: not given.

    Returns:
        The certificate; None: the API speaks plain HTTP.

    Raises:
        CannotStart: the files do not go together or cannot be used.
    """
    certificate, key = given
    if (certificate is None) != (key is None):
        raise CannotStart("a certificate and its key go together: --tls-certificate FILE --tls-key FILE")
    if wanted is False:
        if certificate is not None:
            raise CannotStart("--no-tls does not go with a certificate")
        (home / "tls" / "choice.json").unlink(missing_ok=True)
        return None
    own = Certificate(home / "tls" / "certificate.pem", home / "tls" / "key.pem")
    if certificate is not None and key is not None:
        chosen = Certificate(certificate.expanduser().absolute(), key.expanduser().absolute())
    else:
        before = remembered_certificate(home)
        if wanted is None and before is None:
            if (home / "tls" / "choice.json").exists():  # it must not go on with plain HTTP unasked
                raise CannotStart(f"{home / 'tls' / 'choice.json'} cannot be read: say --tls or --no-tls")
            return None
        chosen = own if before is None or wanted else before
    (home / "tls").mkdir(exist_ok=True, mode=0o755)
    if chosen == own:
        _keep_or_make(own, names(host))
    _check(chosen)
    kept = {"certificate": str(chosen.certificate), "key": str(chosen.key)}
    write_whole(home / "tls" / "choice.json", json.dumps(kept) + "\n")
    return chosen


def names(host: str) -> list[str]:
    """Return the names and addresses under which people reach an API that listens on ``host``."""
    here = socket.gethostname()
    found = ["localhost", "127.0.0.1", "::1", here]
    if host.strip("[]") not in _WILDCARDS:
        found.append(host.strip("[]"))
    else:
        with contextlib.suppress(OSError):  # this machine may not know its own name
            found += sorted({str(where[4][0]).partition("%")[0] for where in socket.getaddrinfo(here, None)})
    return list(dict.fromkeys(found))


def _check(chosen: Certificate) -> None:
    """Raise CannotStart if a server could not show this certificate."""
    try:
        tls.serving(chosen.certificate, chosen.key)
    except tls.BadCertificateFile as error:
        raise CannotStart(str(error)) from error


def _keep_or_make(own: Certificate, wanted: Sequence[str]) -> None:
    """Make a new certificate and key, unless the present one holds for some time and for all these names."""
    from cryptography import x509

    try:
        present = x509.load_pem_x509_certificate(own.certificate.read_bytes())
        soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=_RENEWED_BEFORE_DAYS)
        if present.not_valid_after_utc > soon and set(wanted) <= set(_names_in(present)):
            tls.serving(own.certificate, own.key)
            return
    except (OSError, ValueError, x509.ExtensionNotFound, tls.BadCertificateFile):
        pass  # there is none, it is not one of ours, or the machine went down after its key was written
    certificate, key = _made(wanted)
    write_whole(own.key, key, mode=0o600)
    write_whole(own.certificate, certificate, mode=0o644)


def _names_in(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = alternative.get_values_for_type(x509.IPAddress)
    return [*alternative.get_values_for_type(x509.DNSName), *map(str, addresses)]


def _made(wanted: Sequence[str]) -> tuple[str, str]:
    """Return a new certificate, signed by itself, and its key, both as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"OpenEDT on {socket.gethostname()}"[:64])])
    now = datetime.datetime.now(datetime.UTC)
    usage = dict.fromkeys(
        ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign"), False
    )
    usage |= dict.fromkeys(("crl_sign", "encipher_only", "decipher_only"), False)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in wanted]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, **usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.Encoding.PEM
    secret = key.private_bytes(form, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(form).decode(), secret.decode()


def _general_name(name: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
