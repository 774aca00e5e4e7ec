"""How fast a queue gets its quota back: from the submission to the first step on the reclaimed slot.

A platform of four slots (`edt up`) runs. One user's job has borrowed all slots. Again and again a job of one worker
is submitted to a queue with a quota of one slot: the borrower gives a slot back, the job starts on it, trains, and is
stopped. Measured by the platform's own times:

  decided       from the submission to the decision
  first step    from the submission to the first step of the job
  pause         for how long the borrower stood still, beside one of its own steps

Its peers end a job and start it elsewhere, which takes them minutes; they are not run here.
"""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import _report
import httpx

EXECS = "/platform/rest/deeplearning/v1/execs"
PASSWORD = "a-benchmark-of-its-own"  # noqa: S105
_SECONDS = 120.0
_TRAINING = """
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    from fabric_model import FabricModel

    torch.manual_seed(1)
    x = torch.randn(20000, 256)
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 1))
    data = TensorDataset(x, x.sum(1, keepdim=True))
    FabricModel(net, lambda: (data, None), nn.functional.mse_loss, torch.optim.SGD(net.parameters(), 1e-3)).train(
        1000, 64, 4, checkpoint_freq=0)
"""


@contextmanager
def platform(folder: Path) -> Iterator[httpx.Client]:
    """A platform of four CPU slots on this machine, and a client of its administrator."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    own = {"EDT_ADMIN_PASSWORD": PASSWORD, "EDT_CPU_SLOTS": "4", "EDT_DEVICES": "cpu", "EDT_HOME": str(folder / "home")}
    environ = {**{name: value for name, value in os.environ.items() if not name.startswith("EDT_")}, **own}
    command = [sys.executable, "-m", "edt_cli", "up", "--port", str(port)]
    with (folder / "up.log").open("wb") as log:
        up = subprocess.Popen(command, stdout=log, stderr=log, env=environ, start_new_session=True)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", auth=("admin", PASSWORD), timeout=60) as client:
            until(lambda: _serves(client), f"the platform serves ({folder / 'up.log'})")
            yield client
    finally:
        up.send_signal(signal.SIGINT)
        try:
            up.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(up.pid, signal.SIGKILL)


def _serves(client: httpx.Client) -> bool:
    try:
        nodes = client.get("/api/v1/nodes")
    except httpx.HTTPError:
        return False
    return nodes.is_success and any(node["health"] == "up" for node in nodes.json()["items"])


def until(condition: Callable[[], Any], what: str) -> Any:
    """Wait for a condition, and return what it is."""
    ends = time.monotonic() + _SECONDS
    while not (found := condition()):
        if time.monotonic() > ends:
            raise SystemExit(f"not within {_SECONDS:g} s: {what}")
        time.sleep(0.02)
    return found


def submit(client: httpx.Client, options: str) -> str:
    """Submit the training; the job's id."""
    content = textwrap.dedent(_TRAINING).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        entry = tarfile.TarInfo("main.py")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    args = f"--exec-start edtPyTorch --model-main main.py {options}"
    answer = client.post(EXECS, params={"args": args}, files={"file": ("x.modelDir.tar", buffer.getvalue())})
    answer.raise_for_status()
    return str(answer.json()["id"])


def resizes(client: httpx.Client, job: str) -> list[dict[str, Any]]:
    """A job's resizes, the newest at the end."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = client.get(
            f"/api/v1/jobs/{job}/resizes", params={"limit": 200, **({"cursor": cursor} if cursor else {})}
        )
        page.raise_for_status()
        found += page.json()["items"]
        cursor = page.json().get("next") or ""
        if not cursor:
            return found


def workers(client: httpx.Client, job: str) -> int:
    """The engines with which a job trains."""
    return int(client.get(f"/api/v1/jobs/{job}").json()["workers"])


def measured(client: httpx.Client, borrower: str) -> tuple[float, float, float]:
    """Seconds from a submission to its decision and to its first step, and the borrower's pause in its own steps."""
    until(lambda: workers(client, borrower) == 4, "the borrower trains on all slots")
    time.sleep(1.0)
    before = len(resizes(client, borrower))
    began = time.time()
    job = submit(client, "--numWorker 1 --queue /owner")
    start = until(lambda: next((r for r in resizes(client, job) if r["first_step_at"]), None), "its first step")
    given = until(lambda: [r for r in resizes(client, borrower)[before:] if r["pause_seconds"] is not None], "a pause")
    times = client.get(f"/api/v1/jobs/{borrower}/step-times").json()
    step = float((times or {}).get("step_seconds") or 0.0)
    client.post(f"{EXECS}/{job}/stop")
    until(lambda: client.get(f"/api/v1/jobs/{job}").json()["finished_at"], "it is over")
    pause = float(given[0]["pause_seconds"])
    return start["decided_at"] - began, start["first_step_at"] - began, pause / step if step else pause


def main() -> None:
    given = _report.arguments(__doc__).parse_args()
    rounds = 5 if given.quick else 20
    with tempfile.TemporaryDirectory() as folder, platform(Path(folder)) as client:
        client.put("/api/v1/queues/owner", json={"quota": 1}).raise_for_status()
        borrower = submit(client, "--numWorker 4")
        found = []
        for number in range(rounds):
            found.append(measured(client, borrower))
            print(f"{number + 1} of {rounds}: first step after {found[-1][1]:.2f} s", file=sys.stderr)
    decided, first, pauses = (sorted(column) for column in zip(*found, strict=True))
    p95 = first[min(len(first) - 1, int(0.95 * len(first)))]
    rows = [
        _report.row("reclaim, decided", "OpenEDT", "s", decided),
        _report.row("reclaim, first step", "OpenEDT", "s", first),
        _report.row("reclaim, the borrower's pause", "OpenEDT", "steps", pauses),
    ]
    targets = [
        _report.Target("submission to the first step on the reclaimed slot, p95", 2.0, p95, "s", p95 <= 2.0),
        _report.Target("the borrower's pause, median", 1.0, rows[2].value, "steps", rows[2].value <= 1.0),
    ]
    _report.finish("scheduler_reclaim", rows, targets, given.json)


if __name__ == "__main__":
    main()
