"""A file that Keras downloads in one process is never seen in part by another."""

from __future__ import annotations

import importlib
import os
import tarfile
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
        unpack = "extract_archive" if name.startswith("keras.") else "_extract_archive"
        for function in ("urlretrieve", unpack):
            monkeypatch.setattr(module, function, getattr(module, function))  # put back after the test
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


def test_who_reads_an_unpacked_file_finds_it_whole_while_another_process_unpacks_it_again(
    keras: Any, tmp_path: Path
) -> None:
    archive, source = tmp_path / "images.tar", tmp_path / "images"
    (tmp_path / "cache").mkdir()
    (source / "cats").mkdir(parents=True)
    (source / "cats" / "1.bin").write_bytes(DATA)
    with tarfile.open(archive, "w") as tar:
        tar.add(source, "images")

    def unpacked() -> Path:
        keras.utils.get_file("images.tar", archive.as_uri(), cache_dir=str(tmp_path / "cache"), extract=True)
        [found] = (tmp_path / "cache").rglob("1.bin")
        return found

    with unpacked().open("rb") as reader:
        again = unpacked()
        assert again.stat().st_ino != os.fstat(reader.fileno()).st_ino, "the file was not replaced, but written into"
        assert reader.read() == again.read_bytes() == DATA
    assert not list((tmp_path / "cache").rglob(".*"))


def test_a_file_that_is_no_archive_is_said_to_be_none(keras: Any, tmp_path: Path) -> None:
    (tmp_path / "data.tar").write_bytes(DATA)
    if keras.__name__ == "keras":
        with pytest.warns(UserWarning, match="Could not extract"):
            keras.utils.get_file("data.tar", (tmp_path / "data.tar").as_uri(), cache_dir=str(tmp_path), extract=True)
    else:
        keras.utils.get_file("data.tar", (tmp_path / "data.tar").as_uri(), cache_dir=str(tmp_path), extract=True)
    assert not list(tmp_path.rglob(".*"))
