"""A Slurm of three machines on this one, for tests: munge, slurmctld and three slurmd.

with SlurmOnThisMachine(grace=10) as slurm:
    slurm.run("sinfo")

Nothing of it is left however a test ends, also of a run that was aborted: the next one ends what the last one left.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from support.ports import free_port
from support.tagged import lives
from support.waiting import until

NODES = ("n1", "n2", "n3")
_FOLDERS = Path(tempfile.gettempdir())
_FOLDER = re.compile(r"edt-slurm-(\d+)-\w+")
"""Name of such a cluster's folder, with the pid of the test that started it. Every process of the cluster, and every
job, has a path in it as SLURM_CONF."""
_FREEZER = Path("/sys/fs/cgroup/freezer")
_UNIFIED = Path("/sys/fs/cgroup/cgroup.controllers")


class SlurmOnThisMachine:
    """The cluster. It has two partitions over the same machines: ``low``, whose jobs are preempted by those of
    ``high`` and start again, and ``high``.

    Args:
        grace: GraceTime of ``low`` in seconds.
        kill_wait: seconds from SIGTERM to SIGKILL.
        cpus: CPUs of each machine, however many this one has.
        cgroups: whether a step's processes are found by their cgroup, as on clusters that mean it; else by their group.
        jwt: whether JSON web tokens are accepted.
    """

    def __init__(
        self,
        *,
        grace: int = 10,
        kill_wait: int = 2,
        cpus: int = 4,
        cgroups: bool | None = None,
        jwt: bool = False,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"edt-slurm-{os.getpid()}-", dir=_FOLDERS))  # short, for a socket
        self.folder.chmod(0o755)
        self.conf = self.folder / "slurm.conf"
        self.cgroups = has_freezer() if cgroups is None else cgroups
        self._grace, self._kill_wait, self._cpus, self._jwt = grace, kill_wait, cpus, jwt
        self._tag = f"edt{os.getpid()}x{secrets.token_hex(2)}"
        self.names = tuple(f"{self._tag}{name}" for name in NODES)
        """The machines' names in Slurm. They are part of cgroups' names, which a machine has only once."""
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))},
            "SLURM_CONF": str(self.conf),
        }
        self._rest: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SlurmOnThisMachine:
        sweep_leftovers()
        try:
            self._write()
            self._start()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is not None:
            for path in sorted((self.folder / "log").glob("*")):
                print(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}")
        _end(self.folder)
        if self._rest is not None:
            self._rest.wait(10)
        _remove_cgroups(self._tag)

    def run(self, *words: str, user: str | None = None, stdin: str = "", check: bool = True) -> str:
        """Run one of Slurm's commands; returns what it printed."""
        before = ["runuser", "-u", user, "--"] if user else []
        done = subprocess.run(
            [*before, *words], env=self.environ, input=stdin, capture_output=True, text=True, timeout=60, check=False
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{words}: {done.returncode} {done.stderr}")
        return done.stdout.strip()

    def stop_controller(self) -> None:
        """End slurmctld alone; what runs goes on."""
        pid = int((self.folder / "slurmctld.pid").read_text())
        os.kill(pid, signal.SIGTERM)
        until(lambda: not lives(pid), 30, "slurmctld has ended")

    def start_controller(self, *options: str) -> None:
        """Start slurmctld again. ``-c``: it has forgotten all jobs."""
        self._daemon("slurmctld", "-f", str(self.conf), *options)
        until(self._answers, 30, "slurmctld answers")

    def kill_machine(self, name: str) -> None:
        """Kill a machine's slurmd and all that runs there, as a power cut would, and say so to Slurm."""
        _kill(int((self.folder / f"slurmd.{name}.pid").read_text()))
        for process in _bearers(self.folder, f"SLURMD_NODENAME={name}"):
            _kill(process)
        for group in _FREEZER.glob(f"slurm_{name}/**/cgroup.procs"):
            for left in group.read_text().split():
                _kill(int(left))
        self.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=test")

    def start_machine(self, name: str) -> None:
        self._daemon("slurmd", "-N", name, "-f", str(self.conf))

    def occupy(self, partition: str = "high", *, machine: str | None = None, seconds: int = 600) -> str:
        """A job that takes a whole machine; returns its number."""
        where = [f"--nodelist={machine}"] if machine else []
        words = ["sbatch", "--parsable", f"--partition={partition}", "--exclusive", "--nodes=1", *where]
        return self.run(*words, "--output=/dev/null", f"--wrap=exec sleep {seconds}")

    def state(self, job: str) -> str:
        """A job's state; "": Slurm does not know it."""
        return self.run("squeue", "--noheader", "--all", "--states=all", f"--jobs={job}", "--format=%T", check=False)

    def drop_all_jobs(self, seconds: float = 60.0) -> None:
        """Cancel all jobs, and wait until the machines are free."""

        def gone() -> bool:
            for partition in ("low", "high"):
                self.run("scancel", f"--partition={partition}", check=False)
            for group in _FREEZER.glob(f"slurm_{self._tag}*/**/cgroup.procs"):
                with contextlib.suppress(OSError):
                    for pid in group.read_text().split():
                        if b"slurmstepd" not in Path(f"/proc/{pid}/cmdline").read_bytes():
                            _kill(int(pid))
            return not self.run("squeue", "--noheader")

        until(gone, seconds, "no job is left")

    @contextlib.contextmanager
    def rest(self) -> Iterator[str]:
        """slurmrestd, which may not be root's; yields its URL."""
        port = free_port()
        words = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "slurmrestd", "-f", str(self.conf)]
        words += ["-s", "openapi/v0.0.38", "-a", "rest_auth/jwt", f"127.0.0.1:{port}"]
        with (self.folder / "log/slurmrestd.log").open("wb") as log:
            self._rest = subprocess.Popen(words, env={**self.environ, "SLURM_JWT": "daemon"}, stdout=log, stderr=log)
        try:
            until(lambda: _listens(port), 20, "slurmrestd listens")
            yield f"http://127.0.0.1:{port}"
        finally:
            self._rest.kill()
            self._rest.wait(10)

    def _write(self) -> None:
        for name in ("state", "spool", "log", "munge"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for key in ("munge/key", "jwt.key"):
            (self.folder / key).write_bytes(secrets.token_bytes(128))
            (self.folder / key).chmod(0o600)
        host, controller = socket.gethostname().partition(".")[0], free_port()
        ports = {name: free_port() for name in self.names}
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\n")
        jwt = f"AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key={self.folder}/jwt.key\n" if self._jwt else ""
        machines = "".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={self._cpus} RealMemory=8000\n"
            for name, port in ports.items()
        )
        names = ",".join(self.names)
        self.conf.write_text(
            f"ClusterName={self._tag}\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n"
            f"AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket={self.folder}/munge/socket,cred_expire=5\n{jwt}"
            f"ProctrackType=proctrack/{'cgroup' if self.cgroups else 'pgid'}\nTaskPlugin=task/none\nMpiDefault=none\n"
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nReturnToService=2\n"
            f"SlurmctldPort={controller}\nSlurmctldPidFile={self.folder}/slurmctld.pid\n"
            f"SlurmdPidFile={self.folder}/slurmd.%n.pid\nSlurmdSpoolDir={self.folder}/spool/%n\n"
            f"StateSaveLocation={self.folder}/state\nSlurmctldLogFile={self.folder}/log/slurmctld.log\n"
            f"SlurmdLogFile={self.folder}/log/slurmd.%n.log\nSlurmctldTimeout=30\nSlurmdTimeout=30\n"
            f"KillWait={self._kill_wait}\nMinJobAge=300\nPreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n"
            "SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1,sched_min_interval=0\n"
            "SlurmdParameters=config_overrides\nEpilogMsgTime=100\n"
            f"{machines}"
            f"PartitionName=low Nodes={names} Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={self._grace}\n"
            f"PartitionName=high Nodes={names} PriorityTier=10 PreemptMode=OFF\n"
        )

    def _start(self) -> None:
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge}/{name}" for name in ("key", "pid", "log", "seed")]
        self._daemon("munged", "--force", f"--socket={munge}/socket", *files)
        self._daemon("slurmctld", "-f", str(self.conf))
        for name in self.names:
            self.start_machine(name)
        until(lambda: self._idle() == len(NODES), 30, "all machines are there")

    def _daemon(self, *words: str) -> None:
        done = subprocess.run(words, env=self.environ, cwd="/", capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise AssertionError(f"{words[0]} did not start: {done.stderr}")

    def _answers(self) -> bool:
        return "UP" in self.run("scontrol", "ping", check=False)

    def _idle(self) -> int:
        text = self.run("sinfo", "--noheader", "--partition=low", "--states=idle", "--format=%D", check=False)
        return int(text or 0)


@functools.cache
def has_slurm() -> bool:
    """Whether this machine has what such a Slurm needs."""
    return os.geteuid() == 0 and all(map(shutil.which, ("slurmctld", "slurmd", "srun", "sbatch", "munged")))


@functools.cache
def has_rest() -> bool:
    """Whether slurmrestd and Slurm's plugin for JSON web tokens are here."""
    return bool(shutil.which("slurmrestd")) and any(Path("/usr/lib").glob("*/slurm-wlm/auth_jwt.so"))


@functools.cache
def has_freezer() -> bool:
    """Whether Slurm may find processes by a cgroup here: root, and the freezer of the first kind of cgroups."""
    probe = _FREEZER / f"edt-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return not _UNIFIED.exists()


def sweep_leftovers() -> None:
    """End what tests have left that are gone."""
    for folder in _FOLDERS.iterdir():
        if (match := _FOLDER.fullmatch(folder.name)) and not lives(int(match[1])):
            _end(folder)
            _remove_cgroups(f"edt{match[1]}x")


def _end(folder: Path) -> None:
    """Kill all processes of a cluster until none is left, and remove its folder. Jobs have no way to resist."""
    deadline = time.monotonic() + 30
    while left := _bearers(folder):
        for pid in left:
            _kill(pid)
        if time.monotonic() > deadline:
            raise AssertionError(f"cannot be killed: {left}")
        time.sleep(0.05)
    shutil.rmtree(folder, ignore_errors=True)


def _bearers(folder: Path, also: str = "") -> list[int]:
    """pids of all processes of a cluster, jobs too; ``also``: those alone that have this variable, too."""
    found = []
    wanted = {f"SLURM_CONF={folder / 'slurm.conf'}".encode(), *([also.encode()] if also else [])}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                if wanted <= set((entry / "environ").read_bytes().split(b"\0")) and lives(int(entry.name)):
                    found.append(int(entry.name))
    return found


def _remove_cgroups(tag: str) -> None:
    """Kill what is in the cgroups of a cluster's machines, and remove them."""
    for machine in _FREEZER.glob(f"slurm_{tag}*"):
        for path in sorted(machine.glob("**/"), key=lambda each: -len(each.parts)):
            with contextlib.suppress(OSError):
                (path / "freezer.state").write_text("THAWED")
                for pid in (path / "cgroup.procs").read_text().split():
                    _kill(int(pid))
            for _ in range(50):
                try:
                    path.rmdir()
                    break
                except OSError:
                    time.sleep(0.05)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
