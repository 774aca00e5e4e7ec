"""What a resize and a death cost a training: OpenEDT beside torchrun and torchft, each in a run of its own.

A training of W workers (--workers) on one machine, a thread each. One leaves, one joins again; one is killed, one is
stopped, each time another joins. Every process notes the time of each step that it commits (``_resize_notes``).

  join, leave: p99 ..    p99 of the intervals between steps in the window around the event, less the p99 of as many
                         intervals without one. The window reaches from the decision to the tenth step in the new size,
                         and has its last 99 intervals at most: of so many the p99 is the longest. An interval is
                         compared with intervals of its own world size, and at the change with those of the size whose
                         steps take longer: a step of OpenEDT is always the same global batch, so that it takes longer
                         with W - 1 workers.
  no event (A/A)         the same figure for windows in which nothing happens
  SIGKILL, SIGSTOP ..    the longest of the three intervals between the signal and the steps after it: the survivors may
                         still commit the step under way
  the joining one's ..   from the decision to the first step that it has a share in. OpenEDT's node is warm, its
                         supervisor forks; the peers start a process
  throughput lost        of the samples that the steady rates before and after would have given in the seconds before
                         and after the event (a join: its first step in the new size), those that were not
                         committed, or were, and are lost again
  samples lost, repeated skipped for good; trained with once more, from this event to the next. OpenEDT's by the record
                         that its engines write, the peers' by the positions that each step notes
  driver, coordinator    the longest interval around the death of OpenEDT's, less a steady one, in steady steps

The small network's steps take about 20 ms, the large one's about 150. The data's order goes on at the right sample in
each system: with torchrun by the checkpoint, which it writes each 20 steps, with torchft by batches_committed().

"torchrun" has an agent for each worker, as nodes do; a worker is killed alone, and its agent starts another.
torch 2.13 needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 for it to grow. last_call_timeout, keep_alive_interval and
keep_alive_max_attempt are 1, 1 and 3 instead of 30, 5 and 3. torchft's lighthouse has a heartbeat timeout of 500 ms
instead of 5 s, a tick of 10 ms and a join timeout of 100 ms, its managers a timeout of 5 s instead of 60. torchft is
what --peers can import. An environment for it, which has this one's torch:

    python -m venv PEERS
    python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > PEERS/lib/python3.11/site-packages/torch.pth
    PEERS/bin/pip install torchft-nightly

PCCL is not measured. Its one wheel, pypccl 1.0.0, is for CPython 3.12, and its library needs libcuda.so.1 and the
libstdc++ of GCC 13: it could not be loaded on the machines of this project. What --peers says of it is printed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import _bound
import _report
from _participants import has_torchft
from _resize_figures import STEPS_AFTER, Event, Figures
from _resize_systems import RUNNERS, Ours, System, Torchft, Torchrun, wait

STEP_MS = {"small": 20, "large": 150}
SPAN, QUICK_SPAN = 5.0, 2.0
"""Seconds before and after an event in which throughput counts."""
ROUNDS, PEER_ROUNDS, PART_ROUNDS = 8, 5, 5
ROUND = ("leave", "join", "SIGKILL", "join", "SIGSTOP", "join")
SIGNALS = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
PARTS = ("driver", "coordinator")
PART_SECONDS = 2.0
"""After it has been started again it takes up its connections."""
MOST_JOIN, MOST_LEAVE, MOST_PART = 0.5, 0.25, 1.0
"""Steps."""
MOST_STRIKE_STEPS, MOST_STRIKE_SECONDS, MOST_FIRST_STEP = 2, 0.03, 1.0
"""A signal may cost so many steps and seconds; the last is in seconds."""


# ── what happens to a training ────────────────────────────────────────────────────────────────────────────────
def events_of(system: System, workers: int, rounds: int, span: float) -> list[Event]:
    """Let a training come up, and so many rounds of events happen to it. They are ``span`` seconds apart."""
    up = Event("up", 0.0, workers, workers)
    _wait_until_settled(system, up, restarted=False)
    _rest(system, up, span)
    events = [up]
    for kind in (list(ROUND) * rounds)[:-1]:  # after the last join nothing would happen
        before = events[-1].after
        if kind in system.cannot or (kind == "join" and before == workers):
            continue
        after = workers if kind == "join" or (kind in SIGNALS and system.replaces) else workers - 1
        processes = frozenset(system.reader.processes())
        event = Event(kind, _happen(system, kind), before, after, processes)
        _wait_until_settled(system, event, restarted=system.restarts)
        _rest(system, event, span)
        events.append(event)
    return events


def _happen(system: System, kind: str) -> float:
    if kind in SIGNALS:
        return system.strike(SIGNALS[kind])
    return system.join() if kind == "join" else system.leave()


def _wait_until_settled(system: System, event: Event, *, restarted: bool) -> None:
    """Wait for the first step in the event's new size."""

    def goes_on() -> bool:
        system.reader.read()
        found = system.reader.first_step(event.moment, event.after, restarted=restarted)
        event.settled = event.settled if found is None else found
        return found is not None

    wait(goes_on, lambda: f"{system.name}: {event.kind}\n{system.why()}")


