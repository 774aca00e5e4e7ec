"""``edt queues``, ``edt queue``, ``edt resize``, ``edt priority`` and ``edt replay``: who gets slots, and why."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.text import Text

from edt_api.schemas.jobs import Changed
from edt_api.schemas.queues import (
    DecisionAction,
    DecisionPage,
    JobChange,
    Queue,
    QueueChanged,
    QueueOthers,
    QueuePolicy,
    Queues,
    QueueUser,
    RecordedDecision,
)
from edt_cli import output
from edt_cli.errors import CannotStart, CliError
from edt_cli.jobs import JobArgument
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, Session, session

queue_app = typer.Typer(help="Make, change and remove queues.", no_args_is_help=True)

_PathArgument = Annotated[str, typer.Argument(metavar="PATH", help="Such as /research/vision; / is the root.")]
_REPLAYED = 10
"""How many decisions are replayed if nothing else is said."""


def queues(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """Show the tree of queues: what each may have, has and waits for, with its users, and why its jobs wait."""
    with session(context.obj) as api:
        found = api.one(Queues, f"{OURS}/queues")
    if form is Format.JSON:
        output.as_json(found)
        return
    whole = not output.narrow()
    columns = ("QUEUE", "QUOTA", "LIMIT", "USED", "ENTITLED", "RUNNING", "WAITING")
    more = ("WEIGHT", "POLICY", "DEMAND", "USAGE")
    rows = [row if whole else row[: len(columns)] for queue in found.queues for row in _rows(queue)]
    output.table((*columns, *more) if whole else columns, rows, "")
    output.console().print(f"{found.used} of {found.slots} slots are held.")
    waiting = [(queue, job) for queue in found.queues for job in queue.waiting_jobs]
    if waiting:
        output.console().print()
        shown = [
            (job.job, job.name, job.owner, queue.path or "root", str(job.priority), str(job.need), job.reason)
            for queue, job in waiting
        ]
        output.table(("JOB", "NAME", "OWNER", "QUEUE", "PRIORITY", "NEEDS", "WHY"), shown, "")


def _rows(queue: Queue) -> Iterator[tuple[str | Text, ...]]:
    """Yield the lines of one queue: its own, and below it those of its users."""
    indent = "  " * queue.depth
    yield (
        Text(f"{indent}{queue.name}", style="bold"),
        str(queue.quota) if queue.depth else "",
        str(queue.limit) if queue.limit is not None else "",
        *_numbers(queue.used, queue.entitled, queue.running, queue.waiting),
        f"{queue.weight:g}" if queue.depth else "",
        queue.policy,
        str(queue.demand),
        _hours(queue.usage),
    )
    for user in queue.users:
        yield _user(f"{indent}  {user.user}", user)
    if queue.others.users:
        yield _user(f"{indent}  {queue.others.users} other user{'' if queue.others.users == 1 else 's'}", queue.others)


def _user(name: str, has: QueueUser | QueueOthers) -> tuple[str | Text, ...]:
    numbers = _numbers(has.held, has.entitled, has.running, has.waiting)
    return Text(name, style="dim"), "", "", *numbers, "", "", "", _hours(has.usage)


def _numbers(*numbers: int) -> tuple[str, ...]:
    return tuple(map(str, numbers))


def _hours(slot_seconds: float) -> str:
    """Return slot-seconds in hours; "" for next to none."""
    return f"{slot_seconds / 3600:.1f} h" if slot_seconds >= 180 else ""


@queue_app.command("set")
def set_queue(
    context: typer.Context,
    path: _PathArgument,
    quota: Annotated[
        int | None, typer.Option(min=0, help="Slots that it has before anything is divided by weight.")
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Its share beside the queues of the same parent.")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="The most slots that its jobs hold together.")] = None,
    no_limit: Annotated[bool, typer.Option("--no-limit", help="Take the limit away.")] = False,
    policy: Annotated[QueuePolicy | None, typer.Option(help="How its jobs share what it has.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Make a queue, or change one: what is not said stays. A new one has no quota, no limit, the weight 1 and the
    policy efficient."""
    if no_limit and limit is not None:
        raise CannotStart("--limit and --no-limit do not go together")
    wanted: dict[str, Any] = {"quota": quota, "weight": weight, "limit": limit, "policy": policy}
    body = {name: value for name, value in wanted.items() if value is not None}
    if no_limit:
        body["limit"] = None
    with session(context.obj) as api:
        changed = api.read(QueueChanged, api.ask("PUT", _of_queue(path), json=body))
    if form is Format.JSON:
        output.as_json(changed)
    else:
        typer.echo(changed.message)


