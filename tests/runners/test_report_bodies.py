"""What the bodies of reports may hold, whatever somebody has written into them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edt_contract.attempt import AttemptSpec, DesiredSlot
from edt_contract.encoding import dumps
from edt_contract.reports import BODIES, BODY_BYTES, INT64, ExitKind, Fitted, ReportKind, clean, fit, fit_time
from edt_runner.protocol.data import MicroBatch
from edt_runner.supervisor.agent_link import Spool
from edt_runner.supervisor.engines import EngineEnd


def spec(folder: Path) -> AttemptSpec:
    return AttemptSpec(
        job="edt-1", fence=1, node="n", framework="pytorch", main="main.py", arguments=(), work_dir="", result_dir="",
        log_dir="", checkpoint_dir="", spool_dir=str(folder), socket="", environ={}, seed=1, max_engines=4, threads=1,
        cores=2, grace_seconds=1, token="t",
    )  # fmt: skip


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)
ANY_JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5)
)
NAMES = sorted({name for body in BODIES.values() for name in body.fields})
BODIES_OF_ANY_KIND = ANY_JSON | st.dictionaries(st.sampled_from(NAMES), ANY_JSON)


def test_every_kind_of_report_has_an_entry_whose_needs_it_knows():
    assert set(BODIES) == set(ReportKind), "a new kind needs an entry in reports.BODIES"
    for kind, body in BODIES.items():
        assert set(body.needs) <= set(body.fields), kind
        assert body.burst >= 1 and body.a_minute >= 1


@pytest.mark.parametrize("kind", ReportKind)
def test_no_body_of_any_kind_can_be_longer_than_is_said(kind):
    names = sum(len(name) + len('"": , ') for name in BODIES[kind].fields)
    assert names + sum(field.most for field in BODIES[kind].fields.values()) <= BODY_BYTES


@given(kind=st.sampled_from(ReportKind), body=BODIES_OF_ANY_KIND)
def test_whatever_json_it_is_it_becomes_a_bounded_body_or_none(kind, body):
    fitted = fit(kind, body)
    if fitted.body is None:
        assert fitted.faults
        return
    text = json.dumps(fitted.body, allow_nan=False)
    assert len(text) <= BODY_BYTES and "\\u0000" not in text
    assert fitted.body.keys() <= BODIES[kind].fields.keys()
    assert fit(kind, json.loads(text)) == Fitted(fitted.body), "what fits once fits again, unchanged"


@pytest.mark.parametrize(("told", "kept"), [(5e-324, 0.0), (9e-10, 0.0), (1e-9, 1e-9), (0, 0.0), (1e10, 1e10)])
def test_a_duration_that_no_clock_measures_is_none(told, kept):
    assert fit(ReportKind.PROGRESS, {"seconds": told}) == Fitted({"seconds": kept})
    assert fit(ReportKind.PROGRESS, {"seconds": -1e-12}).body == {}


@given(text=st.text(), most=st.integers(1, 50))
def test_clean_text_is_short_and_can_be_stored(text, most):
    found = clean(text, most)
    assert len(found.encode()) <= most and "\0" not in found


def test_the_longest_texts_and_lists_are_cut_to_what_is_said():
    body = {"allocation": 1, "message": 'ä"\n\0\ud800' * 10_000, "code": 2**31, "signal": 9, "oom": 1}
    fitted = fit(ReportKind.ENGINE_GONE, body)
    assert fitted.body is not None and len(fitted.body["message"].encode()) <= 1000
    assert (fitted.body["signal"], "code" in fitted.body, "oom" in fitted.body) == (9, False, False)
    assert len(fitted.faults) == 2
    metrics = {f"{n}": n for n in range(10_000)} | {"x" * 1000: 1}
    found = fit(ReportKind.PROGRESS, {"metrics": metrics}).body
    assert found is not None and len(found["metrics"]) == 64
    named = fit(ReportKind.RESIZED, {"lost": [*range(1, 9), 2**63, "x", -1, *range(1, 999)]}).body
    assert named is not None and len(named["lost"]) == 253


def test_a_gang_that_holds_all_slots_of_the_largest_node_can_say_its_ports():
    ports = [*range(65535 - 1024, 65536)]  # one for the gang, and one for each of the 1024 slots that the API accepts
    assert fit(ReportKind.PORTS_RESERVED, {"ports": ports}) == Fitted({"ports": ports})
    assert fit(ReportKind.PORTS_RESERVED, {"ports": [1, *ports]}).body is None


def test_a_diverged_loss_is_no_reason_to_drop_a_report():
    body = {"step": 1, "loss": None, "metrics": {"loss": math.nan, "accuracy": 0.5}}
    assert fit(ReportKind.PROGRESS, body).body == {**body, "metrics": {"loss": None, "accuracy": 0.5}}
    assert fit(ReportKind.VALIDATED, body).body == {"step": 1, "metrics": {"loss": None, "accuracy": 0.5}}


def test_an_end_of_a_kind_that_nobody_knows_counts_as_lost():
    assert fit(ReportKind.ATTEMPT_ENDED, {"kind": "?"}).body == {"kind": "lost"}
    assert fit(ReportKind.ATTEMPT_ENDED, {"kind": ExitKind.FINISHED}).body == {"kind": "finished"}


@pytest.mark.parametrize("time", [None, "x", True, -1, 1e300, math.nan, 10**400])
def test_a_time_that_no_calendar_knows_is_now(time):
    assert fit_time(time, 5.0) == 5.0
    assert fit_time(7, 5.0) == 7.0


def test_what_a_supervisor_says_of_an_engine_fits_as_it_is():
    end = EngineEnd(
        DesiredSlot(INT64, "0"),
        ExitKind.LOST,
        None,
        9,
        1.5,
        True,
        "m" * 1000,
        "t" * 9000,
        MicroBatch(1, 2),
        asked=False,
    )
    body = end.report_body()
    assert fit(ReportKind.ENGINE_GONE, body) == Fitted(body)


def test_a_spool_takes_no_report_that_lacks_what_it_needs_and_no_number_for_it(tmp_path):
    spool = Spool(spec(tmp_path))
    spool.append(ReportKind.ENGINE_GONE, {"slot": "0"})
    assert spool.seq == 0
    spool.append(ReportKind.PROGRESS, {"step": 1, "loss": "much"})
    [line] = (tmp_path / "reports.jsonl").read_text().splitlines()
    assert (spool.seq, json.loads(line)["seq"], json.loads(line)["body"]) == (1, 1, {"step": 1})


BESIDE_ENGINES = """
import json, sys
from edt_contract.attempt import AttemptSpec
from edt_contract.reports import ReportKind
from edt_runner.protocol.messages import TrainingReport
from edt_runner.supervisor.elastic import ElasticSupervisor

