"""Commands that ask the plan: explain, whatif, and what ``edt submit --dry-run`` prints."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.text import Text

from edt_api.schemas.answers import (
    DryRun,
    Expected,
    Explained,
    Hidden,
    Holder,
    JobEffect,
    Totals,
    Verdict,
    WhatIf,
)
from edt_api.schemas.queues import QueuePolicy
from edt_cli import output
from edt_cli.errors import CannotStart
from edt_cli.jobs import JobArgument
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, Session, session

_STYLES = {Verdict.FREE: "green", Verdict.KEPT: "yellow", Verdict.FULL: "yellow"}
_JsonOption = Annotated[bool, typer.Option("--json", help="The same as -o json.")]


def explain(
    context: typer.Context, job_id: JobArgument, form: FormatOption = Format.TABLE, as_json: _JsonOption = False
) -> None:
    """Say why a job waits, or why it has as many slots as it has: what blocks it, what each node says, what would start
    it now, and when it is expected to start. Every change that is named was tried on the present state."""
    with session(context.obj) as api:
        found = api.one(Explained, f"{OURS}/jobs/{job_id}/explanation")
    if as_json or form is Format.JSON:
        output.as_json(found)
        return
    _print(found)


def _print(found: Explained) -> None:
    """Print an explanation."""
    lines: list[tuple[str, str | Text]] = [("Job", found.job)]
    if (waits := found.waits) is not None:
        lines += [
            ("Waits", waits.sentence),
            ("Rule", waits.rule),
            ("Rank", f"{waits.rank} of {waits.waiting} that wait" if waits.rank else ""),
            ("Needs", f"{_slots(waits.need)} to start; free: {waits.free}"),
            ("Back-off", f"ends in {output.span(waits.not_before - found.at)}" if waits.not_before else ""),
        ]
    elif (holds := found.holds) is not None:
        more = f"{holds.next.sentence} ({holds.next.rule})"
        lines += [
            ("Holds", f"{_slots(holds.slots)}; its share is {holds.share}, between {holds.min} and {holds.max}"),
            ("Worth", holds.worth),
            ("Next size", more),
        ]
    else:
        lines.append(("State", found.sentence))
    if (entitled := found.entitlement) is not None:
        where = f"queue {entitled.queue}" if entitled.queue else "the root queue"
        whose = f" of {entitled.user}" if entitled.user else ""
        jobs = f"{entitled.jobs} job{'' if entitled.jobs == 1 else 's'}{whose} in {where}"
        lines.append(("Entitled", f"{jobs} to {_slots(entitled.entitled)} together; they hold {entitled.held}"))
    if found.expected is not None:
        lines += [("Expected", found.expected.sentence), ("At first", _first(found.expected))]
    output.sheet((title, value) for title, value in lines if value)
    _tables(found)


def _first(expected: Expected) -> str:
    """Return when a job was expected to start when it began to wait."""
    if expected.first is None:
        return ""
    ahead = expected.first - time.time()
    when = f"in {output.span(ahead)}" if ahead >= 0 else f"{output.span(-ahead)} ago"
    return f"when it began to wait, its start was expected {when}"


def _tables(found: Explained) -> None:
    if found.waits is not None:
        _holders("Blocked by", found.waits.by, found.waits.hidden)
    if found.holds is not None:
        _holders("Beside it", found.holds.takers, found.holds.hidden)
    if found.entitlement is not None and any(each.queue for each in found.entitlement.queues):
        _title("Queues")
        rows = [
            (
                each.queue or "root",
                each.policy,
                str(each.quota),
                "" if each.limit is None else str(each.limit),
                f"{each.weight:g}",
                str(each.held),
                str(each.waiting),
            )
            for each in found.entitlement.queues
        ]
        output.table(("QUEUE", "POLICY", "QUOTA", "LIMIT", "WEIGHT", "HELD", "WAITING"), rows, "")
    if found.nodes is not None:
        _title("Nodes")
        nodes = [
            (
                each.node,
                Text(each.verdict, style=_STYLES.get(each.verdict, "dim")),
                f"{each.free}/{each.slots}",
                each.sentence,
            )
            for each in found.nodes.items
        ]
        output.table(("NODE", "VERDICT", "FREE", "WHY"), nodes, "There are no nodes.")
        more = sum(found.nodes.counts.values()) - len(nodes)
        if more:
            typer.echo(f"and {more} more nodes")
    if found.changes:
        _title("It starts now if" if found.waits is not None else "It gets more if")
        changes = [
            (
                each.sentence,
                str(each.slots),
                "at once" if each.plans == 1 else "once slots are vacated",
                _how(each.command, each.resubmit),
            )
            for each in found.changes
        ]
        output.table(("WHAT", "SLOTS", "WHEN", "COMMAND"), changes, "")
    elif (
        found.waits is not None
        and found.waits.rule
        and not found.untried
        and (found.expected is None or found.expected.start != found.at)
    ):
        typer.echo("\nNo single change was found that would start it now.")
    if found.untried:
        typer.echo(f"{found.untried} further kinds of changes were not tried, for lack of time.")


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"


def _how(command: str, resubmit: bool) -> str:
    return "submit it anew" if resubmit else command


def _title(text: str) -> None:
    output.console().print()
    output.console().print(Text(text, style="bold"))


def _holders(title: str, holders: list[Holder], hidden: Hidden) -> None:
    if not holders and not hidden.jobs:
        return
    _title(title)
    rows = [
        (each.job, each.user, each.queue or "root", str(each.priority), ", ".join(each.nodes), each.sentence)
        for each in holders
    ]
    if hidden.jobs:
        jobs = "1 job" if hidden.jobs == 1 else f"{hidden.jobs} jobs"
        rows.append((f"{jobs} of others", "", "", "", "", f"hold {_slots(hidden.slots)}"))
    output.table(("JOB", "USER", "QUEUE", "PRIORITY", "NODES", "WHY"), rows, "")


def whatif(
    context: typer.Context,
    more: Annotated[int | None, typer.Option(min=1, help="A further node with so many slots.")] = None,
    node_less: Annotated[list[str] | None, typer.Option(metavar="NODE", help="Without this node; repeatable.")] = None,
    open_node: Annotated[
        list[str] | None, typer.Option("--open", metavar="NODE", help="This cordoned node takes work; repeatable.")
    ] = None,
    stop: Annotated[list[str] | None, typer.Option(metavar="JOB", help="This job is over; repeatable.")] = None,
    resume: Annotated[
        list[str] | None, typer.Option(metavar="JOB", help="This paused job goes on; repeatable.")
    ] = None,
    job: Annotated[str | None, typer.Option(metavar="JOB", help="This job with --max, --min, --priority, …")] = None,
    new: Annotated[
        int | None, typer.Option(min=1, help="A new job of so many slots at most, with --min, --priority, --queue, …")
    ] = None,
    gang: Annotated[bool, typer.Option("--gang", help="With --new: it starts with all its slots at once.")] = False,
    queue: Annotated[
        str | None, typer.Option(metavar="PATH", help="This queue with --quota, --policy, …; with --new: its queue.")
    ] = None,
    most: Annotated[int | None, typer.Option("--max", min=1, help="With --job: its most slots.")] = None,
    least: Annotated[int | None, typer.Option("--min", min=1, help="With --job or --new: its fewest slots.")] = None,
    priority: Annotated[int | None, typer.Option(min=1, help="With --job or --new.")] = None,
    device: Annotated[
        str | None, typer.Option(metavar="gpu|cpu", help="With --more, --job (or any) or --new: the kind of slots.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="With --more, --job or --new: the model of GPU.")] = None,
    policy: Annotated[QueuePolicy | None, typer.Option(help="With --queue.")] = None,
    quota: Annotated[int | None, typer.Option(min=0, help="With --queue.")] = None,
    limit: Annotated[str | None, typer.Option(metavar="N|none", help="With --queue.")] = None,
    weight: Annotated[float | None, typer.Option(help="With --queue.")] = None,
    form: FormatOption = Format.TABLE,
    as_json: _JsonOption = False,
) -> None:
    """Say what would be different: who would grow, shrink, start earlier or later. Nothing is changed. Several options
    are assumed together."""
    settings = {"quota": quota, "policy": policy, "weight": weight, **_limit(limit)}
    changes: list[dict[str, Any]] = []
    changes += [{"kind": "node-less", "node": each} for each in node_less or []]
    changes += [{"kind": "node-opened", "node": each} for each in open_node or []]
    changes += [{"kind": "job-stopped", "job": each} for each in stop or []]
    changes += [{"kind": "job-resumed", "job": each} for each in resume or []]
    if more is not None:
        changes.append({"kind": "more-slots", "slots": more, "device": device, "model": model or ""})
    if job is not None and new is not None:
        raise CannotStart("--job and --new do not go together: ask one after the other")
    if job is not None:
        sizes = {"max": most, "min": least, "priority": priority}
        kind = {} if more is not None else {"device": device, "models": [model] if model else None}
        changes.append({"kind": "job", "job": job, **sizes, **kind})
    if new is not None:
        asks = {"max": new, "min": least or 1, "priority": priority or 1, "gang": gang, "queue": queue or ""}
        changes.append({"kind": "new-job", **asks, "device": device, "models": [model] if model else []})
    if queue is not None and (new is None or any(each is not None for each in settings.values())):
        changes.append({"kind": "queue", "queue": queue, **settings})
    _check_used(job, new, queue, most=most, least=least, priority=priority, gang=gang or None, **settings)
    if not changes:
        raise CannotStart("say what is assumed, such as --more 8, --node-less NODE, --stop JOB, --job JOB --max 4")
    given = [{name: value for name, value in each.items() if value is not None} for each in changes]
    with session(context.obj) as api:
        found = api.read(WhatIf, api.ask("POST", f"{OURS}/what-if", json={"changes": given}))
    if as_json or form is Format.JSON:
        output.as_json(found)
        return
    typer.echo(f"If {' and '.join(found.assumed)}: {found.sentence}")
    _effects(found.jobs, found.hidden, found.at)
    _totals(found.before, found.after)


def _limit(text: str | None) -> dict[str, Any]:
    """Return the fields of a queue's limit."""
    if text is None:
        return {}
    if text == "none":
        return {"unlimited": True}
    if not text.isascii() or not text.isdigit():
        raise CannotStart(f"--limit: got {text!r}; it takes a whole number, or none")
    return {"limit": int(text)}


