"""A container registry with one image, as small as the distribution protocol allows: what a daemon can really pull.

Serves HTTP on a free port of the loopback, which Docker takes for secure enough.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
_LAYER = "application/vnd.docker.image.rootfs.diff.tar.gzip"


class Registry:
    """``with Registry(size) as registry: pull(registry.image)``. ``size``: bytes of the only layer, about.

    ``stalls``: it sends the first half of each layer and then nothing.
    """

    def __init__(self, size: int, *, stalls: bool = False) -> None:
        self.over = threading.Event()
        self.stalls = stalls
        files = io.BytesIO()
        with tarfile.open(fileobj=files, mode="w") as archive:
            member = tarfile.TarInfo("noise")
            member.size = size
            archive.addfile(member, io.BytesIO(os.urandom(size)))
        raw = files.getvalue()
        layer = gzip.compress(raw, 1)
        rootfs = {"type": "layers", "diff_ids": [_digest(raw)]}
        config = json.dumps({"architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs}).encode()
        manifest = {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": {"mediaType": _CONFIG, "size": len(config), "digest": _digest(config)},
            "layers": [{"mediaType": _LAYER, "size": len(layer), "digest": _digest(layer)}],
        }
        self.blobs = {_digest(config): config, _digest(layer): layer}
        self.manifest = json.dumps(manifest).encode()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.image = f"127.0.0.1:{self._server.server_port}/noise/own:1"

    def __enter__(self) -> Registry:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, _, name = self.path.rpartition("/")
            if kind.endswith("/manifests"):
                self._send(registry.manifest, _MANIFEST)
            elif kind.endswith("/blobs") and name in registry.blobs:
                self._send(registry.blobs[name], "application/octet-stream")
            else:
                self._send(b"{}", "application/json", 200 if self.path == "/v2/" else 404)

        def do_HEAD(self) -> None:
            self.do_GET()

        def _send(self, data: bytes, kind: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Docker-Content-Digest", _digest(data))
            self.end_headers()
            if self.command != "GET":
                return
            if registry.stalls and len(data) > 1 << 16:
                self.wfile.write(data[: len(data) // 2])
                registry.over.wait(60)
            else:
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
