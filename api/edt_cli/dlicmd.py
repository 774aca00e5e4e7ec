#!/usr/bin/env python3
"""``dlicmd``: WMLA's command line for jobs, in one file that needs only Python 3.8 or newer.

    python dlicmd.py --logon --rest-host HOST --rest-port PORT --username NAME
    python dlicmd.py --exec-start edtPyTorch --rest-host HOST --rest-port PORT --model-dir mnist --model-main main.py

It has the verbs, the options and the output of WMLA's command of the same name, so that scripts written for that one
work. What the server answers goes to standard output. The exit status is 0 if the command worked, otherwise 1.

The token of a logon lies in ``~/.dlicmd``, which only its owner can read. Besides that the command writes only into
the current folder, and there only the result of ``--exec-trainresult``.

The file imports nothing of OpenEDT, because people copy it to machines without OpenEDT.
"""

from __future__ import annotations

import base64
import calendar
import getpass
import http.client
import io
import json
import os
import shlex
import shutil
import ssl
import sys
import tarfile
import tempfile
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote, urlencode, urlsplit

DL = "/platform/rest/deeplearning/v1"
EXECS = f"{DL}/execs"
APPLICATIONS = f"{DL}/scheduler/applications"
ENGINE_APPLICATIONS = f"{DL}/scheduler/engine/applications"
K8S_OBJECTS = f"{DL}/scheduler/kubernetesobjects"
RESPLANS = f"{DL}/resplans"
HYPERSEARCH = f"{DL}/hypersearch"
ALGORITHMS = f"{HYPERSEARCH}/algorithm"

ACTIVE = (
    "NEW",
    "SUBMITTED",
    "PENDING_JOB_SCHEDULER",
    "PENDING_CRD_SCHEDULER",
    "LAUNCHING",
    "RUNNING",
    "RECOVERING",
    "UNKNOWN",
)
FINAL = ("FINISHED", "KILLED", "ERROR")
SHOWN_STATES = ("PENDING", "RUNNING", "FINISHED", "KILLED", "ERROR", "UNKNOWN")

_TIMEOUT_SECONDS = 600.0
_PIECE = 1 << 16
_POLL_SECONDS = 10.0
_MISSED_POLLS = 30
"""How often in a row --app-wait may find no server before it gives up. A server may be started anew meanwhile."""
_LISTED = 10_000
"""How many applications are asked for at once."""
_LINE = "-" * 80
_LEFT_OUT = "__pycache__"

OWN_OPTIONS = {
    "--rest-host": "host",
    "--master-host": "host",
    "--rest-port": "port",
    "--dli-rest-port": "port",
    "--username": "username",
    "--password": "password",
    "--jwt-token": "token",
    "--cacert": "cacert",
    "--query-args": "query",
    "--data-source": "data_source",
}
"""Options with a value that this command reads itself and does not send as args of a job."""

_NO_TLS = ("wrong version number", "record layer failure", "unknown protocol")
"""What releases of OpenSSL say of an answer that is no TLS. Some releases of Python know only the text of an error."""


class Failed(Exception):
    """The command cannot go on. The message is for the user, on standard error."""


class Answered(Exception):
    """The server refused. The message is for standard output, where scripts look for it."""


# ── the command line ──────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass
class Words:
    """A command line: what it asks for, the options of this command, and the words that belong to the job."""

    verb: str
    values: list[str]
    """What stands behind the verb, up to the next option."""
    own: dict[str, str]
    output: str
    """Value of ``-o``: ``json``, ``custom-columns=a,b`` or nothing."""
    kept: list[str]
    """All words but those of this command's own options."""

    @property
    def value(self) -> str:
        """The one value of the verb.

        Raises:
            Failed: there is none.
        """
        if not self.values:
            raise Failed(f"{self.verb} takes {VERBS[self.verb].takes or 'a value'}")
        return self.values[0]

    def option(self, name: str) -> str | None:
        """Return the value of an option such as ``--model-dir``; None if it is not given."""
        found = self.options(name)
        return found[-1] if found else None

    def options(self, name: str) -> list[str]:
        """Return all values of an option that may be given several times.

        Raises:
            Failed: the option stands at the end, without a value.
        """
        found = []
        words = self.kept[: self.kept.index("--")] if "--" in self.kept else self.kept
        for at, word in enumerate(words):
            if word.startswith(f"{name}="):
                found.append(word[len(name) + 1 :])
            elif word == name:
                if at + 1 == len(words):
                    raise Failed(f"{name} takes a value")
                found.append(words[at + 1])
        return found

    def args(self) -> str:
        """Return the words as the server takes them: ``--model-dir`` with its folder's name, joined by one space."""
        sent = []
        ours = True
        before = ""
        for word in self.kept:
            ours = ours and word != "--"
            if ours and before == "--model-dir":
                sent.append(_as_one_word(_folder_name(word)))
            elif ours and word.startswith("--model-dir="):
                sent.append(_as_one_word(f"--model-dir={_folder_name(word.partition('=')[2])}"))
            else:
                sent.append(_as_one_word(word))
            before = word
        return " ".join(sent)


def _as_one_word(word: str) -> str:
    """Quote a word that the server would take for several words or change. What is quoted already stays."""
    if "\\" in word or word[:1] in {"'", '"'}:
        return word
    try:
        same = shlex.split(word) == [word]
    except ValueError:
        same = False
    return word if same else shlex.quote(word)


def _folder_name(path: str) -> str:
    return Path(os.path.abspath(path)).name  # noqa: PTH100  resolve() would follow a link and take another name


def parse(words: Sequence[str]) -> Words:
    """Read a command line.

    Raises:
        Failed: no verb is named, or an option lacks its value.
    """
    own: dict[str, str] = {}
    kept: list[str] = []
    output = ""
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":  # from here on all belongs to the job
            kept += [word, *rest]
            break
        name, equals, value = word.partition("=")
        if name in OWN_OPTIONS:
            if not equals and not rest:
                raise Failed(f"{name} takes a value")
            own[OWN_OPTIONS[name]] = value if equals else rest.pop(0)
        elif name in {"-o", "--output"} and _is_output(value if equals else (rest or [""])[0]):
            output = value if equals else rest.pop(0)
        else:
            kept.append(word)
    return _with_verb(own, output, kept)


def _is_output(value: str) -> bool:
    """Whether this is a form of output. Otherwise ``-o`` belongs to the user's script."""
    return value == "json" or value.startswith("custom-columns=")


