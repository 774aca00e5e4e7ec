"""A picture of a run: time to the right, the GPUs of the cluster upwards, one colour for each application."""

from __future__ import annotations

import html
from collections.abc import Sequence

from edt_scheduler.simulate.cluster import Run

_COLOURS = ("#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#7a4fd0", "#d6457f", "#5b6b7f", "#00a0b0")
_WIDTH, _LEFT, _TOP, _ROW, _GAP = 1200, 56, 40, 5, 1


def gantt(run: Run, title: str) -> str:
    """An SVG picture of which job held which GPU when.

    Args:
        run: a run that has ended.
        title: what it shows.
    """
    jobs = {job.name: job for job in run.jobs}
    end = max(job.ended or 0.0 for job in run.jobs)
    applications = sorted({job.application.name for job in run.jobs})
    colour = {name: _COLOURS[place % len(_COLOURS)] for place, name in enumerate(applications)}
    rows = run.rules.nodes * run.rules.gpus
    height = _TOP + rows * _ROW + run.rules.nodes * _GAP + 30
    scale = (_WIDTH - _LEFT - 10) / end
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{_LEFT}" y="16" font-size="13" font-weight="600">{html.escape(title)}</text>',
    ]
    for place, name in enumerate(applications):
        left = _LEFT + place * 120
        parts.append(f'<rect x="{left}" y="23" width="10" height="10" fill="{colour[name]}"/>')
        parts.append(f'<text x="{left + 14}" y="32">{html.escape(name)}</text>')
    for name, gpu, begin, until in _bars(run, end):
        top = _TOP + gpu * _ROW + gpu // run.rules.gpus * _GAP
        width = max(0.4, (until - begin) * scale)
        parts.append(
            f'<rect x="{_LEFT + begin * scale:.1f}" y="{top}" width="{width:.1f}" height="{_ROW - 0.6}" '
            f'fill="{colour[jobs[name].application.name]}"><title>{html.escape(name)}</title></rect>'
        )
    for hour in range(int(end // 3600) + 1):
        if hour % max(1, int(end // 3600 // 12)) == 0:
            parts.append(f'<text x="{_LEFT + hour * 3600 * scale:.0f}" y="{height - 10}">{hour} h</text>')
    for node in range(run.rules.nodes):
        middle = _TOP + node * (run.rules.gpus * _ROW + _GAP) + run.rules.gpus * _ROW / 2 + 4
        parts.append(f'<text x="6" y="{middle:.0f}">node {node}</text>')
    return "\n".join([*parts, "</svg>"])


def _bars(run: Run, end: float) -> Sequence[tuple[str, int, float, float]]:
    """Job, GPU, begin and end of each time in which a job held a GPU. A job keeps its GPUs of a node where it can."""
    found: list[tuple[str, int, float, float]] = []
    holders: dict[int, tuple[str, float]] = {}
    ends = {job.name: job.ended or end for job in run.jobs}
    for at, allocation in [*run.history, (end, {})]:
        wanted = {(name, node): list(gpus).count(node) for name, gpus in allocation.items() for node in set(gpus)}
        for gpu, (name, since) in sorted(holders.items()):
            key = name, gpu // run.rules.gpus
            if wanted.get(key, 0) > 0:
                wanted[key] -= 1
            else:
                found.append((name, gpu, since, min(at, ends[name])))
                del holders[gpu]
        for (name, node), number in sorted(wanted.items()):
            first = node * run.rules.gpus
            free = [gpu for gpu in range(first, first + run.rules.gpus) if gpu not in holders]
            for gpu in free[:number]:
                holders[gpu] = name, at
    return found
