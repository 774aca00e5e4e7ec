"""Undoes a test's Kubernetes: processes, pods' containers, mounts, and what Docker's settings were.

``python -m support.kubernetes_undo FOLDER`` does so when its standard input ends, which is when the process that holds
the other end has ended, however that was.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from support.tagged import bearers, kill_bearers

TAG = "edt-test-kubernetes"
"""Value of EDT_TAG in every process of a test's Kubernetes, except in its pods."""
_DAEMON_FILE = Path("/etc/docker/daemon.json")
_DAEMON_PID = Path("/var/run/docker.pid")


def second_docker(folder: Path) -> str:
    """Where the second node's Docker listens."""
    return f"unix://{folder}/node-2/socket"


def undo(folder: Path) -> None:
    """End what runs, and put back what was changed. What is undone already is left as it is."""
    # The kubelets first: they would start again what is removed.
    for pid, command in bearers(TAG).items():
        if "dockerd" not in command and "containerd" not in command:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if (folder / "node-2" / "pid").exists():
        _remove_containers([f"--host={second_docker(folder)}"])
    kill_bearers(TAG)
    _remove_containers([])
    _give_docker_its_settings_back(folder / "daemon.json")
    _unmount(folder)
    for name in ("node-2", "etcd", "kubelet-node-1", "kubelet-node-2"):
        shutil.rmtree(folder / name, ignore_errors=True)


def _remove_containers(where: list[str]) -> None:
    """Those that a kubelet has started: their names begin with k8s_."""
    with suppress(subprocess.TimeoutExpired):
        command = ["docker", *where, "ps", "--all", "--quiet", "--no-trunc", "--filter=name=^/k8s_"]
        found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout.split()
        if found:
            subprocess.run(["docker", *where, "rm", "-f", *found], capture_output=True, timeout=60, check=False)


def _give_docker_its_settings_back(kept: Path) -> None:
    """A daemon that reads its settings anew keeps what they no longer name: so runc and its like are named once."""
    if not kept.exists():
        return
    before = kept.read_text()
    _DAEMON_FILE.write_text(json.dumps({"runtimes": {}, "default-runtime": "runc", **json.loads(before or "{}")}))
    with suppress(ProcessLookupError, FileNotFoundError):
        os.kill(int(_DAEMON_PID.read_text()), signal.SIGHUP)
    for _ in range(50):
        command = ["docker", "info", "--format", "{{.DefaultRuntime}}"]
        if subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "runc":
            break
        time.sleep(0.1)
    if before:
        _DAEMON_FILE.write_text(before)
    else:
        _DAEMON_FILE.unlink()
    kept.unlink()


def _unmount(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    below = [mount for mount in mounts if mount.startswith(f"{folder}/")]
    for mount in sorted(below, reverse=True):
        subprocess.run(["umount", "--lazy", mount], capture_output=True, check=False)


if __name__ == "__main__":
    sys.stdin.read()
    undo(Path(sys.argv[1]))