def _check_used(job: str | None, new: int | None, queue: str | None, **given: Any) -> None:
    """Refuse options that say something of a job or a queue that is not named."""
    for name, needs, there in (
        ("most", "--max needs --job", job),
        ("least", "--min needs --job or --new", job or new),
        ("priority", "--priority needs --job or --new", job or new),
        ("gang", "--gang needs --new", new),
        *((each, f"--{each} needs --queue", queue) for each in ("quota", "policy", "weight", "limit", "unlimited")),
    ):
        if given.get(name) is not None and there is None:
            raise CannotStart(needs.replace("--unlimited", "--limit"))


def _effects(effects: list[JobEffect], hidden: dict[str, int], now: float) -> None:
    if effects:
        output.console().print()
        rows = [
            (
                each.job,
                each.user,
                f"{each.before.slots} → {each.after.slots}"
                if each.before.slots != each.after.slots
                else str(each.after.slots),
                _change(each.before.start, each.after.start, now),
                _change(each.before.end, each.after.end, now),
                each.sentence,
            )
            for each in effects
        ]
        output.table(("JOB", "USER", "SLOTS", "START", "END", "WHAT"), rows, "")
    if hidden:
        listed = ", ".join(f"{number} {effect}" for effect, number in sorted(hidden.items()))
        typer.echo(f"Besides these, jobs that are not listed: {listed}.")


