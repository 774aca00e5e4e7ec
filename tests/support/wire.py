"""A unix socket in front of another one, that a test can cut and mend: a daemon that goes away and comes back."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from pathlib import Path


class Wire:
    """``with Wire(path, target) as wire``: what connects to ``path`` reaches ``target``, unless the wire is cut."""

    def __init__(self, path: Path, target: str) -> None:
        self.path, self._target = path, target
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None

    def __enter__(self) -> Wire:
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def mend(self) -> None:
        """From now on whoever calls gets through."""
        self._listener = listener = socket.socket(socket.AF_UNIX)
        self.path.unlink(missing_ok=True)
        listener.bind(str(self.path))
        listener.listen(64)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Everybody is hung up on, and nobody gets through."""
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
            self.path.unlink(missing_ok=True)
        for each in list(self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            far = socket.socket(socket.AF_UNIX)
            far.connect(self._target)
            self._open |= {near, far}
            if self._listener is not listener:  # it was cut after this one had called
                near.close()
                far.close()
                return
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()

    def _carry(self, near: socket.socket, far: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, contextlib.suppress(OSError):
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while selector.get_map():
                for key, _ in selector.select():
                    data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                    if data:
                        key.data.sendall(data)
                    else:  # the other direction may have more to say
                        selector.unregister(key.fileobj)
                        key.data.shutdown(socket.SHUT_WR)
        for each in (near, far):
            self._open.discard(each)
            each.close()
