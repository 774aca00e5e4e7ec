"""A job that has trained, and whose files the platform has removed because of their age."""

from __future__ import annotations

from dataclasses import replace

from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.periodic.retention import remove_folders, remove_old_results
from support.puppets import Puppet
from support.served_api import EXECS, ServedApi

_REMOVED_AT = 1_900_000_000.0  # 2030-03-17


def job_without_files(api: ServedApi) -> tuple[str, str]:
    """A job of ana's on a node of its own, its exec id; and the sentence that its user is told."""
    node = Puppet(api.platform, slots=1).join()
    job = api.submit()
    look(api.platform)
    node.obey()
    (job.model_dir / "weights").write_text("w")
    (job.log_dir / "driver.out").write_text("told\n")
    assert api.client("ana").get(f"{EXECS}/{job.exec_id}/result").status_code == 200
    node.end((job.exec_id, 1), ExitKind.FINISHED)
    settings = api.platform.settings.model_copy(update={"result_days": 7.0})
    later = replace(api.platform, settings=settings, clock=lambda: _REMOVED_AT)
    assert remove_old_results(later) == 1 and remove_folders(later) == 1
    return job.exec_id, (
        f"the results, checkpoints and logs of {job.exec_id} were removed on 2030-03-17, 7 days after its end, "
        "as the administrator set"
    )
