"""Taking in the body of a submission: whose is next; streamed to disk under a cap, in every form that clients send.

A submission is work from its first byte on: a connection that may be slow, a file on the disk, a process that unpacks.
So each user has a few at a time, and all users together some more. What comes beyond that waits, its body unread, for
some seconds, and is then refused: by 429, with the time after which it may be sent again.

Touches one file in a given folder, which is gone when it is closed.

A multipart body has a part ``file`` (with a name, or as the SDK sends it without one) and perhaps a field
``data``; further files (a conda environment, a package) are read past. ``dlicmd`` with ``--data-source`` alone
sends a urlencoded form. No body at all is legal here: what is missing, ``args`` decides.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
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

_FIELD_BYTES = 64 * 1024
_MOST_PARTS = 20
_FLUSH_BYTES = 1 << 20
STALLED_SECONDS = 60.0
"""A client of whom nothing came for so long is given up: it holds one of its user's turns."""
LEAST_BYTES_A_SECOND = 16 * 1024
BEHIND_SECONDS = 60.0
"""One that is slower on the whole is given up too, once it is so far behind."""

WAIT_SECONDS = 10.0
"""So long does a submission wait for its turn: many small ones are taken in meanwhile."""


class Admission:
    """``at_once`` submissions are taken in at a time, ``per_user`` of one user. For one event loop, made inside it."""

    def __init__(self, at_once: int, per_user: int) -> None:
        self._at_once, self._per_user = at_once, per_user
        self._all = CapacityLimiter(at_once)
        self._of_user: WeakValueDictionary[int, CapacityLimiter] = WeakValueDictionary()
        """Of those who send something now: each submission holds its user's."""

    @asynccontextmanager
    async def turn(self, user: int) -> AsyncIterator[None]:
        """The block is the submission's turn. Raises TooManyUploads where it does not come in time."""
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
    """What a body holds."""

    file: IO[bytes] | None = None
    """What the first part ``file`` held, under the file's own ``name``; None where there was none."""
    filename: str | None = None
    """A label, not a path: what the client called it."""
    fields: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def receive(
    stream: AsyncIterator[bytes], content_type: str | None, folder: Path, *, most: int
) -> AsyncIterator[Upload]:
    """Read a request's body to its end; at the end of the block its file is gone. Raises UploadRefused, also where it
    stalls, and, after ``most`` bytes, TooLarge."""
    upload = Upload()
    try:
        await _read(_capped(stream, most), content_type, folder, upload)
        yield upload
    finally:
        if upload.file is not None:
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
    """All of it. Raises TooLarge, with this sentence, after ``most`` bytes."""
    whole = bytearray()
    async for chunk in body:
        whole += chunk
        if len(whole) > most:
            raise TooLarge(refusal)
    return bytes(whole)


async def _multipart(body: AsyncIterator[bytes], boundary: bytes, parts: _Parts) -> None:
    try:
        parser = MultipartParser(boundary, parts.callbacks())  # type: ignore[arg-type]  # its own TypedDict
        async for chunk in body:
            parser.write(chunk)
            if len(parts.waiting) > _FLUSH_BYTES:
                await parts.flush()
    except FormParserError as error:
        raise UploadRefused(f"the multipart body cannot be read: {error}") from None
    if not parts.ended:
        raise UploadRefused("the multipart body is cut short: its last boundary is missing")
    await parts.flush()


class _Parts:
    """Sorts what the parser finds: the first file to disk, fields into memory, other files nowhere."""

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
        self._to_file = False

    def callbacks(self) -> dict[str, Any]:
        """By the parser's names."""
        return {name: getattr(self, name) for name in dir(self) if name.startswith("on_")}

    async def flush(self) -> None:
        if self.upload.file is not None:
            waiting, self.waiting = self.waiting, bytearray()
            await concurrency.uploads.run(_written, self.upload.file, waiting)
            crash_point(CrashPoint.API_UPLOAD)

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
        elif self.upload.file is None:
            # In the event loop, since making a file is one system call. It has a name so that the process that unpacks
            # it can open it.
            self.upload.file = tempfile.NamedTemporaryFile(dir=self._folder)  # noqa: SIM115 - closed by Upload
            self.upload.filename = filename.decode(errors="replace") if filename else None
            self._to_file = True

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._to_file:
            self.waiting += data[start:end]
        elif self._field is not None:
            self._value += data[start:end]
            if len(self._value) > _FIELD_BYTES:
                raise TooLarge(f"the field {self._field[:64]!r} is larger than {_FIELD_BYTES} bytes")

    def on_part_end(self) -> None:
        if self._field is None:
            return
        try:
            self.upload.fields[self._field] = self._value.decode()
        except UnicodeDecodeError:
            raise UploadRefused(f"the field {self._field[:64]!r} is not UTF-8") from None

    def on_end(self) -> None:
        self.ended = True


def _closed(file: IO[bytes]) -> None:
    with suppress(FileNotFoundError):  # it has no name any more
        file.close()


def _written(file: IO[bytes], data: bytearray) -> None:
    file.write(data)
    file.flush()
