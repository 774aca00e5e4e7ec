"""Receives the body of a submission: waits for its turn, then streams the body under a limit, to disk if it is large.

A submission takes resources from its first byte on: a connection that may be slow, a file on the disk, a process that
unpacks. So each user may send a few at a time, and all users together some more. Further submissions wait for some
seconds while their bodies stay unread. Then the API refuses them with 429 and the time after which to send them again.

This module touches one file in a given folder. The file is deleted when it is closed.

It reads all forms that clients send. A multipart body has a part ``file`` and perhaps a field ``data``. The part has a
file name, except when WMLA's SDK sends it. Of further files (a conda environment, a package) only the name is kept.
With ``--data-source`` alone, ``dlicmd`` sends a urlencoded form. A request without a body is legal here; the code that
reads ``args`` decides what is missing.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl
from weakref import WeakValueDictionary

from anyio import CancelScope, CapacityLimiter, current_time, fail_after
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from edt_api import concurrency
from edt_api.errors import TooLarge, TooManyUploads, UploadRefused
from edt_contract.crash_points import CrashPoint, crash_point

_FIELD_BYTES = 1 << 20
"""The most bytes of all fields together. Args of the greatest length fit in, however they are escaped."""
_MOST_PARTS = 20
_FLUSH_BYTES = 1 << 20
IN_MEMORY_BYTES = 256 * 1024
"""A file up to this size never goes to disk as it came. Only its unpacked content does."""
STALLED_SECONDS = 60.0
"""The API gives up a client that sends nothing for this time, since the client holds one of its user's turns."""
LEAST_BYTES_A_SECOND = 16 * 1024
BEHIND_SECONDS = 60.0
"""The API also gives up a client that is slower than LEAST_BYTES_A_SECOND and this many seconds late."""

WAIT_SECONDS = 10.0
"""How long a submission waits for its turn. The API can receive many small ones in this time."""


class Admission:
    """Lets ``at_once`` submissions in at a time, and ``per_user`` of one user. Belongs to the event loop that
    makes it.
    """

    def __init__(self, at_once: int, per_user: int) -> None:
        self._at_once, self._per_user = at_once, per_user
        self._all = CapacityLimiter(at_once)
        self._of_user: WeakValueDictionary[int, CapacityLimiter] = WeakValueDictionary()
        """The limiters of users who send something now. Each running submission keeps its user's limiter alive."""

    @asynccontextmanager
    async def turn(self, user: int) -> AsyncIterator[None]:
        """Wait for the submission's turn. The turn lasts as long as the block.

        Raises:
            TooManyUploads: the turn did not come within WAIT_SECONDS.
        """
        theirs = self._of_user.setdefault(user, CapacityLimiter(self._per_user))
        limit = f"{self._per_user} of one user"
        async with AsyncExitStack() as held:
            try:
                with fail_after(WAIT_SECONDS):
                    await held.enter_async_context(theirs)
                    limit = f"{self._at_once} of all users"
                    await held.enter_async_context(self._all)
            except TimeoutError:
                raise TooManyUploads(limit) from None
            yield


@dataclass
class Upload:
    """The content of a submission's body."""

    file: IO[bytes] | None = None
    """The content of the first part ``file``: in memory if it is small, else a temporary file, whose ``name`` is its
    path; None if there was no such part.
    """
    filename: str | None = None
    """The name that the client gave to the file. It is a label and never used as a path."""
    left_out: list[str] = field(default_factory=list)
    """The names of further files, whose content is dropped."""
    fields: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def receive(
    stream: AsyncIterator[bytes], content_type: str | None, folder: Path, *, most: int
) -> AsyncIterator[Upload]:
    """Read a request's body to its end. The uploaded file is deleted at the end of the block.

    Args:
        stream: the body.
        content_type: the request's Content-Type.
        folder: folder for the file.
        most: the largest body, in bytes.

    Raises:
        UploadRefused: the body cannot be read as a submission, or it comes too slowly.
        TooLarge: the body has more than ``most`` bytes, or a field is too large.
    """
    upload = Upload()
    try:
        await _read(_capped(stream, most), content_type, folder, upload)
        yield upload
    finally:
        if upload.file is not None and not isinstance(upload.file, BytesIO):
            with CancelScope(shield=True):
                await concurrency.uploads.run(_closed, upload.file)


async def _read(body: AsyncIterator[bytes], content_type: str | None, folder: Path, upload: Upload) -> None:
    kind, options = parse_options_header(content_type)
    if kind == b"multipart/form-data":
        await _multipart(body, options.get(b"boundary", b""), _Parts(folder, upload))
    elif kind == b"application/x-www-form-urlencoded":
        text = await read_whole(body, _FIELD_BYTES, f"the form is larger than {_FIELD_BYTES} bytes")
        try:
            upload.fields.update(parse_qsl(text.decode(), keep_blank_values=True, max_num_fields=_MOST_PARTS))
        except ValueError:
            raise UploadRefused("the form cannot be read: it is no UTF-8, or has too many fields") from None
    elif await anext(body, None) is not None:
        name = kind.decode(errors="replace")[:64] or "none"
        raise UploadRefused(f"the body has Content-Type {name}; send multipart/form-data with a part named file")


