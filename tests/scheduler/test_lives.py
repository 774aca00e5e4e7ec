"""A job's life beyond one run: pauses, more epochs, and jobs that begin from the checkpoints of others."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from edt_contract.attempt import LIFE_PROTOCOL, PROTOCOL
from edt_contract.checkpoints import MANIFEST, STATE, name_of
from edt_contract.gang import GangCommand, Processes
from edt_contract.reports import ExitKind, ReportKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.errors import EpochsInvalid, JobOver, NoSuchJob, NotNow, NotTheOwner, SubmissionInvalid
from edt_scheduler.model.jobs import BEGIN, JobSpec
from edt_scheduler.model.states import JobState, JobStatus, ResizeCause, Role
from edt_scheduler.operations import accounts, execs, history, lives
from edt_scheduler.operations.submitting import StagedSubmission, begin_path, submit_all
from edt_scheduler.periodic.sweeping import sweep_leftovers
from edt_scheduler.plan.state import Blocking
from edt_scheduler.views import JobView, UserView
from support import whole_checkpoints
from support.databases import sqlite_first
from support.puppets import Stage, stage_code

database_url = sqlite_first()
GANG = GangCommand(("{python}", "{main}"), Processes.DEVICE)


def running(stage: Stage, workers: int = 4) -> str:
    """A job that trains on all slots it may have."""
    job = stage.submit(workers=workers)
    stage.settle()
    assert stage.holding()[job] == workers
    return job


def told(stage: Stage, job: str) -> list[str]:
    """The kinds of the job's events."""
    return [event.kind for event in history.events(stage.platform, job, viewer=stage.admin)]


def user(stage: Stage, name: str, role: Role = Role.USER) -> UserView:
    return accounts.add_user(stage.platform, name, "hash", role)


def write_checkpoint(stage: Stage, job: str, offset: int, *, step: int | None = None, state: bytes = b"state") -> Path:
    """What an engine of the job leaves in its folder."""
    folder = stage.platform.settings.checkpoint_directory(job)
    return whole_checkpoints.write_checkpoint(folder, offset, step=step, state=state)