supervisor = ElasticSupervisor(AttemptSpec.from_json_object(json.loads(sys.argv[1])))
for kind in (*ReportKind, "dance", ""):
    body = {"allocation": 1, "engines": 4, "address": "h:1", "first": 1, "step": 1, "equal": True, "micro_batch": 1}
    body |= {"metrics": {}, "metric": "val_loss", "value": 0.5}
    supervisor._receive(TrainingReport(kind, body))
    supervisor._receive(TrainingReport(kind, {"step": [1]}))
    supervisor._receive(TrainingReport(kind))
"""


def test_what_runs_beside_engines_can_report_on_the_training_and_not_on_processes(tmp_path):
    given = replace(spec(tmp_path), socket=str(tmp_path / "s"))
    subprocess.run([sys.executable, "-c", BESIDE_ENGINES, dumps(given)], check=True, capture_output=True, timeout=60)
    lines = (tmp_path / "reports.jsonl").read_text().splitlines()
    kinds = {ReportKind(json.loads(line)["kind"]) for line in lines}
    own = {ReportKind.STORAGE}  # of which the supervisor tells itself what all that it has heard comes to
    assert kinds == {kind for kind, body in BODIES.items() if body.of_training} - own
    assert not kinds & {ReportKind.ENGINE_GONE, ReportKind.ATTEMPT_ENDED, ReportKind.ENGINE_STARTED}


def test_numbers_go_on_behind_those_that_the_platform_has_though_the_disk_lost_them(tmp_path):
    spool = Spool(replace(spec(tmp_path), last_report_seq=40))
    spool.append(ReportKind.PROGRESS, {"step": 1})
    lines = (tmp_path / "reports.jsonl").read_text().split("\n")
    assert (spool.seq, len(lines) - 1, json.loads(lines[40])["seq"]) == (41, 41, 41)