async def _capped(stream: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    waited, came = 0.0, 0
    while True:
        asked = current_time()
        try:
            with fail_after(STALLED_SECONDS):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise UploadRefused(f"nothing of the upload came for {STALLED_SECONDS:g} seconds; send it again") from None
        if chunk is None:
            return
        waited += current_time() - asked
        came += len(chunk)
        if came > most:
            raise TooLarge(f"the body is larger than {most} bytes")
        if waited > BEHIND_SECONDS + came / LEAST_BYTES_A_SECOND:
            raise UploadRefused(
                f"only {came} bytes of the upload came in {waited:.0f} seconds: at least {LEAST_BYTES_A_SECOND} a "
                "second are needed"
            )
        if chunk:
            yield chunk


async def read_whole(body: AsyncIterator[bytes], most: int, refusal: str) -> bytes:
    """Return the whole body.

    Raises:
        TooLarge: the body has more than ``most`` bytes; ``refusal`` is the message.
    """
    whole = bytearray()
    async for chunk in body:
        whole += chunk
        if len(whole) > most:
            raise TooLarge(refusal)
    return bytes(whole)


async def _multipart(body: AsyncIterator[bytes], boundary: bytes, parts: _Parts) -> None:
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]  # the library's TypedDict
        async for chunk in body:
            parser.write(chunk)
            if len(parts.waiting) > (IN_MEMORY_BYTES if parts.in_memory else _FLUSH_BYTES):
                await parts.flush()
    except FormParserError as error:
        raise UploadRefused(f"the multipart body cannot be read: {error}") from None
    if not parts.ended:
        raise UploadRefused("the multipart body is cut short: its last boundary is missing")
    await parts.finish()


class _Parts:
    """Sorts the parts that the parser finds: writes the first file to disk, keeps fields in memory, drops other
    files.
    """

    def __init__(self, folder: Path, upload: Upload) -> None:
        self.upload = upload
        self.waiting = bytearray()
        """Bytes of the file that are not on disk yet."""
        self.ended = False
        self._folder = folder
        self._count = 0
        self._header = b""
        self._header_value = b""
        self._disposition = b""
        self._field: str | None = None
        self._value = bytearray()
        self._field_bytes = 0
        self._to_file = False
        self._file_came = False

    def callbacks(self) -> dict[str, Any]:
        """Return the methods ``on_…`` by their names, which are the parser's names for its callbacks."""
        return {name: getattr(self, name) for name in dir(self) if name.startswith("on_")}

    @property
    def in_memory(self) -> bool:
        """Whether nothing of the file is on disk."""
        return self.upload.file is None

    async def flush(self) -> None:
        """Write what has come of the file to disk."""
        if self.upload.file is None:
            # Made in the event loop, since that takes only one system call. The file has a name so that the process
            # that unpacks it can open it.
            self.upload.file = tempfile.NamedTemporaryFile(dir=self._folder)  # noqa: SIM115 - receive() closes it
        waiting, self.waiting = self.waiting, bytearray()
        await concurrency.uploads.run(_written, self.upload.file, waiting)
        _received()

    async def finish(self) -> None:
        """Make the file complete, after the last byte of the body."""
        if not self.in_memory:
            await self.flush()
        elif self._file_came:
            self.upload.file = BytesIO(self.waiting)
            _received()

    def on_part_begin(self) -> None:
        self._count += 1
        if self._count > _MOST_PARTS:
            raise UploadRefused(f"the multipart body has more than {_MOST_PARTS} parts")
        self._disposition = b""
        self._field, self._to_file = None, False

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def on_header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = self._header_value
        self._header = self._header_value = b""

    def on_headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        name, filename = options.get(b"name"), options.get(b"filename")
        if name != b"file" and filename is None:
            self._field = (name or b"").decode(errors="replace")
            self._value = bytearray()
        elif self._file_came:
            self.upload.left_out.append((filename or b"").decode(errors="replace") or "a file without a name")
        else:
            self.upload.filename = filename.decode(errors="replace") if filename else None
            self._file_came = self._to_file = True

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._to_file:
            self.waiting += data[start:end]
        elif self._field is not None:
            self._value += data[start:end]
            self._field_bytes += end - start
            if self._field_bytes > _FIELD_BYTES:
                raise TooLarge(f"the field {self._field[:64]!r} makes the fields larger than {_FIELD_BYTES} bytes")

    def on_part_end(self) -> None:
        if self._field is None:
            return
        try:
            self.upload.fields[self._field] = self._value.decode()
        except UnicodeDecodeError:
            raise UploadRefused(f"the field {self._field[:64]!r} is not UTF-8") from None

    def on_end(self) -> None:
        self.ended = True


def _received() -> None:
    """Mark the point at which a part of the code has come, in memory or in the file."""
    crash_point(CrashPoint.API_UPLOAD)


def _closed(file: IO[bytes]) -> None:
    with suppress(FileNotFoundError):  # the file's name was removed already
        file.close()


def _written(file: IO[bytes], data: bytearray) -> None:
    file.write(data)
    file.flush()
