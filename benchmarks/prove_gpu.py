"""One page about a machine's GPUs: what OpenEDT promises, and what it costs, seen there. ``make prove-gpu``

machine   GPUs, driver, libraries
digests   two small trainings with one engine; with two, over gloo and over NCCL; through a join, a leave, a SIGKILL
          with a return, and a restart: all digests are equal. How an engine's determinism is set
pauses    the longest gap between two steps when an engine joins; from a SIGKILL to the next step, and to a group over
          NCCL
pcie      what one engine copies between host and GPU in a step, by torch's profiler
speed     steps beside DistributedDataParallel's, with the same determinism and with torch's defaults: one process, and
          one on each GPU if there are several. All compute in turn; ratios are of turns of one round

Two engines share a GPU where there is one. Over NCCL they can do so from NCCL 2.30 on, with
NCCL_MULTI_RANK_GPU_ENABLE=1, which this sets; with an older NCCL the page says so, and the rest is measured over gloo.

--device cpu runs all of it without a GPU, on small networks; in the place of NCCL there is the same exchange over gloo
(EDT_COLLECTIVES=over-gloo). Targets are for GPUs, so they are not judged there.

The exit status is 1 if a digest differs or something could not be measured, and 2 if there is no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import _gpu_digests
import _gpu_machine
import _gpu_pauses
import _gpu_speed
import _report
from _gpu_attempts import RUNNERS, Place
from _gpu_page import Page
from _gpu_speed import Sizes

SECTIONS = ("machine", "digests", "pauses", "pcie", "speed")
BUDGET_SECONDS = 240.0
SHARES = {"digests": 0.4, "pauses": 0.6, "pcie": 0.75, "speed": 1.0}
"""Of the budget, by when a section should be done."""
LEAST_SECONDS = 20.0
"""A section does not begin with less; it would not be done in time."""
SHARING = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0"}
"""For engines that share a GPU over NCCL."""
OVER_GLOO = "collectives over gloo"
ON_GPU, ON_CPU = Sizes(("resnet", "gpt"), 20), Sizes(("resnet-cpu", "gpt-cpu"), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto", help="cpu: without a GPU (default: auto)")
    parser.add_argument("--sections", default=",".join(SECTIONS), metavar="A,B", help="only these (default: all)")
    parser.add_argument("--budget", type=float, default=BUDGET_SECONDS, metavar="SECONDS", help="(default: 240)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write the figures there too")
    options = parser.parse_args()
    sections = options.sections.split(",")
    unknown = [name for name in sections if name not in SECTIONS]
    if unknown:
        parser.error(f"--sections: got {', '.join(unknown)!r}, takes some of {', '.join(SECTIONS)}")
    if not options.budget > 0:
        parser.error(f"--budget: got {options.budget:g}, takes a number of seconds above 0")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(RUNNERS), os.environ.get("PYTHONPATH"))))
    machine = _gpu_machine.ask()
    if options.device == "auto" and not machine.gpus:
        print("torch sees no GPU on this machine; --device cpu shows the same page without one", file=sys.stderr)
        sys.exit(2)
    page = Page()
    with tempfile.TemporaryDirectory(prefix="edt-gpu-", ignore_cleanup_errors=True) as folder:
        prove(page, machine, Path(folder), sections, options)
    _report.write("prove_gpu", page.rows, page.targets, options.json, page.notes)
    missed = [target for target in page.targets if not target.met]
    if page.targets:
        print(f"\n{len(page.targets) - len(missed)} of {len(page.targets)} targets met")
    for failure in page.failures:
        print(f"FAILED: {failure}")
    sys.exit(1 if page.failures else 0)


def prove(
    page: Page, machine: _gpu_machine.Machine, folder: Path, sections: list[str], options: argparse.Namespace
) -> None:
    """Fill the page. A section that fails is named on it, and the others follow."""
    on_gpu = options.device == "auto"
    begun = time.monotonic()
    devices = _gpu_machine.visible(machine) if on_gpu else ["cpu"]
    place = Place(
        folder,
        devices,
        threads=max(1, machine.cores // 8) if on_gpu else 1,
        cores=machine.cores,
        collectives="auto" if on_gpu else "over-gloo",
        over="nccl" if on_gpu else "",
        environ=SHARING if on_gpu and len(devices) < 3 else {},
    )

    collective = True

    def faster(engines: int) -> str:
        if not collective:
            return ""
        if not on_gpu:
            return OVER_GLOO
        return "" if machine.why_no_nccl(engines) else "NCCL"

    worlds = [1, len(devices)] if len(devices) > 1 else [1]
    sizes = ON_GPU if on_gpu else ON_CPU

    def left(name: str) -> float:
        share: float = SHARES[name] * options.budget
        return begun + share - time.monotonic()

    def tell() -> None:
        for name, value in machine.lines():
            page.text(name, value)

    def digests() -> None:
        nonlocal collective
        collective = _gpu_digests.run(page, place, faster=faster(2), why_not=machine.why_no_nccl(2))

    def pauses() -> None:
        three = 3 if faster(3) or not faster(2) else 2
        _gpu_pauses.run(
            page,
            place,
            sizes.networks[0],
            faster=faster(three),
            engines=three,
            seconds=left("pauses"),
            judged=on_gpu,
        )

    def pcie() -> None:
        _gpu_speed.copies(page, place, sizes, judged=on_gpu)

    def speed() -> None:
        for number, workers in enumerate(worlds):
            seconds = left("speed") / (len(worlds) - number)
            _gpu_speed.compare(page, place, sizes, workers=workers, seconds=seconds, judged=on_gpu)

    steps: dict[str, tuple[str, Callable[[], None]]] = {
        "machine": ("what is here", tell),
        "digests": ("SHA-256 of what was trained", digests),
        "pauses": ("of the training of convolutions", pauses),
        "pcie": ("what one engine copies in a step", pcie),
        "speed": ("a step, each process computes in turn", speed),
    }
    for name, (says, run) in steps.items():
        if name not in sections:
            continue
        page.section(name, says)
        if name != "machine" and begun + options.budget - time.monotonic() < LEAST_SECONDS:
            page.failed(name, f"left out: of {options.budget:.0f} s too few are left")
            continue
        try:
            run()
        except (Exception, SystemExit) as error:
            if os.environ.get("EDT_BENCH_TRACE"):
                traceback.print_exc()
            page.failed(name, error)


if __name__ == "__main__":
    main()