@queue_app.command("remove")
def remove_queue(context: typer.Context, path: _PathArgument) -> None:
    """Remove a queue; its jobs belong to the queue above. The root only gets its first settings back."""
    with session(context.obj) as api:
        api.ask("DELETE", _of_queue(path))
    name = path.strip("/")
    typer.echo(f"/{name} is removed" if name else "the root has its first settings back")


def _of_queue(path: str) -> str:
    return f"{OURS}/queues/{quote(path.strip('/'))}"


def resize(
    context: typer.Context,
    job_id: JobArgument,
    least: Annotated[int | None, typer.Option("--min", min=1, help="The fewest slots with which it trains.")] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="The most slots that it may hold.")] = None,
    priority: Annotated[int | None, typer.Option(min=1, help="Its priority, too.")] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Change how many slots an elastic job may have, while it waits or runs."""
    if least is None and most is None and priority is None:
        raise CannotStart("say what to change: --min, --max or --priority")
    _change(context, job_id, JobChange(min_workers=least, max_workers=most, priority=priority), form)


def priority(
    context: typer.Context,
    job_id: JobArgument,
    number: Annotated[int, typer.Argument(metavar="N", min=1, help="Jobs of a higher priority come first.")],
    form: FormatOption = Format.TABLE,
) -> None:
    """Change the priority of a job that waits or runs. Its owner may set at most the one that it was submitted with, an
    admin any."""
    _change(context, job_id, JobChange(priority=number), form)


def _change(context: typer.Context, job_id: str, wanted: JobChange, form: Format) -> None:
    body = wanted.model_dump(exclude_none=True)
    with session(context.obj) as api:
        changed = api.read(Changed, api.ask("PATCH", f"{OURS}/jobs/{job_id}", json=body))
    if form is Format.JSON:
        output.as_json(changed.job)
    else:
        typer.echo(changed.message)


def replay(
    context: typer.Context,
    number: Annotated[int | None, typer.Argument(metavar="[ID]", min=1, help="Of one decision.")] = None,
    job_id: Annotated[str | None, typer.Option("--job", metavar="JOB", help="Only decisions about this job.")] = None,
    last: Annotated[
        int | None, typer.Option("--last", min=1, help=f"Only the newest ones; without --job {_REPLAYED}.")
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Plan recorded decisions again, and say of each whether the same comes out, or what differs. The exit status is 1
    if one differs."""
    if number is not None and (job_id is not None or last is not None):
        raise CannotStart("an ID goes with neither --job nor --last")
    with session(context.obj) as api:
        numbers = [number] if number is not None else _numbers_of(api, job_id, last)
        found = [api.one(RecordedDecision, f"{OURS}/decisions/{each}") for each in numbers]
    if form is Format.JSON:
        output.as_json(found)
    else:
        _show(found)
    if different := sum(not each.same for each in found):
        raise CliError(f"{different} of {len(found)} decisions would come out otherwise now")


def _numbers_of(api: Session, job_id: str | None, last: int | None) -> list[int]:
    """Return the numbers of the newest decisions, oldest first."""
    most = last if last is not None or job_id is not None else _REPLAYED
    numbers: list[int] = []
    for page in api.pages(DecisionPage, f"{OURS}/decisions", **({"job": job_id} if job_id is not None else {})):
        numbers += [each.id for each in page.items]
        if most is not None and len(numbers) >= most:
            break
    return numbers[:most][::-1]


def _show(found: Sequence[RecordedDecision]) -> None:
    rows = [
        (
            str(each.id),
            time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(each.at)),
            Text("the same", style="green") if each.same else Text("differs", style="red"),
            f"{1000 * each.seconds:.1f} ms",
            ", ".join(_action(action) for action in each.actions),
        )
        for each in found
    ]
    output.table(("ID", "DECIDED", "AGAIN", "TOOK", "WHAT"), rows, "No decision is recorded.")
    for each in found:
        for difference in each.differences:
            output.console().print(Text(f"{each.id}: {difference}", style="red"))


def _action(action: DecisionAction) -> str:
    return f"{action.verb} {action.job} {action.before}→{action.after} ({action.cause})"
