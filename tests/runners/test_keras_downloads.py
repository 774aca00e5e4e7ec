"""A file that Keras downloads in one process is never seen in part by another."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edt_runner.frameworks.tensorflow import downloads

pytestmark = [pytest.mark.tensorflow, pytest.mark.parametrize("keras", ["keras", "tf_keras"], indirect=True)]
DATA = bytes(range(256)) * 1024


@pytest.fixture
def keras(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = pytest.importorskip(request.param)
    for name in ("keras.src.utils.file_utils", "tf_keras.src.utils.data_utils"):
        module = importlib.import_module(name)
        monkeypatch.setattr(module, "urlretrieve", module.urlretrieve)  # put back after the test
    downloads.appear_whole()
    downloads.appear_whole()
    return found


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[], object]], str]]:
    """``serve(halfway)``: the address of a file, and ``halfway`` is called when half of it is sent."""
    servers: list[ThreadingHTTPServer] = []

    def start(halfway: Callable[[], object]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path != "/data.bin":
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(DATA)))
                self.end_headers()
                self.wfile.write(DATA[: len(DATA) // 2])
                self.wfile.flush()
                halfway()
                self.wfile.write(DATA[len(DATA) // 2 :])

            def log_message(self, *what: object) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}/data.bin"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_file_has_its_name_once_it_is_complete(keras: Any, serve: Any, tmp_path: Path) -> None:
    halfway: list[list[str]] = []
    address = serve(lambda: halfway.append([path.suffix for path in tmp_path.rglob("*.*")]))
    got = keras.utils.get_file("data.bin", address, cache_dir=str(tmp_path))
    assert Path(got).read_bytes() == DATA
    assert [path.name for path in tmp_path.rglob("*.*")] == ["data.bin"]
    assert ".bin" not in halfway[0]


def test_a_download_that_fails_leaves_nothing(keras: Any, serve: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="URL fetch failure"):
        keras.utils.get_file("data.bin", serve(list) + ".not", cache_dir=str(tmp_path))
    assert list(tmp_path.rglob("*.*")) == []
