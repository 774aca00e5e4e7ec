"""The keys that seal the environments of jobs and sign access tokens, and the file that holds these keys.

The file is ``EDT_SECRET_KEY_FILE``, or else ``secret-key`` in the home. The first process that starts makes the file in
the home. It holds one key per line, newest first; a line that begins with # is a comment. The newest key seals and
signs, and every key opens and verifies. Each key is a Fernet key (AES-128-CBC and HMAC-SHA256): 32 random bytes in
URL-safe base64. Each sealed environment names its key by an id, so that a missing key can be named. The id reveals
nothing about the key.

The file is read again whenever it has changed, so that an added or restored key counts at once. If the file cannot be
read or holds no key, for example while an editor writes it, the keys that were read before stay in use.
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
    """The keys that were found when the file was last read."""

    place: str
    ids: tuple[str, ...]
    """Ids of the keys, newest first."""
    _of_id: Mapping[str, Fernet] = field(repr=False)
    _newest: bytes = field(repr=False)
    _signing: Mapping[str, bytes] = field(repr=False)

    def seal(self, job: int, environ: Mapping[str, str]) -> Sealed:
        """Seal names and values for this job only. A row that is copied to another job cannot be opened there."""
        text = json.dumps({"job": job, "environ": dict(environ)}).encode()
        return Sealed(self.ids[0], self._of_id[self.ids[0]].encrypt(text).decode())

    def open(self, job: int, sealed: Sealed) -> dict[str, str]:
        """The environment as names and values.

        Raises:
            EnvironmentLocked: No key of the file opens the environment, it is damaged, or it belongs to another job.
        """
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
        """A text that says why an environment sealed with another key stays closed. It names both keys
        and the remedy.
        """
        return (
            f"it was sealed with the key {key_id}, and {self.place} holds {', '.join(self.ids)}: "
            "add that key to the file as a line of its own"
        )

    def keyed(self, text: bytes) -> bytes:
        """A digest of 32 bytes. Without the key, nobody can test guesses of the text against it."""
        return hmac.digest(self._newest, b"edt request\0" + text, hashlib.sha256)

    def signing_key(self, key_id: str) -> bytes | None:
        """The key that signs access tokens, 32 bytes derived from the key with this id; None: there is no such key."""
        return self._signing.get(key_id)


class KeyFile:
    """The key file, and the keys that were in it when it was last read. Threads may share it."""

    def __init__(self, settings: Settings) -> None:
        self._named = settings.secret_key_file is not None
        self.path = settings.secret_key_file or settings.home / KEY_FILE
        self._read: tuple[tuple[int, ...], Keys] | None = None
        self._trouble = ""
        """What was last logged about the file while it cannot be used."""

    def keys(self) -> Keys:
        """All keys, as ``known``. At the first look, this makes the home's own file if it does not exist.

        Raises:
            SecretKeyUnusable: The file cannot be used, and no keys were read before.
        """
        if self._read is None and not self._named:
            try:
                if not self.path.exists():
                    self._make()
            except OSError as error:
                raise SecretKeyUnusable(str(self.path), error.strerror or str(error)) from None
        return self.known()

    def known(self) -> Keys:
        """All keys. Makes no file.

        If the file can no longer be used, the keys that were read before stay in use, and the log says why.

        Raises:
            SecretKeyUnusable: The file cannot be used, and no keys were read before.
        """
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
        """The keys that were read last, for callers that must not wait for the home's disk.

        The file is read only if it was never read before.

        Raises:
            SecretKeyUnusable: The file was never read before and cannot be used.
        """
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
        """Make the file with a new key. If several processes do this at once, each writes a draft, and the first link
        wins.
        """
        key = Fernet.generate_key().decode()
        with draft_beside(self.path, f"{key}\n", mode=0o600) as draft, suppress(FileExistsError):
            self.path.hardlink_to(draft)  # unlike a rename, this fails if another process was faster
        sync(self.path.parent)


def _parsed(place: str, text: str) -> Keys:
    lines = [line.strip() for line in text.splitlines()]
    found: dict[str, Fernet] = {}
    signing: dict[str, bytes] = {}
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
        key_id = hmac.digest(line.encode(), b"edt key id", hashlib.sha256)[:_ID_BYTES].hex()
        found[key_id] = fernet
        signing[key_id] = hmac.digest(line.encode(), b"edt access token", hashlib.sha256)
    if not found:
        raise SecretKeyUnusable(place, "it holds no key: it takes one a line, 32 bytes in URL-safe base64 (Fernet)")
    return Keys(place, tuple(found), found, newest, signing)