class TestPausing:
    def test_a_paused_job_leaves_its_slots_to_others_and_goes_on_in_another_attempt(self, stage: Stage) -> None:
        node = stage.node(slots=4)
        job = running(stage)
        assert lives.pause(stage.platform, job, viewer=stage.admin).status is JobStatus.PAUSING
        other = stage.submit(workers=4)
        stage.settle()
        assert stage.holding() == {other: 4}
        paused = stage.job(job)
        assert (paused.state, paused.status, paused.paused_by) == (JobState.PENDING, JobStatus.PAUSED, "admin")
        assert paused.waiting is not None
        assert paused.waiting.blocking == Blocking.PAUSED
        assert paused.waiting.reason == "paused by admin; `edt resume` lets it go on"
        node.end((other, 1), ExitKind.FINISHED)
        stage.settle()
        assert stage.holding() == {}
        assert lives.go_on(stage.platform, job, viewer=stage.admin).status is JobStatus.WAITING
        stage.settle()
        assert stage.holding() == {job: 4}
        assert (stage.job(job).fence, stage.job(job).status) == (2, JobStatus.RUNNING)
        resizes = history.resizes(stage.platform, job, viewer=stage.admin)
        assert (ResizeCause.PAUSE, 4, 0) in [(each.cause, each.from_slots, each.to_slots) for each in resizes]
        kinds = told(stage, job)
        assert kinds.index("paused") < kinds.index("resumed")
        assert "waiting" not in kinds

    def test_a_job_that_waits_gets_nothing_while_it_is_paused_and_its_pending_time_stands_still(
        self, stage: Stage
    ) -> None:
        job = stage.submit(pending_timeout=60)
        look(stage.platform)
        lives.pause(stage.platform, job, viewer=stage.admin)
        stage.node()
        stage.settle()
        assert stage.holding() == {}
        stage.clock.pass_(3600)
        assert execs.end_never_started_jobs(stage.platform) == 0
        lives.go_on(stage.platform, job, viewer=stage.admin)
        assert execs.end_never_started_jobs(stage.platform) == 0
        stage.settle()
        assert stage.holding() == {job: 4}

    def test_a_job_that_is_resumed_before_its_engines_have_left_starts_again(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)
        node.obedient = False
        lives.pause(stage.platform, job, viewer=stage.admin)
        stage.settle()
        assert stage.job(job).status is JobStatus.PAUSING
        lives.go_on(stage.platform, job, viewer=stage.admin)
        node.obedient = True
        stage.settle()
        assert (stage.holding(), stage.job(job).fence) == ({job: 4}, 2)

    def test_a_gang_ends_whole_and_starts_again(self, stage: Stage) -> None:
        stage.node("n1", slots=2)
        stage.node("n2", slots=2)
        job = stage.submit(workers=4, gang=GANG)
        stage.settle()
        lives.pause(stage.platform, job, viewer=stage.admin)
        stage.settle()
        assert (stage.holding(), stage.job(job).status) == ({}, JobStatus.PAUSED)
        lives.go_on(stage.platform, job, viewer=stage.admin)
        stage.settle()
        assert (stage.holding(), stage.job(job).fence) == ({job: 4}, 2)

    def test_what_cannot_be_paused_or_resumed_is_said(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)
        with pytest.raises(NotNow, match=f"{job} is not paused"):
            lives.go_on(stage.platform, job, viewer=stage.admin)
        lives.pause(stage.platform, job, viewer=stage.admin)
        with pytest.raises(NotNow, match=f"{job} is paused already, by admin"):
            lives.pause(stage.platform, job, viewer=stage.admin)
        lives.go_on(stage.platform, job, viewer=stage.admin)
        node.report((job, 1), ReportKind.CHECKPOINTED, step=40)
        execs.stop(stage.platform, job, viewer=stage.admin)
        with pytest.raises(NotNow, match="is being stopped"):
            lives.pause(stage.platform, job, viewer=stage.admin)
        stage.settle()
        with pytest.raises(JobOver, match=rf"{job} is over \(KILLED\): there is nothing to pause"):
            lives.pause(stage.platform, job, viewer=stage.admin)
        with pytest.raises(JobOver, match=f"--resume-from {job}` goes on from its checkpoint of step 40"):
            lives.go_on(stage.platform, job, viewer=stage.admin)

    def test_a_job_whose_training_has_ended_is_not_paused(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)
        for allocation in list(node.running[job, 1]):
            node.gone((job, 1), allocation, ExitKind.FINISHED)
        with pytest.raises(NotNow, match=f"{job} has just ended its training: .* cannot be paused"):
            lives.pause(stage.platform, job, viewer=stage.admin)
        assert stage.job(job).status is JobStatus.RUNNING
        node.end((job, 1), ExitKind.FINISHED)
        assert stage.job(job).state is JobState.FINISHED

    def test_a_job_that_is_over_is_not_paused_any_more(self, stage: Stage) -> None:
        node = stage.node()
        ended, stopped = running(stage), stage.submit()
        node.obedient = False
        for job in (ended, stopped):
            lives.pause(stage.platform, job, viewer=stage.admin)
        execs.stop(stage.platform, stopped, viewer=stage.admin)
        node.end((ended, 1), ExitKind.FINISHED)
        found = [stage.job(job) for job in (ended, stopped)]
        assert [each.state for each in found] == [JobState.FINISHED, JobState.KILLED]
        assert [(each.paused_at, each.paused_by) for each in found] == [(None, None)] * 2

    def test_a_paused_job_is_paused_though_a_lost_node_has_its_slots(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)
        node.obedient = False
        lives.pause(stage.platform, job, viewer=stage.admin)
        stage.settle()
        assert stage.job(job).status is JobStatus.PAUSING
        node.cut = True
        look(stage.platform, stage.silence("n1"))
        paused = stage.job(job)
        assert (paused.state, paused.slots, paused.status) == (JobState.PENDING, 4, JobStatus.PAUSED)

    def test_only_its_owner_and_an_admin_may(self, stage: Stage) -> None:
        ana, bob, vera = user(stage, "ana"), user(stage, "bob"), user(stage, "vera", Role.VIEWER)
        job = stage.submit(owner=ana)
        for change in (lives.pause, lives.go_on):
            with pytest.raises(NoSuchJob):
                change(stage.platform, job, viewer=bob)
            with pytest.raises(NotTheOwner):
                change(stage.platform, job, viewer=vera)
        with pytest.raises(NotTheOwner):
            lives.extend(stage.platform, job, epochs=9, viewer=vera)
        assert lives.pause(stage.platform, job, viewer=ana).paused_by == "ana"
        lives.go_on(stage.platform, job, viewer=stage.admin)