def _with_verb(own: dict[str, str], output: str, kept: list[str]) -> Words:
    for at, word in enumerate(kept):
        if word == "--":
            break
        name, equals, value = word.partition("=")
        verb = "--help" if name == "-h" else name
        if verb not in VERBS:
            continue
        values = [value] if equals else []
        for following in kept[at + 1 :]:
            if following.startswith("-"):
                break
            values.append(following)
        return Words(verb, values, own, output, kept)
    unknown = next((word for word in kept if word.startswith("-")), None)
    raise Failed(f"{unknown or 'nothing'} is no command: `--help` lists them")


# ── the server ────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass
class Body:
    """The body of a request, sent piece by piece."""

    content_type: str
    length: int
    pieces: Callable[[], Iterable[bytes]]


class Server:
    """One server, at https; at http only where the server's port does not speak TLS."""

    def __init__(self, host: str, port: int | None, scheme: str, authorization: str, cacert: str | None) -> None:
        self._host, self._port, self._authorization = host, port, authorization
        self.scheme = scheme or "https"
        self._may_fall_back = not scheme and cacert is None
        self._warned = not authorization.startswith("Basic ")
        self._tls = ssl.create_default_context(cafile=cacert)
        if cacert is None:  # WMLA's servers have certificates of their own making
            self._tls.check_hostname = False
            self._tls.verify_mode = ssl.CERT_NONE

    @property
    def url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self.scheme}://{host}" + (f":{self._port}" if self._port is not None else "")

    def send(
        self, method: str, path: str, body: Body | None = None, accept: str = "application/json"
    ) -> http.client.HTTPResponse:
        """Send a request. The caller reads the answer.

        Raises:
            Failed: there is no answer.
        """
        try:
            connection = self._connected()
            return self._send(connection, method, path, body, accept)
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"no answer from {self.url}: {error or type(error).__name__}") from error

    def _connected(self) -> http.client.HTTPConnection:
        """Connect. If the server's answer to the TLS handshake is no TLS, connect without, from now on.

        A server that ends the connection or refuses the handshake may well speak TLS: it gets nothing unencrypted.
        """
        if self.scheme == "https":
            secure = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS, context=self._tls)
            try:
                secure.connect()
            except ssl.SSLError as error:
                if not self._may_fall_back or not any(reason in str(error) for reason in _NO_TLS):
                    raise
                self.scheme = "http"
            else:
                self._may_fall_back = False
                return secure
        plain = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        plain.connect()
        if not self._warned:
            self._warned = True
            print(f"{self.url} does not speak TLS: the password goes there unencrypted", file=sys.stderr, flush=True)
        return plain

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: Body | None, accept: str
    ) -> http.client.HTTPResponse:
        headers = {"Accept": accept, "Authorization": self._authorization, "Connection": "close"}
        if body is not None:
            headers.update({"Content-Type": body.content_type, "Content-Length": str(body.length)})
        try:
            connection.request(method, path, body.pieces() if body is not None else None, headers)
        except (BrokenPipeError, ConnectionResetError):
            if body is None:
                raise
            # A server may refuse an upload before it has read all of it. Then its answer is there to be read.
        return connection.getresponse()

    def ask(self, method: str, path: str, body: Body | None = None) -> tuple[int, str]:
        """Send a request and return the status and the text of the answer."""
        answer = self.send(method, path, body)
        try:
            return answer.status, answer.read().decode(errors="replace")
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"the answer of {self.url} broke off: {error or type(error).__name__}") from error

    def text(self, method: str, path: str, body: Body | None = None) -> str:
        """Send a request and return the text of the answer.

        Raises:
            Answered: the server refuses.
        """
        status, text = self.ask(method, path, body)
        if not 200 <= status < 300:
            raise Answered(_pretty(text) or f"HTTP:{status}")
        return text

    def object(self, method: str, path: str, body: Body | None = None) -> Any:
        """Send a request and return the JSON of the answer.

        Raises:
            Answered: the server refuses.
            Failed: the answer is no JSON.
        """
        text = self.text(method, path, body)
        try:
            return json.loads(text)
        except ValueError:
            raise Failed(f"the answer of {self.url}{path.partition('?')[0]} is no JSON: {text[:200]!r}") from None

    def records(self, path: str) -> list[dict[str, Any]]:
        """GET a list of objects."""
        found = self.object("GET", path)
        if not isinstance(found, list):
            raise Failed(f"the answer of {self.url}{path.partition('?')[0]} is no list")
        return [each for each in found if isinstance(each, dict)]


def _place(own: Mapping[str, str]) -> tuple[str, int | None, str]:
    """Return host, port and scheme of the server; no port or scheme if none is named.

    The host may have a port (``host:8443``) and a scheme. Without ``--rest-host`` it is the one of EDT_API.
    """
    named = own.get("host") or os.environ.get("EDT_API")
    if not named:
        raise Failed("which server? --rest-host HOST names it, --rest-port PORT its port")
    scheme, _, rest = named.rpartition("://")
    if scheme not in {"", "http", "https"}:
        raise Failed(f"--rest-host: {named!r} is no host")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"  # an IPv6 address without a port
    port = own.get("port", "-1")
    try:
        parts = urlsplit(f"//{rest}")
        host, number = parts.hostname, parts.port
        if port != "-1":
            number = int(port)
    except ValueError:
        raise Failed(f"--rest-host {named} --rest-port {port}: a port is a number from 1 to 65535") from None
    if not host or (number is not None and not 0 < number < 65536):
        raise Failed(f"--rest-host {named} --rest-port {port}: that is no server's address")
    return host, number, scheme


def _token_file() -> Path:
    return Path.home() / ".dlicmd"


def _authorization(words: Words) -> str:
    """Return the header that shows who asks: a name and a password, or the token of ``--jwt-token`` or of the logon."""
    own = words.own
    if "username" in own or words.verb == "--logon":
        name = own["username"] if "username" in own else _asked("Username: ")
        password = own["password"] if "password" in own else _asked_password(name)
        return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()
    token = own.get("token")
    if token is None:
        try:
            token = _token_file().read_text().strip()
        except OSError:
            token = ""
    if not token:
        raise Failed("nobody is logged on here: run --logon, or give --jwt-token TOKEN")
    if not (token.isascii() and token.isprintable()):
        raise Failed("the token holds characters that no token has: run --logon again")
    return f"Bearer {token}"


def _asked(prompt: str) -> str:
    sys.stderr.write(prompt)
    sys.stderr.flush()
    return sys.stdin.readline().rstrip("\r\n")