def _rest(system: System, event: Event, seconds: float) -> None:
    """Let it train for a while, and long enough for the event's window."""

    def has_rested() -> bool:
        system.reader.read()
        enough = system.reader.number_since(event.settled) > STEPS_AFTER
        return enough and time.monotonic() > event.settled + seconds

    wait(has_rested, lambda: f"{system.name}: steps after {event.kind}\n{system.why()}")


def kill_parts(system: Ours, rounds: int, events: list[Event], span: float) -> None:
    """Kill driver and coordinator; the events are added to the others."""
    for part in PARTS:
        for _ in range(rounds):
            workers = events[-1].after
            event = Event(part, system.kill_part(part), workers, workers)
            time.sleep(PART_SECONDS)
            event.settled = time.monotonic()
            _rest(system, event, span)
            events.append(event)


@contextmanager
def closing(system: System) -> Iterator[System]:
    try:
        yield system
    finally:
        system.close()


# ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────
def rows_of(size: str, found: Figures, system: System, workers: int) -> list[_report.Row]:
    def row(case: str, unit: str, runs: Sequence[float]) -> list[_report.Row]:
        return [_report.row(f"{size}: {case}", system.name, unit, runs)] if runs else []

    rows = row(f"steady step, {workers} workers", "ms", [1e3 * found.step(workers)])
    rows += row("no event (A/A): p99, as below", "s", found.without(workers))
    for kind in ("join", "leave"):
        rows += row(f"{kind}: p99 around it less p99 without", "s", found.excesses(kind))
    for kind in SIGNALS:
        rows += row(f"{kind} to the next step", "s", found.gaps(kind))
    rows += row("the joining one's first step, from the decision", "s", found.first_steps())
    for part in PARTS:
        rows += row(f"{part} killed: pause", "steps", [each / found.step(workers) for each in found.pauses(part)])
    for kind in ("join", "leave", *SIGNALS):
        rows += row(f"{kind}: throughput lost in {2 * found.span:.0f} s", "%", found.throughput_lost(kind))
    for kind in ("join", "leave", *SIGNALS):
        accounts = found.accounts(kind, system.account)
        rows += row(f"{kind}: samples lost", "samples", [account.lost for account in accounts])
        rows += row(f"{kind}: samples repeated", "samples", [account.repeated for account in accounts])
    return rows


def targets_of(size: str, found: Figures, workers: int) -> list[_report.Target]:
    step = found.step(workers)
    wanted: list[tuple[str, float, Sequence[float], str]] = [
        ("join, p99 less p99 without", MOST_JOIN, [each / step for each in found.excesses("join")], "steps"),
        ("leave, p99 less p99 without", MOST_LEAVE, [each / step for each in found.excesses("leave")], "steps"),
    ]
    for kind in SIGNALS:
        most = MOST_STRIKE_STEPS * step + MOST_STRIKE_SECONDS
        wanted.append((f"{kind} to the next step", most, found.gaps(kind), "s"))
    wanted.append(("the joining one's first step, from the decision", MOST_FIRST_STEP, found.first_steps(), "s"))
    for part in PARTS:
        pauses = [each / step for each in found.pauses(part)]
        wanted.append((f"{part} killed, pause", MOST_PART, pauses, "steps"))
    return [_target(f"{size}: {what}", most, runs, unit) for what, most, runs, unit in wanted if runs]


