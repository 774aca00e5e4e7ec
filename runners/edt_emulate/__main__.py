"""``python -m edt_emulate TRACE script.py [arguments…]``: the program that ``edt emulate`` starts.

Options come before TRACE. All arguments after the script go to the script. Exit status: 0; 1 if a training failed; 2
for wrong usage or a trace that cannot be used; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from edt_emulate.emulator import EmulationRequest, Emulator, TrialFailed
from edt_emulate.traces import ENDINGS, Options
from edt_runner.errors import UsageError
from edt_runner.lr_scaling.emulation import rule_named

DEFAULT_RULES = ("constant", "linear", "sqrt", "adascale")
OWN_RULE = "script"
"""Name of the rule that the script itself uses, in --rule."""
_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one emulation; returns the exit status. ``arguments``: the command line; None: that of this process."""
    given = _parser().parse_args(arguments)
    try:
        return Emulator(_request(given)).run()
    except (UsageError, TrialFailed) as error:
        print(f"edt emulate: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    except KeyboardInterrupt:
        return _INTERRUPTED


def _request(given: argparse.Namespace) -> EmulationRequest:
    names = list(dict.fromkeys(given.rule or DEFAULT_RULES))
    for name in names:
        if name != OWN_RULE:
            rule_named(name)
    if not given.script.is_file():
        raise UsageError(f"script: got {given.script}, takes a Python file that calls FabricModel.train()")
    options = Options(given.engines_max, given.unit, given.step_seconds, given.column, given.trace_end)
    return EmulationRequest(
        trace=given.trace,
        options=options,
        command=(str(given.script), *given.arguments),
        rules=tuple((name, None if name == OWN_RULE else name) for name in names),
        metric=given.metric,
        picture=None if given.picture in ("", "-") else Path(given.picture),
        json=given.json,
        keep=given.keep,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="edt emulate", allow_abbrev=False)
    parser.add_argument("--rule", action="append")
    parser.add_argument("--engines-max", type=_count)
    parser.add_argument("--unit", type=_count, default=1)
    parser.add_argument("--step-seconds", type=_seconds)
    parser.add_argument("--column")
    parser.add_argument("--trace-end", choices=ENDINGS)
    parser.add_argument("--metric")
    parser.add_argument("--picture", default="emulation.png")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("trace", type=Path, metavar="TRACE")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"got {text}, takes a whole number, at least 1")
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"got {text}, takes a number of seconds above 0")
    return value


if __name__ == "__main__":
    sys.exit(main())
