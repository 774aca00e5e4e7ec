"""A small API for one agent, over real HTTP; the test decides what the node should run.

Answers like the platform's API: join and node tokens, versions that grow with every change, long polls, reports
accepted in order without gaps. All requests are kept for the test to read.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from edt_contract.attempt import Assignment

JOIN_TOKEN = "join-me"


class FakeApi:
    """``with FakeApi() as api``: serves on ``api.url`` until the block ends."""

    def __init__(self, broker_url: str | None = None) -> None:
        self.broker_url = broker_url
        self.registrations: list[Mapping[str, Any]] = []
        self.questions: list[Mapping[str, str]] = []
        self.reports: dict[str, list[Mapping[str, Any]]] = {}
        self.usage: list[Mapping[str, Mapping[str, Any]]] = []
        """Each sample, by slot."""
        self.images: list[str] = []
        """Images that nodes should have ready."""
        self.pulled: dict[str, str] = {}
        """By image, what the node has reported of it."""
        self.leaving: list[Mapping[str, Any]] = []
        """What nodes have said of their leaving."""
        self.idle_may_leave = True
        """Whether an idle node that asks may leave."""
        self.join_token = JOIN_TOKEN
        """With what nodes register. A node of a pool has a token of its own."""
        self.down = False
        self._wanted: dict[str, Assignment] = {}
        self._version = 1
        self._token = "node-token-1"
        self._change = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeApi:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._change:
            self.down = True
            self._change.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def want(self, assignment: Assignment) -> None:
        """List this attempt, with this desired."""
        with self._change:
            self._wanted[_key(assignment)] = assignment
            self._version += 1
            self._change.notify_all()

    def drop(self, key: str) -> None:
        """No longer list this attempt (``edt-1/1``)."""
        with self._change:
            self._wanted.pop(key, None)
            self._version += 1
            self._change.notify_all()

    def forget_tokens(self) -> None:
        """As after a restored database: the node has to register again."""
        with self._change:
            self._token = f"node-token-{len(self.registrations) + 1}"

    def kinds(self, key: str) -> list[str]:
        """Kinds of the reports taken of an attempt, progress left out."""
        return [str(each["kind"]) for each in self.reports.get(key, []) if each["kind"] != "progress"]

    def last(self, key: str, kind: str) -> Mapping[str, Any]:
        """Body of the newest report of a kind."""
        body: Mapping[str, Any] = [each for each in self.reports[key] if each["kind"] == kind][-1]["body"]
        return body

    def _register(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.registrations.append(body)
        queue = f"node.{body['name']}"
        return {"node": body["name"], "token": self._token, "queue": queue, "broker_url": self.broker_url}

    def _assignments(self, query: Mapping[str, str]) -> dict[str, Any]:
        self.questions.append(query)
        after, wait = query.get("after"), float(query.get("wait", 0))
        with self._change:
            self._change.wait_for(lambda: after != str(self._version) or self.down, timeout=wait)
            listed = [assignment.to_json_object() for assignment in self._wanted.values()]
            return {"version": self._version, "assignments": listed, "images": self.images}

    def _take(self, reports: list[Mapping[str, Any]]) -> dict[str, Any]:
        acked: dict[str, int] = {}
        with self._change:  # what an agent that has died sent last may still be read while the next one speaks
            for report in reports:
                key = f"{report['job']}/{report['fence']}"
                taken = self.reports.setdefault(key, [])
                first = report["body"]["first"] if report["kind"] == "reports-left-out" else report["seq"]
                if first <= len(taken) + 1 <= report["seq"]:
                    taken += [report] * (report["seq"] - len(taken))  # one may stand for several
                    if report["kind"] == "attempt-ended":
                        self.drop(key)
                acked[key] = len(taken)
        return {"acked": acked}

    def _used(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.usage.append({slot["slot"]: slot for slot in body["slots"]})
        return {}

    def _pulled(self, body: Mapping[str, Any]) -> dict[str, Any]:
        with self._change:
            self.pulled[body["image"]] = body["error"]
            self.images = [image for image in self.images if image != body["image"]]
        return {}

    def _leave(self, body: Mapping[str, Any]) -> dict[str, Any]:
        self.leaving.append(body)
        return {"leave": self.idle_may_leave or not body["if_idle"]}

    def _handler(api) -> type[BaseHTTPRequestHandler]:  # noqa: N805  the handler below has a self of its own
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
                self.answer(api._token, lambda _: api._assignments(query))

            def do_POST(self) -> None:
                if self.path == "/api/v1/nodes":
                    self.answer(api.join_token, api._register)
                elif self.path.endswith("/usage"):
                    self.answer(api._token, api._used)
                elif self.path.endswith("/images"):
                    self.answer(api._token, api._pulled)
                elif self.path.endswith("/leaving"):
                    self.answer(api._token, api._leave)
                else:
                    self.answer(api._token, api._take)

            def answer(self, token: str, make: Any) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if api.down:
                    status, data = 503, {"detail": "down"}
                elif self.headers["Authorization"] != f"Bearer {token}":
                    status, data = 401, {"detail": "no such token"}
                else:
                    status, data = 200, make(json.loads(body or b"{}"))
                text = json.dumps(data).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                with contextlib.suppress(BrokenPipeError):  # the agent was killed meanwhile
                    self.end_headers()
                    self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        return Handler


def _key(assignment: Assignment) -> str:
    return f"{assignment.spec.job}/{assignment.spec.fence}"
