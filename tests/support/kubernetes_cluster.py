"""A real Kubernetes on this machine, for tests: a control plane, a node that runs pods in this machine's Docker, and,
if a test wants it, a second node with a Docker daemon of its own.

with Kubernetes(folder) as kubernetes:
    kubernetes.kubectl("get", "nodes")

``make system-deps-clusters`` builds what it needs. There is one at a time on a machine, and a second one waits: two
kubelets on one Docker would remove each other's pods. A process of its own undoes everything when the test's process
has ended, however it ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from edt_contract.processes import TAG_VARIABLE
from support.kubernetes_undo import TAG, second_docker, undo
from support.ports import free_port
from support.waiting import until

PAUSE = "openedt-test/pause:3.2"
DAEMON_FILE = Path("/etc/docker/daemon.json")
DAEMON_PID = Path("/var/run/docker.pid")
SERVICE_NETWORK = "198.18.20.0/24"
"""Addresses of Services: of a range that no network of this machine uses. ``support.service_proxy`` makes them
reachable."""
_LOCK = Path("/run/lock/edt-test-kubernetes")
_PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "pause")
_SECOND_ADDRESSES = "172.17.128.0/24"
"""Docker gives addresses of its bridge from the lowest on; the second daemon gives these, on the same bridge."""


def programs() -> Path:
    """The folder of what ``make system-deps-clusters`` has built."""
    return Path(os.environ.get("EDT_KUBERNETES") or "~/.cache/edt-kubernetes").expanduser()


def has_kubernetes() -> bool:
    """Whether this machine can run one."""
    from support.places import has_docker

    built = all(os.access(programs() / name, os.X_OK) for name in _PROGRAMS)
    there = all(shutil.which(name) for name in ("etcd", "kubectl", "openssl", "ip", "dockerd"))
    return built and there and os.geteuid() == 0 and DAEMON_PID.exists() and has_docker()


class Kubernetes:
    """One cluster. Its nodes are ``node-1`` and, after ``add_node``, ``node-2``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.address = ""
        """The address of this machine that pods reach."""
        self.port, self._etcd, self._peer = free_port(), free_port(), free_port()
        self._parts: dict[str, subprocess.Popen[bytes]] = {}
        self._lock: IO[str] | None = None
        self._guardian: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Kubernetes:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def server(self) -> str:
        """URL of the API server, for this machine and for pods."""
        return f"https://{self.address}:{self.port}"

    # ── start and end ─────────────────────────────────────────────────────────────────────────────────────────────
    def start(self) -> None:
        """Start the control plane and node-1, and wait until it is ready."""
        self._take_lock()
        self.address = _bridge_address()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._guardian = subprocess.Popen(
            [sys.executable, "-m", "support.kubernetes_undo", str(self.folder)],
            stdin=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,
        )
        self._configure_docker()
        _load_pause()
        self._write_keys()
        etcd, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        self._start(
            *("etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync"),
            *(f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}", f"--listen-peer-urls={peer}"),
            *(f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=default={peer}"),
        )
        self.start_api()
        self._start(
            *(str(programs() / "kube-controller-manager"), f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"),
            *(f"--service-account-private-key-file={self.folder}/key", f"--root-ca-file={self._certificate}"),
            # A node whose kubelet is gone is noticed sooner than after the usual 40 s.
            *("--node-monitor-period=1s", "--node-monitor-grace-period=8s", "--node-startup-grace-period=20s"),
        )
        self._start(str(programs() / "kube-scheduler"), f"--kubeconfig={self.kubeconfig}", "--leader-elect=false")
        self.start_kubelet("node-1")
        self.until_ready("node-1")

    def close(self) -> None:
        """End all of it. The machine's Docker is as it was."""
        if self._guardian is not None and self._guardian.stdin is not None:
            self._guardian.stdin.close()
            self._guardian.wait(120)
        for part in self._parts.values():
            part.wait(30)
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _take_lock(self, seconds: float = 600.0) -> None:
        """Wait for another test's cluster to end, and sweep up what one has left that was killed."""
        self._lock = _LOCK.open("a+")
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise AssertionError(f"another test's Kubernetes has held {_LOCK} for {seconds:.0f} s") from None
                time.sleep(0.5)
        self._lock.seek(0)
        if left := self._lock.read().strip():
            undo(Path(left))
        self._lock.seek(0)
        self._lock.truncate()
        self._lock.write(f"{self.folder}\n")
        self._lock.flush()

    def _start(self, *words: str, name: str = "") -> None:
        name = name or Path(words[0]).name
        with (self.folder / f"{name}.log").open("ab") as log:
            self._parts[name] = subprocess.Popen(
                words,
                cwd=self.folder,
                env={**os.environ, TAG_VARIABLE: TAG},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _stop(self, name: str) -> None:
        part = self._parts.pop(name)
        part.kill()
        part.wait(30)

    # ── the control plane ─────────────────────────────────────────────────────────────────────────────────────────
    @property
    def _certificate(self) -> Path:
        return self.folder / "certificates" / "apiserver.crt"

    def start_api(self) -> None:
        """Start the API server, and wait until it serves."""
        self._start(
            *(str(programs() / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{self._etcd}"),
            *("--bind-address=0.0.0.0", f"--advertise-address={self.address}", f"--secure-port={self.port}"),
            *(f"--cert-dir={self._certificate.parent}", f"--token-auth-file={self.folder}/tokens.csv"),
            *("--authorization-mode=RBAC", "--allow-privileged", f"--service-cluster-ip-range={SERVICE_NETWORK}"),
            *(
                "--service-account-issuer=https://kubernetes.default.svc",
                "--kubelet-preferred-address-types=InternalIP",
            ),
            *(f"--service-account-signing-key-file={self.folder}/key", f"--service-account-key-file={self.folder}/key"),
            # A pod stays bound to a node that is gone for a shorter time than the usual 5 minutes.
            *("--default-not-ready-toleration-seconds=10", "--default-unreachable-toleration-seconds=10"),
        )
        until(self.serves, 60, f"the API server serves: {self.log('kube-apiserver')}")

    def stop_api(self) -> None:
        """Kill the API server. Everything else goes on."""
        self._stop("kube-apiserver")

    def signal_api(self, number: int) -> None:
        """Send the API server a signal. A stopped one takes connections and does not answer."""
        self._parts["kube-apiserver"].send_signal(number)

    def serves(self) -> bool:
        """Whether the API server is ready."""
        if self._parts["kube-apiserver"].poll() is not None:
            raise AssertionError(f"the API server has ended:\n{self.log('kube-apiserver')}")
        return self._certificate.exists() and self._kubectl("get", "--raw=/readyz").returncode == 0

    def kubectl(self, *words: str, stdin: str = "", namespace: str = "") -> str:
        """What `kubectl …` printed. Raises AssertionError, with what it said, if it failed."""
        done = self._kubectl(*([f"--namespace={namespace}"] if namespace else []), *words, stdin=stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def apply(self, *objects: dict[str, Any], namespace: str = "") -> None:
        """Create or change objects."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(items), namespace=namespace)

    def command(self, *words: str) -> list[str]:
        """A command of kubectl's, to be run beside the test."""
        return ["kubectl", f"--kubeconfig={self.kubeconfig}", *words]

    def _kubectl(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def new_namespace(self, prefix: str = "test") -> str:
        """A namespace whose service account is there, so that pods may be created at once."""
        name = f"{prefix}-{secrets.token_hex(3)}"
        self.kubectl("create", "namespace", name)
        account = ("get", "serviceaccount", "default", "--output=jsonpath={.secrets[0].name}")
        until(lambda: self._kubectl(f"--namespace={name}", *account).stdout, 30, f"{name} has its service account")
        return name

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def add_node(self, *images: str) -> str:
        """A second node, with a Docker daemon of its own that has ``images``; its name."""
        name = "node-2"
        if name in self._parts:
            return name
        root = self.folder / name
        root.mkdir(exist_ok=True)
        _write_runtime(root / "runc")
        runtime = {"runtimes": {"lenient": {"path": f"{root}/runc"}}, "default-runtime": "lenient"}
        (root / "daemon.json").write_text(json.dumps(runtime))
        self._start(
            *("dockerd", f"--config-file={root}/daemon.json", f"--host={second_docker(self.folder)}"),
            *(f"--data-root={root}/data", f"--exec-root={root}/exec", f"--pidfile={root}/pid"),
            # The other daemon's bridge: pods of both nodes reach each other. With none, dockerd removes docker0.
            *("--bridge=docker0", f"--fixed-cidr={_SECOND_ADDRESSES}", "--iptables=false", "--ip-masq=false"),
            name="dockerd",
        )
        until(lambda: self._docker_2("info").returncode == 0, 60, "the second Docker answers")
        for image in (PAUSE, *images):
            with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
                done = self._docker_2("load", stdin=saved.stdout)
            assert done.returncode == 0, done.stderr
        self.start_kubelet(name)
        self.until_ready(name)
        return name

    def _docker_2(self, *words: str, stdin: IO[bytes] | None = None) -> subprocess.CompletedProcess[str]:
        command = ["docker", f"--host={second_docker(self.folder)}", *words]
        return subprocess.run(command, stdin=stdin, capture_output=True, text=True, timeout=300, check=False)

    def start_kubelet(self, node: str) -> None:
        """Start a node's kubelet."""
        root = self.folder / f"kubelet-{node}"
        root.mkdir(exist_ok=True)
        ports = {"port": free_port(), "healthzPort": free_port(), "readOnlyPort": 0}
        settings = {
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,  # the other kubelet of this machine would end what it finds in its cgroups
            "enforceNodeAllocatable": [],
            "clusterDNS": ["192.0.2.53"],  # there is none; a kubelet without it warns of each pod
            "failSwapOn": False,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,  # the machine's other images are none of its business
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "5s",
            **ports,
        }
        (root / "settings.json").write_text(json.dumps(settings))
        words = [
            *(str(programs() / "kubelet"), f"--kubeconfig={self.kubeconfig}", f"--config={root}/settings.json"),
            *(f"--root-dir={root}/root", f"--cert-dir={root}/certificates", f"--hostname-override={node}"),
            *(f"--node-ip={self.address}", "--container-runtime=docker", f"--pod-infra-container-image={PAUSE}"),
        ]
        if node != "node-1":
            words.append(f"--docker-endpoint={second_docker(self.folder)}")
        self._start(*words, name=node)

    def kill_kubelet(self, node: str) -> None:
        """Kill a node's kubelet. Its containers go on."""
        self._stop(node)

    def until_ready(self, node: str) -> None:
        """Wait until pods can run there."""
        path = '--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}'
        until(lambda: self._kubectl("get", "node", node, path).stdout == "True", 60, f"{node}: {self.log(node)}")

    def log(self, part: str) -> str:
        """The end of what a part has written: ``etcd``, ``kube-apiserver``, ``node-1`` …"""
        with suppress(FileNotFoundError):
            return "\n".join((self.folder / f"{part}.log").read_text(errors="replace").splitlines()[-5:])
        return ""

    # ── files ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def _write_keys(self) -> None:
        subprocess.run(["openssl", "genrsa", "-out", self.folder / "key", "2048"], check=True, capture_output=True)
        token = secrets.token_hex(16)
        (self.folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n")
        settings = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.server, "certificate-authority": str(self._certificate)}}
            ],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        self.kubeconfig.write_text(json.dumps(settings))

    def _configure_docker(self) -> None:
        """Where runc may not lower a process's oom_score_adj, as Kubernetes asks it to, Docker gets a runtime that does
        not try."""
        if _may_lower_oom_score():
            return
        runtime = self.folder / "runc"
        _write_runtime(runtime)
        before = DAEMON_FILE.read_text() if DAEMON_FILE.exists() else ""
        (self.folder / "daemon.json").write_text(before)
        settings = json.loads(before or "{}")
        settings["runtimes"] = {**settings.get("runtimes", {}), "lenient": {"path": str(runtime)}}
        settings["default-runtime"] = "lenient"
        DAEMON_FILE.parent.mkdir(exist_ok=True)
        DAEMON_FILE.write_text(json.dumps(settings))
        os.kill(int(DAEMON_PID.read_text()), 1)
        until(lambda: _default_runtime() == "lenient", 20, "Docker has read its settings")


def _default_runtime() -> str:
    command = ["docker", "info", "--format", "{{.DefaultRuntime}}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout.strip()


def _may_lower_oom_score() -> bool:
    done = subprocess.run(["sh", "-c", "echo -1 >/proc/self/oom_score_adj"], capture_output=True, check=False)
    return done.returncode == 0


def _write_runtime(path: Path) -> None:
    """runc, which is told of no negative oom_score_adj."""
    path.write_text(f"""#!/bin/sh
bundle=.
before=
for word in "$@"; do
  [ "$before" = --bundle ] && bundle=$word
  case $word in --bundle=*) bundle=${{word#--bundle=}} ;; esac
  before=$word
done
case " $* " in
  *" create "* | *" run "*) sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj":0/' "$bundle/config.json" ;;
esac
exec {shutil.which("runc") or "/usr/sbin/runc"} "$@"
""")
    path.chmod(0o755)


def _bridge_address() -> str:
    """This machine's address on Docker's bridge: a node's address must not be a loopback one."""
    command = ["ip", "-json", "-4", "address", "show", "docker0"]
    [bridge] = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout)
    return str(bridge["addr_info"][0]["local"])


def _load_pause() -> None:
    """The image of the process that holds a pod's network."""
    found = subprocess.run(["docker", "image", "inspect", PAUSE], capture_output=True, check=False)
    if found.returncode != 0:
        with subprocess.Popen(["tar", "-C", programs(), "-c", "pause"], stdout=subprocess.PIPE) as files:
            command = ["docker", "import", "--change", 'ENTRYPOINT ["/pause"]', "-", PAUSE]
            subprocess.run(command, stdin=files.stdout, capture_output=True, check=True)