def _target(what: str, most: float, runs: Sequence[float], unit: str) -> _report.Target:
    if len(runs) < _bound.FEWEST:
        value, how = max(runs), f"largest of {len(runs)}"
    else:
        value, how = _bound.of_median(runs), "95 % bound of the median"
    return _report.Target(f"{what}, {how}", most, value, unit, value <= most)


# ── peers ─────────────────────────────────────────────────────────────────────────────────────────────────────
def version_of_torchft(python: str) -> str:
    words = (
        "import importlib.metadata as m; "
        "print(*(f'{d.name} {d.version}' for d in m.distributions() if d.name.startswith('torchft')))"
    )
    return subprocess.run([python, "-c", words], capture_output=True, text=True, check=True).stdout.strip()


def why_no_pccl(python: str) -> str:
    """What an interpreter says of PCCL."""
    asked = subprocess.run([python, "-W", "ignore", "-c", "import pccl"], capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        return "it can be imported, but no training for it is written"
    last = asked.stderr.strip().rpartition("\n")[2]
    return "not installed" if "No module named 'pccl'" in last else f"cannot be imported: {last}"


def main() -> None:
    parser = _report.arguments(__doc__)
    parser.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="the interpreter with torchft")
    parser.add_argument("--workers", type=int, default=2, metavar="W", help="the larger world size (default: 2)")
    parser.add_argument(
        "--rounds", type=int, metavar="N", help=f"rounds of events (ours {ROUNDS}, peers {PEER_ROUNDS})"
    )
    parser.add_argument("--size", choices=STEP_MS, help="only this network")
    parser.add_argument("--who", choices=("ours", "torchrun", "torchft"), help="only this system")
    chosen = parser.parse_args()
    if chosen.workers < 2:
        parser.error(f"--workers is {chosen.workers}; one of at least 2 can leave")
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error(f"--rounds is {chosen.rounds}; it takes at least 1")
    if shutil.which(chosen.peers) is None:
        parser.error(f"--peers is {chosen.peers}; there is no such interpreter")
    os.environ["PYTHONPATH"] = str(RUNNERS)
    span = QUICK_SPAN if chosen.quick else SPAN
    sizes = [chosen.size] if chosen.size else ["small"] if chosen.quick else list(STEP_MS)
    has = has_torchft(chosen.peers)
    absent = [f"PCCL: {why_no_pccl(chosen.peers)}"]
    absent.append(version_of_torchft(chosen.peers) if has else "torchft: not installed; --help says how to install it")
    rows: list[_report.Row] = []
    targets: list[_report.Target] = []
    with tempfile.TemporaryDirectory(prefix="edt-resize-", ignore_cleanup_errors=True) as place:
        for size in sizes:
            starts: dict[str, Callable[[Path], System]] = {
                "ours": lambda folder, size=size: Ours(folder, size, chosen.workers),  # type: ignore[misc]
                "torchrun": lambda folder, size=size: Torchrun(folder, size, chosen.workers),  # type: ignore[misc]
            }
            if has:
                starts["torchft"] = lambda folder, size=size: Torchft(  # type: ignore[misc]
                    folder, size, chosen.workers, chosen.peers
                )
            for who, start in starts.items():
                if chosen.who not in (None, who):
                    continue
                rounds = chosen.rounds or (1 if chosen.quick else ROUNDS if who == "ours" else PEER_ROUNDS)
                with closing(start(Path(place) / f"{who}-{size}")) as system:
                    events = events_of(system, chosen.workers, rounds, span)
                    if isinstance(system, Ours) and size == "small":
                        kill_parts(system, 1 if chosen.quick else PART_ROUNDS, events, span)
                found = Figures(system.reader, events, span)
                label = f"{STEP_MS[size]} ms"
                rows += rows_of(label, found, system, chosen.workers)
                absent += [f"{system.name}, {label}, {what}: {why}" for what, why in system.cannot.items()]
                if isinstance(system, Ours):
                    targets += targets_of(label, found, chosen.workers)
    _report.finish("resize_pause", rows, targets, chosen.json, absent)


if __name__ == "__main__":
    main()