def _asked_password(name: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().rstrip("\r\n")
    return getpass.getpass(f"Password of {name}: ")


def _server(words: Words) -> Server:
    host, port, scheme = _place(words.own)
    cacert = words.own.get("cacert")
    try:
        return Server(host, port, scheme, _authorization(words), cacert)
    except OSError as error:  # ssl.SSLError is one, too
        raise Failed(f"--cacert: {cacert} cannot be read: {error.strerror or error}") from error


def _conf(server: Server) -> None:
    """Ask for the server's configuration, as WMLA's command does before each command.

    Raises:
        Answered: the server does not take the token or the password.
    """
    status, text = server.ask("GET", f"{DL}/conf")
    if status == 401:
        raise Answered(f"Authentication error. The request was denied.\n{_pretty(text)}")
    if status == 403:
        raise Answered(f"{_pretty(text)}\nTry to run --logon again.")
    if not 200 <= status < 300:
        raise Answered(_pretty(text) or f"HTTP:{status}")


# ── what is sent ──────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass
class Upload:
    """A file of a request: its name there and its content."""

    name: str
    file: IO[bytes]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.file.seek(0, io.SEEK_END)
        self.file.seek(0)


def multipart(uploads: Sequence[Upload], fields: Mapping[str, str]) -> Body:
    """Return a form with files, each as a part called ``file``, and with fields. Files are read while they are sent."""
    boundary = uuid.uuid4().hex
    parts: list[tuple[bytes, Upload | None]] = []
    for name, value in fields.items():
        parts.append((f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}'.encode(), None))
    for upload in uploads:
        shown = upload.name.replace("\\", "\\\\").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{shown}"\r\n'
        parts.append((f"{head}Content-Type: application/octet-stream\r\n\r\n".encode(errors="surrogateescape"), upload))
    end = f"--{boundary}--\r\n".encode()
    length = sum(len(head) + (upload.size if upload else 0) + 2 for head, upload in parts) + len(end)

    def pieces() -> Iterator[bytes]:
        for head, upload in parts:
            yield head
            if upload is not None:
                upload.file.seek(0)
                yield from _exactly(upload)
            yield b"\r\n"
        yield end

    return Body(f"multipart/form-data; boundary={boundary}", length, pieces)


def _exactly(upload: Upload) -> Iterator[bytes]:
    """Yield as many bytes as were announced, even if the file grows meanwhile."""
    left = upload.size
    while left:
        piece = upload.file.read(min(_PIECE, left))
        if not piece:
            raise Failed(f"{upload.name} became shorter while it was sent")
        left -= len(piece)
        yield piece


def _json_body(value: Any) -> Body:
    data = json.dumps(value).encode()
    return Body("application/json", len(data), lambda: [data])


def pack(folder: Path) -> Upload:
    """Pack a folder as a gzipped tar, in which it is the one folder at the top.

    Links are replaced by what they point to. ``__pycache__`` is left out, and what is neither file nor folder; the
    latter is named on standard error.

    Raises:
        Failed: the folder cannot be read.
    """
    name = _folder_name(str(folder))
    if not name or not folder.is_dir():
        raise Failed(f"--model-dir: {folder} is no folder")
    file = tempfile.TemporaryFile(prefix="dlicmd-")  # noqa: SIM115  it is sent after this function
    try:
        with tarfile.open(fileobj=file, mode="w:gz", dereference=True, compresslevel=1) as archive:
            _add(archive, folder, name, frozenset())
    except OSError as error:
        raise Failed(f"{error.filename or folder} cannot be packed: {error.strerror or error}") from error
    return Upload(f"{name}.modelDir.tar", file)


def _add(archive: tarfile.TarFile, path: Path, name: str, above: frozenset[Path]) -> None:
    """Add a file, or a folder with its content. ``above``: the folders around it, because a link may lead to one."""
    if path.is_dir():
        real = path.resolve()
        if real in above:
            raise Failed(f"{path} is a link to a folder that it lies in")
        archive.add(str(path), name, recursive=False)
        for entry in sorted(path.iterdir()):
            if entry.name != _LEFT_OUT:
                _add(archive, entry, f"{name}/{entry.name}", above | {real})
    elif path.is_file():
        archive.add(str(path), name, recursive=False)
    else:
        print(f"{path} is neither a file nor a folder, so it is left out", file=sys.stderr)


def _opened(option: str, path: str) -> Upload:
    try:
        if not Path(path).is_file():
            raise Failed(f"{option}: {path} is no file")
        return Upload(Path(path).name, open(path, "rb"))  # noqa: PTH123  it is sent after this function
    except OSError as error:
        raise Failed(f"{option}: {path} cannot be read: {error.strerror or error}") from error


# ── what is printed ───────────────────────────────────────────────────────────────────────────────────────────────────
def _show(value: Any) -> None:
    print(json.dumps(value, indent=4, ensure_ascii=False))


def _pretty(text: str) -> str:
    """Return JSON with line breaks, and any other text as it is."""
    try:
        return json.dumps(json.loads(text), indent=4, ensure_ascii=False)
    except ValueError:
        return text.strip()


def _size(count: float) -> str:
    """Return a number of bytes as ``1.9K``."""
    if count < 1024:
        return f"{count:g}B"
    for unit in "KMG":
        count /= 1024
        if count < 1024:
            return f"{count:.1f}{unit}"
    return f"{count / 1024:.1f}T"


Columns = Mapping[str, Callable[[Mapping[str, Any]], Any]]


def table(records: Sequence[Mapping[str, Any]], columns: Columns, output: str) -> None:
    """Print records as a table, as JSON, or with the columns that the user names: those of the table or any field.

    Raises:
        Failed: a column is named that no record has.
    """
    if output == "json":
        _show(records)
        return
    names = list(columns)
    if output:
        names = [name.strip() for name in output.partition("=")[2].split(",") if name.strip()]
        unknown = [name for name in names if name not in columns and not any(name in record for record in records)]
        if not names or (unknown and records):
            raise Failed(f"custom-columns: {unknown[0] if unknown else 'none'}; there are {', '.join(columns)}")
    rows = [[_cell(columns[n](r) if n in columns else r.get(n)) for n in names] for r in records]
    widths = [max(map(len, column)) for column in zip(names, *rows)]
    for row in [names, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, float):
        return f"{value:.2f}".rstrip("0").rstrip(".")
    return str(value)


def _seconds(text: Any) -> float | None:
    """Return seconds since 1970 of a time such as ``2026-11-21T12:00:00.5Z``, or of a number; None for others."""
    if isinstance(text, (int, float)) and not isinstance(text, bool):
        return float(text) if text > 0 else None
    whole, _, _ = str(text).rstrip("Z").partition(".")
    try:
        return float(calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")))
    except ValueError:
        return None


def _age(since: Any) -> str:
    """Return how long ago something was: ``45s``, ``12m``, ``3h5m``, ``2d4h``."""
    begun = _seconds(since)
    if begun is None:
        return ""
    seconds = max(0, int(time.time() - begun))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d{hours % 24}h"
    if hours:
        return f"{hours}h{minutes % 60}m"
    return f"{minutes}m" if minutes else f"{seconds}s"


def _clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def _local_time(seconds: Any) -> str:
    found = _seconds(seconds)
    return "" if found is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found))


def _pass_on(answer: http.client.HTTPResponse) -> None:
    """Print the text of an answer piece by piece."""
    sys.stdout.flush()
    last = b"\n"
    try:
        for piece in iter(lambda: answer.read(_PIECE), b""):
            sys.stdout.buffer.write(piece)
            last = piece[-1:]
    except http.client.HTTPException as error:
        raise Failed("the server's answer broke off") from error
    if last != b"\n":
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


# ── verbs: logon ──────────────────────────────────────────────────────────────────────────────────────────────────────
def show_help(_: Words, __: Server | None = None) -> int:
    """Print the help."""
    print(_help())
    return 0


def logon(_: Words, server: Server) -> int:
    """Log on, print the answer, and keep its token."""
    status, text = server.ask("GET", "/auth/v1/logon")
    if status == 401:
        raise Answered(f"Authentication error. The request was denied.\n{_pretty(text)}")
    if not 200 <= status < 300:
        raise Answered(_pretty(text) or f"HTTP:{status}")
    print(_pretty(text))
    try:
        token = json.loads(text)["accessToken"]
    except (ValueError, KeyError, TypeError):
        token = None
    if not token or not isinstance(token, str):
        raise Failed("the answer holds no accessToken")
    _keep(token)
    return 0


def _keep(token: str) -> None:
    path = _token_file()
    try:
        handle, draft = tempfile.mkstemp(prefix=".dlicmd-", dir=str(path.parent))  # mode 0600
        try:
            with os.fdopen(handle, "w") as file:
                file.write(token)
            os.replace(draft, str(path))  # noqa: PTH105  Path.replace would say the same
        except BaseException:
            os.unlink(draft)  # noqa: PTH108
            raise
    except OSError as error:
        raise Failed(f"the token cannot be kept in {path}: {error.strerror or error}") from error


def logoff(words: Words, server: Server) -> int:
    """End the token, and forget it if it was the one of the logon."""
    status, text = server.ask("POST", "/auth/v1/logoff")
    print(_pretty(text) or f"HTTP:{status}")
    if "token" not in words.own and "username" not in words.own and (200 <= status < 300 or status == 401):
        try:
            _token_file().unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            raise Failed(f"{_token_file()} cannot be removed: {error.strerror or error}") from error
    return 0 if 200 <= status < 300 else 1


# ── verbs: jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────
def frameworks(words: Words, server: Server) -> int:
    """List the frameworks."""
    found = server.records(f"{EXECS}/frameworks")
    if words.output == "json":
        _show(found)
        return 0
    for each in found:
        described = each.get("desc") or []
        lines = [
            line
            for text in ([described] if isinstance(described, str) else described)
            for line in str(text).splitlines()
        ]
        print(f"Name: {each.get('name', '')}")
        print(f"Version: {each.get('frameworkVersion', '')}")
        print(f"Desc: {lines[0] if lines else ''}")
        for line in lines[1:]:
            print(f"      {line}")
        print()
    return 0


def exec_start(words: Words, server: Server) -> int:
    """Submit a job with its code."""
    words.value  # noqa: B018  raises if no framework is named
    fields = _data_source(words)
    uploads = _uploads(words)
    body: Body | None = None
    if uploads:
        print(f"Content size: {_size(sum(upload.size for upload in uploads))}", flush=True)
        body = multipart(uploads, fields)
    elif fields:
        data = urlencode(fields).encode()
        body = Body("application/x-www-form-urlencoded", len(data), lambda: [data])
    made = server.object("POST", f"{EXECS}/?{urlencode({'args': words.args()}, quote_via=quote)}", body)
    try:
        _show({"execId": made["id"], "appId": made["appId"]})
    except (KeyError, TypeError):
        raise Failed(f"the answer names no job: {json.dumps(made)[:200]}") from None
    return 0


def _uploads(words: Words) -> list[Upload]:
    """Return the files of a submission: the packed folder or the script, then what conda needs."""
    folder, main = words.option("--model-dir"), words.option("--model-main")
    uploads = []
    if folder is not None or main is not None:
        print("Copying files and directories ...", flush=True)
    if folder is not None:
        uploads.append(pack(Path(folder)))
    elif main is not None:
        uploads.append(_opened("--model-main", main))
    for option in ("--conda-env-yaml", "--conda-package"):
        path = words.option(option)
        if path is not None:
            uploads.append(_opened(option, path))
    return uploads


def _data_source(words: Words) -> dict[str, str]:
    text = words.own.get("data_source")
    if text is None:
        return {}
    try:
        sources = json.loads(text)
    except ValueError as error:
        raise Failed(f"--data-source takes JSON: {error}") from None
    if isinstance(sources, dict):
        sources = sources.get("dataSource", [sources])
    return {"data": json.dumps({"dataSource": sources})}


def exec_get(words: Words, server: Server) -> int:
    """Print a job, and how long it has waited and run."""
    found = server.object("GET", _exec(words.value))
    if isinstance(found, dict) and found.get("state") not in FINAL:
        status, text = server.ask("GET", f"{K8S_OBJECTS}?{urlencode({'type': 'paralleljob', 'name': words.value})}")
        try:
            parallel = json.loads(text) if 200 <= status < 300 else None
        except ValueError:
            parallel = None
        if isinstance(parallel, dict):
            found.update(_of_parallel_job(parallel))
    _show(found)
    return 0


def _of_parallel_job(parallel: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a parallel job adds to its exec: how long it has waited and run, its state, what its tasks want."""
    status = parallel.get("status") or {}
    made, begun = _seconds(status.get("creationTimestamp")), _seconds(status.get("jobStartTime"))
    now = time.time()
    more: dict[str, Any] = {}
    if made is not None:
        more["pendingDuration"] = _clock((now if begun is None else begun) - made)
    if begun is not None:
        more["runningDuration"] = _clock(now - begun)
    info = {name: status[name] for name in ("jobStatus", "jobPendingReason") if status.get(name)}
    groups = []
    for group in (parallel.get("spec") or {}).get("taskGroups") or []:
        spec = group.get("spec") or {}
        pod = (spec.get("template") or {}).get("spec") or {}
        groups.append(
            {
                "name": (group.get("metadata") or {}).get("name"),
                "replica": spec.get("replica"),
                "resources": [container.get("resources") for container in pod.get("containers") or []],
            }
        )
    if groups:
        info["taskGroups"] = groups
    if info:
        more["parallelJobInfo"] = info
    return more


EXEC_COLUMNS: Columns = {
    "id": lambda job: job.get("id"),
    "submit_user": lambda job: job.get("creator"),
    "name": lambda job: job.get("appName"),
    "framework": lambda job: job.get("framework"),
    "type": lambda job: "ELASTIC" if job.get("elastic") else "PARALLEL",
    "state": lambda job: job.get("state"),
    "num": lambda job: job.get("numWorker"),
    "submit_time": lambda job: job.get("createTime"),
    "age": lambda job: _age(job.get("createTime")),
}


def exec_get_all(words: Words, server: Server) -> int:
    """List the jobs."""
    query = words.own.get("query", "")
    table(server.records(f"{EXECS}/?{quote(query, safe=_IN_QUERY)}"), EXEC_COLUMNS, words.output)
    return 0


_IN_QUERY = "=&:,%-_.~+/"
"""Characters that the user has put into ``--query-args`` with a meaning."""


def exec_stop(words: Words, server: Server) -> int:
    """Stop a job."""
    return _said("Stop exec", words.value, server.ask("POST", f"{_exec(words.value)}/stop"))


def exec_delete(words: Words, server: Server) -> int:
    """Delete a job."""
    return _said("Delete exec", words.value, server.ask("DELETE", _exec(words.value)))


def _said(what: str, name: str, answer: tuple[int, str]) -> int:
    status, text = answer
    worked = 200 <= status < 300
    print(f"{what} {name} {'succeed' if worked else 'failed'}. HTTP:{status} {_pretty(text)}")
    return 0 if worked else 1


def exec_delete_all(_: Words, server: Server) -> int:
    """Delete all jobs of the user."""
    server.text("DELETE", EXECS)
    print("Execs are deleted")
    return 0


def _exec(name: str) -> str:
    return f"{EXECS}/{quote(name, safe='')}"


def exec_logs(kind: str) -> Verb:
    """Return the verb that prints a log of each process of a job."""

    def verb(words: Words, server: Server) -> int:
        found = server.object("GET", _exec(words.value))
        _process_logs(words, server, str(found.get("appId") or words.value), kind)
        return 0

    return verb


def app_logs(kind: str) -> Verb:
    """Return the verb that prints a log of each process of an application."""

    def verb(words: Words, server: Server) -> int:
        _process_logs(words, server, words.value, kind)
        return 0

    return verb


def _process_logs(words: Words, server: Server, app: str, kind: str) -> None:
    """Print a log (``stdout``, ``stderr`` or ``launcherlog``) of the driver and of each executor."""
    lines = words.option("--lastlines")
    query = f"?{urlencode({'lastlines': lines})}" if lines is not None else ""
    for each in server.records(f"{APPLICATIONS}?{urlencode({'applicationid': app})}"):
        where = f"{APPLICATIONS}/{quote(str(each.get('applicationid') or app), safe='')}"
        places = [("Driver", f"{where}/driver/logs/{kind}{query}")] if each.get("task0") else []
        for number in range(1, len(each.get("task12n") or []) + 1):
            places.append((f"Executor {number}", f"{where}/executor/{number}/logs/{kind}{query}"))
        for name, path in places:
            print(_LINE)
            print(f"{name} {kind}")
            _print_text(server, path)


def _print_text(server: Server, path: str) -> None:
    with server.send("GET", path, accept="text/plain") as answer:
        if not 200 <= answer.status < 300:
            raise Answered(_pretty(answer.read().decode(errors="replace")) or f"HTTP:{answer.status}")
        _pass_on(answer)


def train_logs(kind: str) -> Verb:
    """Return the verb that prints a log of a job's training."""

    def verb(words: Words, server: Server) -> int:
        query = urlencode({"logType": kind, "args": words.args()}, quote_via=quote)
        _print_text(server, f"{_exec(words.value)}/log?{query}")
        return 0

    return verb


def train_result(words: Words, server: Server) -> int:
    """Save what a job has saved, as a zip in the current folder."""
    query = urlencode({"args": words.args()}, quote_via=quote)
    with server.send("GET", f"{_exec(words.value)}/result?{query}", accept="text/plain") as answer:
        if not 200 <= answer.status < 300:
            raise Answered(_pretty(answer.read().decode(errors="replace")) or f"HTTP:{answer.status}")
        name = file_name(answer.getheader("Content-Disposition") or "")
        try:
            _save(answer, name)
        except (OSError, http.client.HTTPException) as error:
            raise Failed(f"{name} cannot be saved here: {getattr(error, 'strerror', None) or error}") from error
    print(f"Train result is saved to {name}")
    return 0


def file_name(disposition: str) -> str:
    """Return the file name in a Content-Disposition header: a name without any folder.

    A name that begins with a dot is none: programs read such files by themselves, and a listing does not show them.

    Raises:
        Failed: the header names no file.
    """
    for item in disposition.split(";"):
        if item.strip().lower().startswith("filename="):
            name = item.partition("=")[2].strip().strip('"').replace("\\", "/").rpartition("/")[2]
            if name and name[0] != "." and name.isprintable():
                return name
    raise Failed(f"the answer names no file to save: {disposition!r}")


def _save(answer: http.client.HTTPResponse, name: str) -> None:
    handle, draft = tempfile.mkstemp(prefix=".dlicmd-", dir=".")
    try:
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(answer, file, _PIECE)
            size = file.tell()
        announced = answer.getheader("Content-Length")
        if announced is not None and size != int(announced):
            raise Failed(f"{name}: {size} of {announced} bytes came, so it is not kept")
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(draft, 0o666 & ~mask)  # noqa: PTH101
        os.replace(draft, name)  # noqa: PTH105
    except BaseException:
        os.unlink(draft)  # noqa: PTH108
        raise


def exec_deploy(words: Words, server: Server) -> int:
    """Deploy a job's result."""
    body: dict[str, Any] = {}
    for name in ("name", "runtime", "kernel", "weight", "tag"):
        value = words.option(f"--{name}")
        if value is not None:
            body[name] = value
    for name in ("attributes", "environments"):
        pairs = [pair.partition("=") for pair in words.options(f"--{name}")]
        body[name] = {key: value for key, _, value in pairs}
    _show(server.object("POST", f"{_exec(words.value)}/deploy", _json_body(body)))
    return 0


# ── verbs: applications ───────────────────────────────────────────────────────────────────────────────────────────────
APP_COLUMNS: Columns = {
    "id": lambda app: app.get("id"),
    "submit_user": lambda app: app.get("submit_user"),
    "name": lambda app: app.get("name"),
    "consumer": lambda app: app.get("consumer"),
    "type": lambda app: app.get("type"),
    "priority": lambda app: app.get("priority"),
    "state": lambda app: app.get("state"),
    "num": lambda app: app.get("task12n_num"),
    "used_gpu": lambda app: app.get("used_gpu"),
    "used_cpu": lambda app: app.get("used_cpu"),
    "used_mem": lambda app: app.get("used_mem"),
    "submit_time": lambda app: _local_time(app.get("submit_time")),
    "age": lambda app: _age(app.get("submit_time")),
}


def _applications(server: Server, states: Sequence[str]) -> list[dict[str, Any]]:
    query = {"start": 0, "length": _LISTED, "sort": "-submit_time", "state": ",".join(states)}
    return server.records(f"{ENGINE_APPLICATIONS}?{urlencode(query, safe=',')}")


def _application(server: Server, name: str) -> Any:
    return server.object("GET", f"{ENGINE_APPLICATIONS}/{quote(name, safe='')}")


def app_list(states: Sequence[str]) -> Verb:
    """Return the verb that lists the applications in these states."""

    def verb(words: Words, server: Server) -> int:
        table(_applications(server, states), APP_COLUMNS, words.output)
        return 0

    return verb


def app_get(words: Words, server: Server) -> int:
    """Print an application."""
    _show(_application(server, words.value))
    return 0


def app_wait(words: Words, server: Server) -> int:
    """Wait until an application has ended; print each of its states."""
    text = words.option("--interval")
    try:
        pause = float(text) if text is not None else _POLL_SECONDS
    except ValueError:
        raise Failed(f"--interval: {text!r} is no number of seconds") from None
    before, missed = None, 0
    while True:
        try:
            found = _application(server, words.value)
        except Failed:
            missed += 1
            if missed > _MISSED_POLLS:
                raise
            time.sleep(max(0.0, pause))
            continue
        missed = 0
        try:
            state, since = str(found[0]["state"]), found[0].get("submit_time")
        except (IndexError, KeyError, TypeError):
            raise Failed(f"{words.value}: the answer names no application") from None
        if state != before:
            print(f"{words.value} {state}, submitted {_age(since) or '?'} ago", flush=True)
        if state not in ACTIVE:
            return 0 if state == "FINISHED" else 1
        before = state
        time.sleep(max(0.0, pause))


def app_stop(words: Words, server: Server) -> int:
    """Stop applications."""
    words.value  # noqa: B018  raises if none is named
    return max(_stop(server, name) for name in words.values)


def _stop(server: Server, name: str) -> int:
    return _said("Stop app", name, server.ask("PUT", f"{APPLICATIONS}/{quote(name, safe='')}/stop"))


def app_stop_all(_: Words, server: Server) -> int:
    """Stop all applications that have not ended."""
    ended = [_stop(server, str(app.get("id"))) for app in _applications(server, ACTIVE)]
    if not ended:
        print("No application runs")
    return max(ended, default=0)


def _shown_state(state: Any) -> str:
    if state in {"LAUNCHING", "RUNNING"}:
        return "RUNNING"
    if state in ACTIVE and state != "UNKNOWN":
        return "PENDING"
    return state if state in SHOWN_STATES else "UNKNOWN"


def app_analyze(words: Words, server: Server) -> int:
    """Print who used how much in the last hours: by user, by tag, by type."""
    try:
        hours = float(words.value)
    except ValueError:
        raise Failed(f"--app-analyze: {words.value!r} is no number of hours") from None
    since = time.time() - hours * 3600
    apps = [app for app in _applications(server, ACTIVE + FINAL) if (_seconds(app.get("end_time")) or since) >= since]
    grouped = {by: _used(apps, by, since) for by in ("submit_user", "tag", "type")}
    if words.output == "json":
        _show(grouped)
        return 0
    for by, rows in grouped.items():
        print(f"By {by}, in the last {hours:g} hours:")
        columns = list(rows[0]) if rows else [by]
        table(rows, {name: lambda row, name=name: row.get(name) for name in columns}, words.output)  # type: ignore[misc]
        print()
    return 0


def _used(apps: Sequence[Mapping[str, Any]], by: str, since: float) -> list[dict[str, Any]]:
    """Return for each user (tag, type) how many applications are in which state, what they use, and what they used.

    Hours of a resource are what was asked for, times how long the application ran after ``since``.
    """
    rows: dict[str, dict[str, Any]] = {}
    for app in apps:
        name = str(app.get(by) or "-")
        empty = {by: name, **dict.fromkeys(SHOWN_STATES, 0)}
        empty.update({f"{kind}{what}": 0.0 for kind in ("used_", "hours_") for what in ("gpu", "cpu", "mem")})
        row = rows.setdefault(name, empty)
        state = _shown_state(app.get("state"))
        row[state] += 1
        begun, ended = _seconds(app.get("start_time")), _seconds(app.get("end_time")) or time.time()
        ran = max(0.0, ended - max(begun, since)) / 3600 if begun is not None else 0.0
        driver, workers = _asked_for(app.get("task0_resreq")), _asked_for(app.get("task12n_resreq"))
        count = app.get("task12n_num") or 0
        for what, key in (("gpu", "ngpus"), ("cpu", "ncpus"), ("mem", "mem")):
            if state == "RUNNING":
                row[f"used_{what}"] += float(app.get(f"used_{what}") or 0)
            row[f"hours_{what}"] += ran * (driver.get(key, 0.0) + count * workers.get(key, 0.0))
    return [rows[name] for name in sorted(rows)]


def _asked_for(text: Any) -> dict[str, float]:
    """Return the numbers of ``ngpus=1,mem=4096,ncpus=1``."""
    found = {}
    for pair in str(text or "").split(","):
        name, _, value = pair.partition("=")
        try:
            found[name.strip()] = float(value)
        except ValueError:
            continue
    return found


# ── verbs: resource plans and Kubernetes' objects ─────────────────────────────────────────────────────────────────────
def plan_tree(words: Words, server: Server) -> int:
    """Print the tree of resource plans, with the applications of each."""
    tree = server.object("GET", f"{RESPLANS}/resplantree")
    if words.output == "json":
        _show(tree)
        return 0
    _show_plan(tree, "", _applications(server, ACTIVE), 0, sys.stdout.isatty() and not os.environ.get("NO_COLOR"))
    return 0


def _show_plan(plan: Any, above: str, apps: Sequence[Mapping[str, Any]], depth: int, coloured: bool) -> None:
    name = str(plan.get("id", ""))
    path = f"{above}/{name.strip('/')}" if depth else ""  # a consumer's path begins below the root
    indent = "  " * depth
    print(f"{indent}\033[1;36m{name}\033[0m" if coloured else f"{indent}{name}")
    for app in apps:
        consumer = str(app.get("consumer", ""))
        if consumer and consumer in {path, name}:
            state = _shown_state(app.get("state"))
            shown = f"\033[{'32' if state == 'RUNNING' else '33'}m{state}\033[0m" if coloured else state
            print(f"{indent}  {app.get('id')}  {app.get('submit_user', '')}  {shown}  {app.get('used_gpu', 0)} GPU")
    for child in plan.get("childTreeDto") or []:
        _show_plan(child, path, apps, depth + 1, coloured)


def plan_get(words: Words, server: Server) -> int:
    """Print a resource plan."""
    _show(server.object("GET", f"{RESPLANS}/resplan/{quote(words.value, safe='')}"))
    return 0


def plan_delete(words: Words, server: Server) -> int:
    """Delete a resource plan."""
    answer = server.ask("DELETE", f"{RESPLANS}/resplan/{quote(words.value, safe='')}")
    return _said("Delete resource plan", words.value, answer)


def k8s_object(words: Words, server: Server) -> int:
    """Print one object of Kubernetes."""
    words.value  # noqa: B018  raises if no type is named
    if len(words.values) != 2:
        raise Failed("--k8s-obj-get takes a type and a name: --k8s-obj-get pod NAME")
    kind, name = words.values
    _show(server.object("GET", f"{K8S_OBJECTS}?{urlencode({'type': kind, 'name': name})}"))
    return 0


def k8s_objects(words: Words, server: Server) -> int:
    """Print all objects of a type."""
    _show(server.object("GET", f"{K8S_OBJECTS}?{urlencode({'type': words.value})}"))
    return 0


PARALLEL_JOB_COLUMNS: Columns = {
    "name": lambda job: (job.get("metadata") or {}).get("name"),
    "state": lambda job: (job.get("status") or {}).get("jobStatus"),
    "reason": lambda job: (job.get("status") or {}).get("jobPendingReason"),
    "age": lambda job: _age((job.get("status") or {}).get("creationTimestamp")),
}


def parallel_jobs(words: Words, server: Server) -> int:
    """List the parallel jobs."""
    found = server.object("GET", f"{K8S_OBJECTS}?{urlencode({'type': 'paralleljob'})}")
    items = found.get("items") if isinstance(found, dict) else found
    table([each for each in items or [] if isinstance(each, dict)], PARALLEL_JOB_COLUMNS, words.output)
    return 0


# ── verbs: hyperparameter searches ────────────────────────────────────────────────────────────────────────────────────
def hpo_start(words: Words, server: Server) -> int:
    """Start a search: its description is a JSON file, its code a folder."""
    try:
        data = Path(words.value).read_text()
        json.loads(data)
    except OSError as error:
        raise Failed(f"--hpo-start: {words.value} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise Failed(f"--hpo-start: {words.value} is no JSON: {error}") from None
    uploads = _uploads(words)
    if not uploads:
        raise Failed("--hpo-start needs the code of a trial: --model-dir FOLDER or --model-main FILE")
    print(f"Content size: {_size(sum(upload.size for upload in uploads))}", flush=True)
    print(_pretty(server.text("POST", HYPERSEARCH, multipart(uploads, {"data": data}))))
    return 0


def _search(words: Words) -> str:
    return f"{HYPERSEARCH}/{quote(words.value, safe='')}"


def hpo_stop(words: Words, server: Server) -> int:
    """Stop a search."""
    return _said("Stop hpo", words.value, server.ask("PUT", _search(words)))


def hpo_restart(words: Words, server: Server) -> int:
    """Start a search again."""
    return _said("Restart hpo", words.value, server.ask("PUT", f"{_search(words)}/restart"))


def hpo_delete(words: Words, server: Server) -> int:
    """Delete a search."""
    return _said("Delete hpo", words.value, server.ask("DELETE", _search(words)))


def hpo_delete_all(_: Words, server: Server) -> int:
    """Delete all searches."""
    server.text("DELETE", HYPERSEARCH)
    print("Hpos are deleted")
    return 0


def hpo_algorithm_delete(words: Words, server: Server) -> int:
    """Delete an algorithm."""
    answer = server.ask("DELETE", f"{ALGORITHMS}/{quote(words.value, safe='')}")
    return _said("Delete hpo algorithm", words.value, answer)


def shown(path: str, value: bool = False) -> Verb:
    """Return the verb that prints the JSON at ``path``; with ``value``, of the one that the user names."""

    def verb(words: Words, server: Server) -> int:
        _show(server.object("GET", f"{path}/{quote(words.value, safe='')}" if value else path))
        return 0

    return verb


# ── all verbs ─────────────────────────────────────────────────────────────────────────────────────────────────────────
Verb = Callable[[Words, Server], int]


@dataclass(frozen=True)
class Entry:
    """A verb: what it does, and what help says about it."""

    run: Verb
    takes: str
    says: str
    group: str
    asks_conf: bool = True


_START, _JOBS, _LOGS = "Log on", "Jobs", "Logs and results of jobs"
_APPS, _PLANS, _SEARCHES = "Applications", "Resource plans and cluster", "Hyperparameter searches"

VERBS: dict[str, Entry] = {
    "--help": Entry(show_help, "", "this text", _START, asks_conf=False),
    "--logon": Entry(logon, "", "log on; the token is kept in ~/.dlicmd", _START, asks_conf=False),
    "--logoff": Entry(logoff, "", "end the token", _START, asks_conf=False),
    "--dl-frameworks": Entry(frameworks, "", "the frameworks that --exec-start takes", _JOBS),
    "--exec-start": Entry(exec_start, "FRAMEWORK", "submit a job", _JOBS),
    "--exec-get": Entry(exec_get, "ID", "one job", _JOBS),
    "--exec-get-all": Entry(exec_get_all, "", "all jobs; --query-args 'state=RUNNING&limit=10'", _JOBS),
    "--exec-stop": Entry(exec_stop, "ID", "stop a job", _JOBS),
    "--exec-delete": Entry(exec_delete, "ID", "delete a job", _JOBS),
    "--exec-delete-all": Entry(exec_delete_all, "", "delete all your jobs", _JOBS),
    "--exec-trainlogs": Entry(train_logs("outerrlog"), "ID", "metrics, output and errors of the training", _LOGS),
    "--exec-trainoutlogs": Entry(train_logs("outlog"), "ID", "what the script printed", _LOGS),
    "--exec-trainerrlogs": Entry(train_logs("errlog"), "ID", "the script's errors", _LOGS),
    "--exec-outlogs": Entry(exec_logs("stdout"), "ID", "output of driver and executors; --lastlines N", _LOGS),
    "--exec-errlogs": Entry(exec_logs("stderr"), "ID", "errors of driver and executors", _LOGS),
    "--exec-launcherlogs": Entry(exec_logs("launcherlog"), "ID", "launcher's log of driver and executors", _LOGS),
    "--exec-trainresult": Entry(train_result, "ID", "save the result as a zip in this folder", _LOGS),
    "--exec-deploy": Entry(
        exec_deploy, "ID", "deploy: --name --runtime --kernel --weight --tag --attributes K=V --environments K=V", _LOGS
    ),
    "--app-get-all": Entry(app_list(ACTIVE), "", "applications that have not ended", _APPS),
    "--app-history-get-all": Entry(app_list(FINAL), "", "applications that have ended", _APPS),
    "--app-get": Entry(app_get, "ID", "one application", _APPS),
    "--app-wait": Entry(app_wait, "ID", "wait until it has ended; status 0: it is FINISHED; --interval SECONDS", _APPS),
    "--app-stop": Entry(app_stop, "ID...", "stop applications", _APPS),
    "--app-stop-all": Entry(app_stop_all, "", "stop all applications", _APPS),
    "--app-analyze": Entry(app_analyze, "HOURS", "who used how much, by user, tag and type", _APPS),
    "--app-outlogs": Entry(app_logs("stdout"), "ID", "output of driver and executors", _APPS),
    "--app-errlogs": Entry(app_logs("stderr"), "ID", "errors of driver and executors", _APPS),
    "--app-launcherlogs": Entry(app_logs("launcherlog"), "ID", "launcher's log of driver and executors", _APPS),
    "--rp-get-all": Entry(plan_tree, "", "the tree of resource plans", _PLANS),
    "--rp-get": Entry(plan_get, "NAME", "one resource plan", _PLANS),
    "--rp-delete": Entry(plan_delete, "NAME", "delete a resource plan", _PLANS),
    "--pj-get-all": Entry(parallel_jobs, "", "parallel jobs", _PLANS),
    "--k8s-obj-get": Entry(k8s_object, "TYPE NAME", "one object of Kubernetes", _PLANS),
    "--k8s-obj-get-all": Entry(k8s_objects, "TYPE", "all objects of a type", _PLANS),
    "--status": Entry(shown(f"{DL}/status"), "", "state of the server", _PLANS),
    "--hpo-start": Entry(hpo_start, "FILE", "start a search; --model-dir FOLDER", _SEARCHES),
    "--hpo-get": Entry(shown(HYPERSEARCH, value=True), "NAME", "one search", _SEARCHES),
    "--hpo-get-all": Entry(shown(HYPERSEARCH), "", "all searches", _SEARCHES),
    "--hpo-stop": Entry(hpo_stop, "NAME", "stop a search", _SEARCHES),
    "--hpo-restart": Entry(hpo_restart, "NAME", "start a search again", _SEARCHES),
    "--hpo-delete": Entry(hpo_delete, "NAME", "delete a search", _SEARCHES),
    "--hpo-delete-all": Entry(hpo_delete_all, "", "delete all searches", _SEARCHES),
    "--hpo-algorithm-get": Entry(shown(ALGORITHMS, value=True), "NAME", "one algorithm", _SEARCHES),
    "--hpo-algorithm-get-all": Entry(shown(ALGORITHMS), "", "all algorithms", _SEARCHES),
    "--hpo-algorithm-delete": Entry(hpo_algorithm_delete, "NAME", "delete an algorithm", _SEARCHES),
}

_OPTIONS = """Which server, and who asks:
  --rest-host HOST[:PORT]   the server (or --master-host, or EDT_API); https is tried first
  --rest-port PORT          its port (or --dli-rest-port); -1, the default: the one of --rest-host, or 443
  --cacert FILE             check the server's certificate against this one; without it none is checked
  --jwt-token TOKEN         this token, not the one of ~/.dlicmd
  --username NAME           a name and a password; who leaves out --password is asked, or gives it on
  --password PASSWORD       standard input
  -o json                   the answer as JSON;  -o custom-columns=id,state  these columns of a table

Code of --exec-start:
  --model-dir FOLDER        the folder is packed and sent
  --model-main FILE         the script in it, or a single script that is sent
  --conda-env-yaml FILE, --conda-package FILE   are sent, too
  --user-cmd -- CMD ...     run this command in the folder instead of a script; it comes last
  --data-source JSON        where the data are
  All other options (--numWorker, --workerDeviceNum, --msd-env, ...) go to the server; those that the server does not
  know, and all behind a bare --, go to your script."""


def _help() -> str:
    lines = ["usage: dlicmd COMMAND [VALUE] --rest-host HOST [--rest-port PORT] [OPTIONS]"]
    group = ""
    for name, entry in VERBS.items():
        if entry.group != group:
            group = entry.group
            lines += ["", f"{group}:"]
        lines.append(f"  {f'{name} {entry.takes}'.rstrip():<30} {entry.says}")
    return "\n".join([*lines, "", _OPTIONS])


def run(argv: Sequence[str]) -> int:
    """Run one command line.

    Returns:
        The exit status.
    """
    try:
        if not argv:
            raise Failed("a command is missing: `--help` lists them")
        words = parse(argv)
        if words.verb == "--help":
            return show_help(words)
        entry = VERBS[words.verb]
        if entry.takes:
            words.value  # noqa: B018  raises before anything is sent
        server = _server(words)
        if entry.asks_conf:
            _conf(server)
        return entry.run(words, server)
    except Answered as answer:
        print(answer)
        return 1
    except Failed as failure:
        sys.stdout.flush()
        print(f"dlicmd: {failure}", file=sys.stderr)
        return 1


def main() -> None:
    """Run the command line of this process, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal need not know every letter
    try:
        status = run(sys.argv[1:])
        sys.stdout.flush()
    except KeyboardInterrupt:
        status = 130
    except BrokenPipeError:  # the reader of our output is gone, so nothing more can be written
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 141
    sys.exit(status)


if __name__ == "__main__":
    main()
