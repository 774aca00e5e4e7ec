"""The batch script of a node's job, and what is asked of Slurm for it. Pure.

The script runs on the node. It learns from SLURM_ARRAY_TASK_ID which node of the batch it is, so a job that Slurm
starts again comes back as itself. The agent runs in a step: Slurm sends its signals to steps, and ``proctrack/cgroup``
ends with a step all that it has started.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edt_contract.pools import NodeRequest
from edt_provisioner.settings import node_environment
from edt_provisioner.slurm.settings import SlurmSettings

LEAST_MARGIN, MARGIN = 2.0, 0.1
"""Of the grace so much is kept back for the end of the processes: seconds, and a share."""

_BODY = """\
# Slurm's signals go to the step. This shell must outlive them: the job is over when it ends. It may not pass them to
# srun, which would kill the step at once; a signal that only the shell gets is sent to the step by Slurm.
pass_on() {
  [ -n "$told" ] || { told=1; scancel --signal=TERM "$SLURM_JOB_ID.0" >/dev/null 2>&1 & }
}
told=
trap pass_on TERM INT
trap : CONT USR1 USR2 HUP
# A limit that somebody has changed, or a job that was started again, has another end than was asked for.
ends=${SLURM_JOB_END_TIME:-}
day=$([ -n "$ends" ] || squeue --noheader --jobs="$SLURM_JOB_ID" --format=%e 2>/dev/null)
case "$day" in [0-9]*T*) ends=$(date -d "$day" +%s) ;; esac
case "$ends" in ''|*[!0-9]*) ends=$([ -z "$limit" ] || echo $(($(date +%s) + limit))) ;; esac
# Without a limit Slurm names a day that is a year or more away.
[ -z "$ends" ] || [ "$ends" -gt $(($(date +%s) + 31000000)) ] || export EDT_ENDS_AT="$ends"
"""


@dataclass(frozen=True)
class Kind:
    """What the nodes of one batch have in common."""

    user: str | None
    """The user of Slurm whose jobs they are; None: the provisioner's."""
    partitions: str | None
    account: str | None
    qos: str | None
    environ: tuple[tuple[str, str], ...]
    """The agent's environment, without its name and token."""
    comment: str
    """What an administrator reads of the jobs."""


@dataclass(frozen=True)
class Submission:
    """One array of jobs, of one node each."""

    name: str
    tasks: int
    kind: Kind
    script: str
    output: str
    """Path of the jobs' output, with Slurm's patterns."""


def kind_of(request: NodeRequest, settings: SlurmSettings, user: str | None, leave_seconds: float) -> Kind:
    """How a node is asked for."""
    environ = dict(node_environment(request, settings))
    del environ["EDT_NAME"]
    environ["EDT_LEAVE_SECONDS"] = f"{leave_seconds:g}"
    grows = not request.first
    return Kind(
        user=user,
        partitions=(settings.slurm_growth_partitions if grows else None) or settings.slurm_partitions,
        account=settings.account(request.queue),
        qos=(settings.slurm_growth_qos if grows else None) or settings.slurm_qos,
        environ=tuple(sorted(environ.items())),
        comment=f"OpenEDT, {f'for {request.job}' if request.job else f'pool {settings.pool}'}",
    )


def leave_seconds(grace_seconds: float) -> float:
    """Within how many seconds after SIGTERM an agent should be gone; 0: there is no time for it."""
    left = grace_seconds - max(LEAST_MARGIN, MARGIN * grace_seconds)
    return left if left >= 1 else 0.0


