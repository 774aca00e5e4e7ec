"""The key under which the environments of jobs are sealed, and the file it lies in.

The file is ``EDT_SECRET_KEY_FILE``, else ``secret-key`` in the home, which whoever starts first makes. It holds a key a
line, newest first; a line that begins with # says something to people. The newest key seals; all of them open. A key
is one of Fernet's (AES-128-CBC and HMAC-SHA256): 32 random bytes in URL-safe base64. What is sealed names its key by an
id that tells nothing of it, so a key that is missing can be named.

The file is read again whenever it has changed, so that a key that is put back, or added, counts at once. While it
cannot be read, or holds no key (somebody is writing it just now), the keys that were read before go on counting.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from cryptography.fernet import Fernet, InvalidToken

from edt_contract.durable import draft_beside, sync
from edt_scheduler.errors import EnvironmentLocked, SecretKeyUnusable
from edt_scheduler.settings import Settings

log = logging.getLogger("edt.scheduler")

KEY_FILE = "secret-key"
_ID_BYTES = 6


class Sealed(NamedTuple):
    """An environment as it is stored."""

    key_id: str
    text: str


@dataclass(frozen=True)
class Keys:
    """What one look at the file found."""

    place: str
    ids: tuple[str, ...]
    """Newest first."""
    _of_id: Mapping[str, Fernet] = field(repr=False)
    _newest: bytes = field(repr=False)

    def seal(self, job: int, environ: Mapping[str, str]) -> Sealed:
        """Names and values, for this job only: a row that somebody copies to another job cannot be opened there."""
        text = json.dumps({"job": job, "environ": dict(environ)}).encode()
        return Sealed(self.ids[0], self._of_id[self.ids[0]].encrypt(text).decode())

    def open(self, job: int, sealed: Sealed) -> dict[str, str]:
        """The environment. Raises EnvironmentLocked where no key here opens it, or where it is not this job's."""
        key = self._of_id.get(sealed.key_id)
        if key is None:
            raise EnvironmentLocked(f"edt-{job}", self.missing(sealed.key_id), unknown_key=True)
        try:
            opened = json.loads(key.decrypt(sealed.text.encode()))
        except InvalidToken:
            raise EnvironmentLocked(f"edt-{job}", "what the database holds of it is damaged") from None
        if opened["job"] != job:
            raise EnvironmentLocked(f"edt-{job}", f"what the database holds of it was sealed for edt-{opened['job']}")
        return dict(opened["environ"])

    def missing(self, key_id: str) -> str:
        """Why what was sealed with another key stays shut: both keys, and what to do."""
        return (
            f"it was sealed with the key {key_id}, and {self.place} holds {', '.join(self.ids)}: "
            "add that key to the file as a line of its own"
        )

    def keyed(self, text: bytes) -> bytes:
        """A digest that cannot be guessed at without the key."""
        return hmac.digest(self._newest, b"edt request\0" + text, hashlib.sha256)


class KeyFile:
    """The file, and what was in it when it was last read. Any thread may ask."""

    def __init__(self, settings: Settings) -> None:
        self._named = settings.secret_key_file is not None
        self.path = settings.secret_key_file or settings.home / KEY_FILE
        self._read: tuple[tuple[int, ...], Keys] | None = None
        self._trouble = ""
        """What was said of the file last, while it cannot be used."""

    def keys(self) -> Keys:
        """All keys, as ``known``; the home's own file is made where there was none at the first look."""
        if self._read is None and not self._named:
            try:
                if not self.path.exists():
                    self._make()
            except OSError as error:
                raise SecretKeyUnusable(str(self.path), error.strerror or str(error)) from None
        return self.known()

    def known(self) -> Keys:
        """All keys; makes nothing. A file that cannot be used any more leaves the keys that were read before, and is
        told of in the log. Raises SecretKeyUnusable where none were."""
        try:
            found = self._look()
        except SecretKeyUnusable as error:
            if self._read is None:
                raise
            if self._trouble != str(error):
                log.error("%s; until then the keys count that were read before", error)
            self._trouble = str(error)
            return self._read[1]
        if self._trouble:
            log.info("the secret key %s can be used again", self.path)
        self._trouble = ""
        return found

    def last_read(self) -> Keys:
        """The keys that were read last, for who must not wait for the home's disk: looks at the file only where it was
        never read. Raises SecretKeyUnusable then."""
        return self._read[1] if self._read is not None else self.keys()

    def _look(self) -> Keys:
        try:
            stat = self.path.stat()
            seen = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if self._read is None or self._read[0] != seen:
                self._read = (seen, _parsed(str(self.path), self.path.read_text()))
            return self._read[1]
        except (OSError, UnicodeDecodeError) as error:
            why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is no text"
            raise SecretKeyUnusable(str(self.path), why) from None

    def _make(self) -> None:
        """Several processes may start at once: each writes a draft, and the first to give it the name has made it."""
        key = Fernet.generate_key().decode()
        with draft_beside(self.path, f"{key}\n", mode=0o600) as draft, suppress(FileExistsError):
            self.path.hardlink_to(draft)  # unlike a rename it fails where another process was faster
        sync(self.path.parent)


def _parsed(place: str, text: str) -> Keys:
    lines = [line.strip() for line in text.splitlines()]
    found: dict[str, Fernet] = {}
    newest = b""
    for number, line in enumerate(lines, 1):
        if not line or line.startswith("#"):
            continue
        try:
            fernet = Fernet(line)
        except ValueError:
            raise SecretKeyUnusable(
                place, f"line {number} is no key: it takes 32 bytes in URL-safe base64 (Fernet)"
            ) from None
        newest = newest or line.encode()
        found[hmac.digest(line.encode(), b"edt key id", hashlib.sha256)[:_ID_BYTES].hex()] = fernet
    if not found:
        raise SecretKeyUnusable(place, "it holds no key: it takes one a line, 32 bytes in URL-safe base64 (Fernet)")
    return Keys(place, tuple(found), found, newest)