class TestExtending:
    def test_a_running_job_goes_on_with_the_epochs_in_its_next_attempt(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)
        assert node.fetch()[job, 1].spec.protocol == PROTOCOL
        lives.extend(stage.platform, job, epochs=5, viewer=stage.admin)
        before = node.fetch()[job, 1]
        assert (before.spec.epochs, before.desired.slots) == (0, ())
        stage.settle()
        spec = node.fetch()[job, 2].spec
        assert (spec.epochs, spec.protocol, stage.holding()) == (5, LIFE_PROTOCOL, {job: 4})
        resizes = history.resizes(stage.platform, job, viewer=stage.admin)
        assert ResizeCause.EXTEND in [each.cause for each in resizes]
        lives.extend(stage.platform, job, epochs=5, viewer=stage.admin)  # once more is the same
        stage.settle()
        assert (stage.job(job).fence, told(stage, job).count("extended")) == (2, 1)

    def test_a_job_that_waits_or_is_paused_has_them_noted(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)
        lives.pause(stage.platform, job, viewer=stage.admin)
        stage.settle()
        assert lives.extend(stage.platform, job, epochs=7, viewer=stage.admin).wanted_epochs == 7
        stage.settle()
        assert stage.holding() == {}
        lives.go_on(stage.platform, job, viewer=stage.admin)
        stage.settle()
        assert node.fetch()[job, 2].spec.epochs == 7

    def test_more_epochs_than_were_done_are_asked_for_and_others_than_there_are(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)  # two epochs of 50 steps
        node.report((job, 1), ReportKind.PROGRESS, step=99, steps_total=100, epoch=2, epochs=2)
        with pytest.raises(EpochsInvalid, match=f"got 1, takes more than the 1 that {job} has done"):
            lives.extend(stage.platform, job, epochs=1, viewer=stage.admin)
        with pytest.raises(EpochsInvalid, match="got 2, which is what edt-1 has anyway"):
            lives.extend(stage.platform, job, epochs=2, viewer=stage.admin)
        with pytest.raises(EpochsInvalid, match="got 0, takes a whole number from 1"):
            lives.extend(stage.platform, job, epochs=0, viewer=stage.admin)
        gang = stage.submit(workers=1, gang=GANG)
        with pytest.raises(NotNow, match="is a gang: only its own script knows its epochs"):
            lives.extend(stage.platform, gang, epochs=3, viewer=stage.admin)

    def test_a_training_that_ends_before_they_reach_it_says_so(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)
        node.obedient = False
        lives.extend(stage.platform, job, epochs=5, viewer=stage.admin)
        node.end((job, 1), ExitKind.FINISHED)
        stage.settle()
        ended = stage.job(job)
        assert ended.state is JobState.FINISHED
        assert ended.message == (
            "its training had ended before it could have 5 epochs: `edt extend edt-1 --epochs 5` goes on in a new job"
        )

    def test_a_training_that_ends_with_the_epochs_that_it_was_given_last_says_nothing_of_others(
        self, stage: Stage
    ) -> None:
        node = stage.node()
        job = running(stage)
        node.obedient = False
        lives.extend(stage.platform, job, epochs=5, viewer=stage.admin)
        lives.extend(stage.platform, job, epochs=2, viewer=stage.admin)  # those of its script
        node.report((job, 1), ReportKind.PROGRESS, step=100, steps_total=100, epoch=2, epochs=2)
        node.end((job, 1), ExitKind.FINISHED)
        stage.settle()
        ended = stage.job(job)
        assert (ended.state, ended.wanted_epochs, ended.message) == (JobState.FINISHED, 2, None)

    def test_a_loop_of_its_own_goes_on_with_the_epochs_of_its_script(self, stage: Stage) -> None:
        node = stage.node()
        job = stage.submit()
        look(stage.platform)
        for item in node.fetch().values():
            node.report((job, item.spec.fence), ReportKind.ATTEMPT_STARTED, pid=1)
        assert (stage.job(job).state, stage.job(job).engines) == (JobState.RUNNING, None)
        with pytest.raises(NotNow, match=f"{job} has not said that its training is elastic: only its script"):
            lives.extend(stage.platform, job, epochs=5, viewer=stage.admin)
        assert stage.job(job).wanted_epochs is None
        assert node.fetch()[job, 1].desired.slots
        node.report((job, 1), ReportKind.ENGINES_KNOWN, engines=4, steps_total=100, epochs=2)
        assert lives.extend(stage.platform, job, epochs=5, viewer=stage.admin).wanted_epochs == 5

    def test_a_job_whose_engines_have_finished_is_extended_when_it_is_over(self, stage: Stage) -> None:
        node = stage.node()
        job = running(stage)
        for allocation in list(node.running[job, 1]):
            node.gone((job, 1), allocation, ExitKind.FINISHED)
        with pytest.raises(NotNow, match="has just ended its training"):
            lives.extend(stage.platform, job, epochs=5, viewer=stage.admin)
        node.end((job, 1), ExitKind.FINISHED)
        stage.settle()
        with pytest.raises(JobOver, match="a new job can go on"):
            lives.extend(stage.platform, job, epochs=5, viewer=stage.admin)