def _change(before: float | None, after: float | None, now: float) -> str:
    """Return two times from now on, such as ``12m → 3m``."""
    one, other = _ahead(before, now), _ahead(after, now)
    return one if one == other else f"{one or '?'} → {other or '?'}"


def _ahead(moment: float | None, now: float) -> str:
    return "" if moment is None else "now" if moment <= now else output.span(moment - now)


def _totals(before: Totals, after: Totals) -> None:
    output.console().print()
    rows = [
        (
            title,
            f"{each.used} of {each.slots}",
            str(each.running),
            str(each.waiting),
            "" if each.mean_start_seconds is None else output.span(each.mean_start_seconds),
        )
        for title, each in (("now", before), ("then", after))
    ]
    output.table(("", "SLOTS USED", "RUNNING", "WAITING", "MEAN WAIT LEFT"), rows, "")


def dry_run(api: Session, args: str, form: Format) -> None:
    """Print what would become of a submission with these args."""
    found = api.read(DryRun, api.ask("POST", f"{OURS}/dry-run", json={"args": args}))
    if form is Format.JSON:
        output.as_json(found)
        return
    size = f"{_slots(found.max)} at once" if found.kind == "gang" else f"{found.min} to {_slots(found.max)}"
    on = ", ".join(f"{number} on {node}" for node, number in found.nodes.items())
    if found.starts:
        waits = found.explained.waits
        soon = "at once" if waits is None or not waits.rule else "as soon as slots are vacated for it"
        start = f"{soon}, on {_slots(found.slots)}: {on}"
    else:
        start = "not now"
    output.sheet(
        (title, value)
        for title, value in (("Kind", f"{found.kind}, {size}"), ("Starts", start), ("Note", found.remark or ""))
        if value
    )
    if not found.starts:
        _print(found.explained)
    elif found.explained.expected is not None:
        typer.echo(found.explained.expected.sentence)
    if found.others or found.hidden:
        _title("For others")
        _effects(found.others, found.hidden, found.explained.at)
    typer.echo("\nNothing was submitted.")