def batch_script(
    nodes: Sequence[str], environ: Mapping[str, str], token: str, settings: SlurmSettings, prologue: str = ""
) -> str:
    """The script of a batch.

    Args:
        nodes: names of the nodes, by index in the array.
        environ: the agent's environment, but for its name, its token's file and its end.
        token: path of the token's file, in which ``%a`` is the index.
        settings: the settings.
        prologue: what an administrator wants to be done first.
    """
    before, _, after = token.partition("%a")
    step = ["srun", "--nodes=1", "--ntasks=1", f"--cpus-per-task={settings.cpus}", "--export=ALL"]
    step += ["--unbuffered", *settings.slurm_srun_options, settings.slurm_python, "-P", "-m", "edt_agent.temporary"]
    limit = settings.slurm_time_limit or ""
    lines = [
        "#!/bin/bash",
        f"nodes=({' '.join(map(shlex.quote, nodes))})",
        # The job has none of the provisioner's environment.
        'export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}" PATH="${PATH:-/usr/local/bin:/usr/bin:/bin}"',
        prologue.rstrip("\n"),
        *(f"export {name}={shlex.quote(value)}" for name, value in environ.items()),
        'export EDT_NAME="${nodes[$SLURM_ARRAY_TASK_ID]}"',
        f'export EDT_TOKEN_FILE={shlex.quote(before)}"$SLURM_ARRAY_TASK_ID"{shlex.quote(after)}',
        f"limit={limit}",
        _BODY.rstrip("\n"),
        f"{shlex.join(step)} &",
        "step=$!",
        'while :; do wait "$step"; status=$?; kill -0 "$step" 2>/dev/null || break; done',
        'exit "$status"',
    ]
    return "\n".join(line for line in lines if line) + "\n"


def sbatch_options(asked: Submission, settings: SlurmSettings) -> list[str]:
    """The options of sbatch, which reads the script from standard input."""
    kind = asked.kind
    limit = settings.slurm_time_limit
    given = {
        "--job-name": asked.name,
        "--comment": kind.comment,
        "--partition": kind.partitions,
        "--account": kind.account,
        "--qos": kind.qos,
        "--constraint": settings.slurm_constraint,
        "--gres": settings.slurm_gres,
        "--cpus-per-task": str(settings.cpus),
        "--mem": settings.slurm_memory,
        "--time": None if limit is None else str(-(-limit // 60)),
        "--array": f"0-{asked.tasks - 1}",
        "--nodes": "1",  # Slurm preempts, and ends, whole jobs
        "--ntasks": "1",
        "--output": asked.output,
        "--open-mode": "append",  # a job that is started again goes on in its file
        "--chdir": "/",
        "--export": "NIL",
    }
    return [
        "--parsable",
        "--requeue",
        *(f"{name}={value}" for name, value in given.items() if value is not None),
        *settings.slurm_options,
    ]


def job_description(asked: Submission, settings: SlurmSettings, *, new: bool) -> dict[str, object]:
    """The same as slurmrestd takes it.

    Args:
        asked: what is asked for.
        settings: the settings.
        new: whether in the shapes of v0.0.39 and later.
    """
    kind = asked.kind
    limit = None if settings.slurm_time_limit is None else -(-settings.slurm_time_limit // 60)
    memory = None if settings.slurm_memory is None else _mebibytes(settings.slurm_memory)
    path = "/usr/local/bin:/usr/bin:/bin"
    given: dict[str, object] = {
        "name": asked.name,
        "comment": kind.comment,
        "partition": kind.partitions,
        "account": kind.account,
        "qos": kind.qos,
        "constraints": settings.slurm_constraint,
        "cpus_per_task": settings.cpus,
        "array": f"0-{asked.tasks - 1}",
        "tasks": 1,
        "standard_output": asked.output,
        "requeue": True,
        "current_working_directory": "/",
    }
    if new:
        given |= {
            "tres_per_node": settings.slurm_gres and f"gres/{settings.slurm_gres.removeprefix('gres/')}",
            "time_limit": limit and {"set": True, "infinite": False, "number": limit},
            "memory_per_node": memory and {"set": True, "infinite": False, "number": memory},
            "nodes": "1",
            "open_mode": ["APPEND"],
            "environment": [f"PATH={path}"],
            "script": asked.script,
        }
    else:
        given |= {
            "gres": settings.slurm_gres,
            "time_limit": limit,
            "memory_per_node": memory,
            "nodes": 1,
            "open_mode": "append",
            "environment": {"PATH": path},  # a job must have some
        }
    job = {name: value for name, value in given.items() if value is not None}
    return {"job": job} if new else {"job": job, "script": asked.script}


def _mebibytes(size: str) -> int:
    """A size as sbatch reads it: a number alone is in MiB."""
    number, unit = int(size.rstrip("KMGT")), size[-1]
    return max(1, number * {"K": 1, "G": 1 << 20, "T": 1 << 30}.get(unit, 1 << 10) >> 10)