def begun(stage: Stage, source: str, owner: UserView | None = None, **changes: object) -> JobView:
    """A new job of ``owner`` that begins from the checkpoint of ``source``."""
    staged, owner = stage_code(stage.platform), owner or stage.admin
    begin = lives.stage_checkpoint(stage.platform, source, backend="pytorch", viewer=owner, staged=staged)
    values = {"framework": "edtPyTorch", "model_main": "main.py", "args_verbatim": "x", "app_name": "x", **changes}
    (found,) = submit_all(stage.platform, [StagedSubmission(owner, JobSpec(**values), staged, begin=begin)])  # type: ignore[arg-type]
    assert isinstance(found, JobView)
    return found


class TestBeginning:
    def test_a_new_job_gets_a_copy_of_the_newest_whole_checkpoint_and_what_its_bits_depend_on(
        self, stage: Stage
    ) -> None:
        node = stage.node()
        source = running(stage)
        write_checkpoint(stage, source, 20, step=18)
        torn = write_checkpoint(stage, source, 30)
        (torn / STATE).write_bytes(b"torn!")
        job = begun(stage, source)
        before = stage.job(source)
        assert (job.resumed_from, job.resumed_step) == (source, 18)
        assert (job.seed, job.threads) == (before.seed, before.threads)
        copied = job.directory / BEGIN / name_of(20)
        assert (copied / STATE).read_bytes() == b"state"
        original = stage.platform.settings.checkpoint_directory(source) / name_of(20)
        assert (copied / STATE).stat().st_ino != (original / STATE).stat().st_ino
        assert [path.name for path in (job.directory / BEGIN).iterdir()] == [name_of(20)]
        assert list(stage.platform.settings.staged.iterdir()) == []
        events = history.events(stage.platform, job.exec_id, viewer=stage.admin)
        assert events[0].message == f"begins from the checkpoint of {source} at step 18"
        stage.settle()
        spec = node.fetch()[job.exec_id, 1].spec
        assert (spec.begin_from, spec.begin_dir, spec.protocol) == (source, str(job.directory / BEGIN), LIFE_PROTOCOL)

    def test_its_own_seed_wins(self, stage: Stage) -> None:
        source = stage.submit()
        write_checkpoint(stage, source, 20)
        assert begun(stage, source, environ={"EDT_SEED": "77"}).seed == 77

    def test_a_submit_that_makes_no_job_leaves_no_copy_in_a_jobs_folder(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source = stage.submit()
        write_checkpoint(stage, source, 20)
        staged = stage_code(stage.platform)
        begin = lives.stage_checkpoint(stage.platform, source, backend="pytorch", viewer=stage.admin, staged=staged)
        monkeypatch.setattr("edt_scheduler.store.jobs.add", lambda *_: 1 / 0)
        spec = JobSpec("edtPyTorch", "main.py", "x", "x")
        (found,) = submit_all(stage.platform, [StagedSubmission(stage.admin, spec, staged, begin=begin)])
        assert isinstance(found, ZeroDivisionError)
        assert [path.name for path in stage.platform.settings.jobs.iterdir()] == [source]
        assert (begin_path(staged) / name_of(20) / STATE).exists()  # the caller removes it

    def test_what_has_no_checkpoint_for_this_job_is_said(self, stage: Stage) -> None:
        node = stage.node()
        ana, bob = user(stage, "ana"), user(stage, "bob")
        source = stage.submit(owner=ana)
        staged = stage.platform.settings.staged / "new"

        def refused(name: str, viewer: UserView, backend: str = "pytorch") -> str:
            with pytest.raises(SubmissionInvalid) as error:
                lives.stage_checkpoint(stage.platform, name, backend=backend, viewer=viewer, staged=staged)
            assert not begin_path(staged).exists()
            return str(error.value)

        assert refused(source, ana) == f"--resume-from: {source} has no checkpoint yet"
        write_checkpoint(stage, source, 20)
        assert refused(source, bob).startswith(f"--resume-from: there is no job '{source}'")
        assert refused("edt-99", ana).startswith("--resume-from: there is no job 'edt-99'")
        assert (
            refused(source, ana, "tensorflow")
            == f"--resume-from: {source} trains with pytorch, this job with tensorflow"
        )
        gang = stage.submit(workers=1, gang=GANG)
        assert "is a gang, of which the platform keeps no checkpoint" in refused(gang, stage.admin)
        stage.settle()
        failed = stage.submit(workers=1)
        stage.settle()
        node.end((failed, 1), ExitKind.SCRIPT_ERROR)
        stage.settle()
        assert "has no checkpoint: it ended before its first one" in refused(failed, stage.admin)

    @pytest.mark.parametrize("step", [10**30, True, -1, "36"])
    def test_a_step_that_no_column_holds_is_not_taken_from_a_manifest(self, stage: Stage, step: object) -> None:
        source = stage.submit()
        write_checkpoint(stage, source, 20, step=step)  # type: ignore[arg-type]  # a job may write anything
        job = begun(stage, source)
        assert (job.resumed_from, job.resumed_step) == (source, None)

    def test_a_manifest_that_is_no_manifest_is_not_read_and_the_checkpoint_before_is_taken(self, stage: Stage) -> None:
        source = stage.submit()
        write_checkpoint(stage, source, 10)
        huge = write_checkpoint(stage, source, 20)
        os.truncate(huge / MANIFEST, 100 << 30)  # sparse
        assert begun(stage, source).resumed_step == 10

    def test_a_disk_with_too_little_room_is_not_filled(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        source = stage.submit()
        write_checkpoint(stage, source, 20)
        monkeypatch.setattr("edt_scheduler.home.copying.RESERVE_BYTES", 1 << 62)
        with pytest.raises(OSError) as error:
            begun(stage, source)
        assert error.value.errno == errno.ENOSPC
        assert [path.name for path in stage.platform.settings.staged.glob("*.begin")] == []

    def test_links_pipes_and_folders_in_place_of_files_are_not_followed(self, stage: Stage, tmp_path: Path) -> None:
        """A job's own code can put them there, and the platform may read more than it."""
        source = stage.submit()
        secret = tmp_path / "secret"
        secret.write_text("secret")
        whole = write_checkpoint(stage, source, 10)
        linked = write_checkpoint(stage, source, 20, state=b"secret")
        (linked / STATE).unlink()
        (linked / STATE).symlink_to(secret)
        piped = write_checkpoint(stage, source, 30)
        (piped / STATE).unlink()
        os.mkfifo(piped / STATE)
        (whole.parent / name_of(40)).symlink_to(linked)
        filled = write_checkpoint(stage, source, 50)
        (filled / STATE).unlink()
        (filled / STATE).mkdir()
        job = begun(stage, source)
        assert [path.name for path in (job.directory / BEGIN).iterdir()] == [name_of(10)]


class TestNewJobs:
    """Of jobs that are over: ``edt extend``."""

    def over(self, stage: Stage, **changes: object) -> str:
        node = stage.node()
        job = stage.submit(workers=2, arguments=("--lr", "0.1"), **changes)
        stage.settle()
        write_checkpoint(stage, job, 100)
        node.end((job, 1), ExitKind.FINISHED, step=100)
        stage.settle()
        return job

    def extended(self, stage: Stage, job: str, **environ: str) -> JobView:
        staged = stage.platform.settings.staged / "new"
        made = lives.as_new_job(stage.platform, job, epochs=4, environ=environ, viewer=stage.admin, staged=staged)
        (found,) = submit_all(stage.platform, [StagedSubmission(stage.admin, made.spec, staged, begin=made.begin)])
        assert isinstance(found, JobView)
        return found

    def test_the_same_code_and_arguments_go_on_with_more_epochs(self, stage: Stage) -> None:
        job = self.over(stage, model_dir="absent")
        code = stage.job(job).work_dir
        (code / "__pycache__").mkdir()
        (code / "link").symlink_to("main.py")
        os.mkfifo(code / "pipe")
        new = self.extended(stage, job)
        before = stage.job(job)
        assert (new.resumed_from, new.wanted_epochs, new.seed) == (job, 4, before.seed)
        assert (new.num_worker, new.framework, new.app_name) == (2, before.framework, before.app_name)
        assert [path.name for path in new.work_dir.iterdir()] == ["main.py"]
        stage.settle()
        spec = stage.puppets[0].fetch()[new.exec_id, 1].spec
        assert (spec.arguments, spec.epochs, spec.begin_from) == (("--lr", "0.1"), 4, job)

    def test_a_main_script_that_the_job_has_replaced_by_a_link_is_not_followed(
        self, stage: Stage, tmp_path: Path
    ) -> None:
        job = self.over(stage)
        (tmp_path / "secret").write_text("secret")
        script = stage.job(job).work_dir / "main.py"
        script.unlink()
        script.symlink_to(tmp_path / "secret")
        with pytest.raises(SubmissionInvalid, match=rf"^job: the code of {job} has no file main\.py any more"):
            self.extended(stage, job)

    def test_code_that_was_copied_is_no_abandoned_upload_however_old_the_job_is(self, stage: Stage) -> None:
        job = self.over(stage)
        os.utime(stage.job(job).work_dir, (0, 0))
        staged = stage.platform.settings.staged / "new"
        lives.as_new_job(stage.platform, job, epochs=4, environ={}, viewer=stage.admin, staged=staged)
        sweep_leftovers(stage.platform)
        assert (staged / "main.py").exists()
        assert begin_path(staged).exists()

    def test_variables_whose_values_are_gone_are_asked_for_but_not_the_seed(self, stage: Stage) -> None:
        given = {"KEY": "secret", "EDT_SEED": "5"}
        options = tuple(("--msd-env", f"{name}=****") for name in given)
        job = self.over(stage, environ=given, options=options)
        with pytest.raises(SubmissionInvalid, match=f"{job} was given KEY, whose values .* give them again, -e KEY=…"):
            self.extended(stage, job)
        with pytest.raises(SubmissionInvalid, match=f"{job} was not given OTHER"):
            self.extended(stage, job, KEY="secret", OTHER="x")
        new = self.extended(stage, job, KEY="secret")
        stage.settle()
        environ = stage.puppets[0].fetch()[new.exec_id, 1].spec.environ
        assert (environ["KEY"], environ["EDT_SEED"], new.seed) == ("secret", "5", 5)

    def test_a_job_that_was_stopped_may_have_the_rest_of_its_epochs(self, stage: Stage) -> None:
        node = stage.node()
        job = stage.submit(workers=2)
        stage.settle()
        node.report((job, 1), ReportKind.PROGRESS, step=60, steps_total=100, epoch=2, epochs=2)
        write_checkpoint(stage, job, 60)
        execs.stop(stage.platform, job, viewer=stage.admin)
        stage.settle()
        staged = stage.platform.settings.staged / "new"
        made = lives.as_new_job(stage.platform, job, epochs=2, environ={}, viewer=stage.admin, staged=staged)
        assert (made.spec.wanted_epochs, made.begin.step) == (2, 60)

    def test_as_many_epochs_as_were_done_are_refused(self, stage: Stage) -> None:
        job = self.over(stage)
        staged = stage.platform.settings.staged / "new"
        with pytest.raises(EpochsInvalid, match="got 2, takes more than the 2"):
            lives.as_new_job(stage.platform, job, epochs=2, environ={}, viewer=stage.admin, staged=staged)


class TestKept:
    def test_a_job_that_was_stopped_or_has_failed_says_up_to_which_step_it_is_kept(self, stage: Stage) -> None:
        node = stage.node(slots=3)
        stopped, failed, finished = (stage.submit(workers=1) for _ in range(3))
        stage.settle()
        for job in (stopped, failed, finished):
            node.report((job, 1), ReportKind.CHECKPOINTED, step=40)
        assert stage.job(stopped).kept is None
        execs.stop(stage.platform, stopped, viewer=stage.admin)
        node.end((failed, 1), ExitKind.SCRIPT_ERROR, message="ValueError: no")
        node.end((finished, 1), ExitKind.FINISHED)
        stage.settle()
        for job in (stopped, failed):
            said = f"its training is kept up to step 40 of 100: `edt submit … --resume-from {job}` goes on from there"
            assert stage.job(job).kept == said
        assert stage.job(finished).kept is None
