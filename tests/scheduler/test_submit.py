"""Taking jobs, showing them, and taking them away."""

from __future__ import annotations

import json
import math
import secrets
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from edt_contract.reports import ExitKind
from edt_scheduler.decide.reconcile import look
from edt_scheduler.errors import (
    LastAdmin,
    NoSuchJob,
    NoSuchUser,
    PasswordChanged,
    SubmissionInvalid,
    UserExists,
    UserInvalid,
)
from edt_scheduler.home import lost_found
from edt_scheduler.model.idempotency import IdempotentRequest
from edt_scheduler.model.jobs import JobFilter, JobOrder, JobSpec
from edt_scheduler.model.states import JobState, Role
from edt_scheduler.operations import accounts, execs, history
from edt_scheduler.periodic.retention import remove_folders
from edt_scheduler.periodic.sweeping import Leftovers
from edt_scheduler.platform import Platform
from edt_scheduler.store import failures, reservations, resizes, tables
from edt_scheduler.views import JobPage, UserView
from support.databases import SQLITE_FIRST
from support.puppets import Stage, stage_code


class TestSubmit:
    def test_a_submitted_job_has_its_row_its_code_and_its_folders(self, stage: Stage) -> None:
        job = stage.submitted(workers=3, worker_device_num=2)
        assert (job.exec_id, job.state, job.owner) == ("edt-1", JobState.SUBMITTED, "admin")
        assert (job.work_dir / "main.py").read_text() == "print('hello')\n"
        assert {path.name for path in job.directory.iterdir()} == {
            "_submitted_code",
            "checkpoint",
            "log",
            "model",
            "spool",
        }
        assert list(stage.platform.settings.staged.iterdir()) == []

    def test_a_submit_that_does_not_commit_leaves_no_job_and_its_folder_is_set_aside(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("edt_contract.durable.sync", die)
            with pytest.raises(KeyboardInterrupt):
                stage.submit()
        assert list(execs.jobs(stage.platform, viewer=stage.admin)) == []
        Leftovers(stage.platform).sweep()
        assert (stage.platform.settings.jobs / "edt-1").is_dir(), "who made it may be about to write its job"
        stage.clock.pass_(reservations.KEPT_SECONDS)
        Leftovers(stage.platform).sweep()
        assert list(stage.platform.settings.jobs.iterdir()) == []
        (entry,) = lost_found.entries(stage.platform.settings)
        assert (entry.job, entry.moved_at) == ("edt-1", stage.clock.now)
        assert "nothing has run in it" in entry.why
        upload = stage.platform.settings.lost_found / entry.name / "edt-1" / "_submitted_code"
        assert [path.name for path in upload.iterdir()] == ["main.py"]

    def test_a_submit_that_the_disk_refuses_leaves_nothing(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        staged = stage_code(stage.platform)
        spec = JobSpec("edtPyTorch", "main.py", "", "app")
        with monkeypatch.context() as patch:
            patch.setattr("edt_contract.durable.sync", refuse)
            with pytest.raises(OSError, match="No space"):
                execs.submit(stage.platform, owner=stage.admin, spec=spec, staged=staged)
        assert list(stage.platform.settings.jobs.iterdir()) == []
        assert (staged / "main.py").exists(), "it is the caller's"
        with stage.platform.database.snapshot() as tx:
            assert not reservations.held(tx)
        assert execs.submit(stage.platform, owner=stage.admin, spec=spec, staged=staged).exec_id == "edt-2"

    @pytest.mark.parametrize("where", ["jobs", "lost+found"])
    def test_a_number_of_which_a_folder_lies_in_the_home_is_given_to_no_job(self, stage: Stage, where: str) -> None:
        first = stage.submit()
        for number in (2, 3, 17):
            folder = stage.platform.settings.home / where / f"edt-{number}"
            (folder / "model").mkdir(parents=True)
            (folder / "model" / "result.pth").write_text("weights")
        assert [first, stage.submit(), stage.submit()] == ["edt-1", "edt-18", "edt-19"]
        assert (folder / "model" / "result.pth").read_text() == "weights"

    def test_a_link_or_a_file_of_a_jobs_name_takes_its_number_too(self, stage: Stage) -> None:
        jobs = stage.platform.settings.jobs
        (jobs / "edt-1").symlink_to("/nonexistent")
        (jobs / "edt-2").write_text("of a person")
        assert [stage.submit(), stage.submit()] == ["edt-3", "edt-4"]

    @pytest.mark.parametrize(
        ("spec", "field"),
        [
            ({"model_main": "other.py"}, "--model-main"),
            ({"model_main": "../main.py"}, "--model-main"),
            ({"model_main": "/etc/passwd"}, "--model-main"),
            ({"model_dir": "../.."}, "--model-dir"),
            ({"environ": {"EDT_SEED": "many"}}, "--msd-env EDT_SEED"),
            ({"num_worker": 0}, "--numWorker"),
            ({"num_worker": 10_000, "worker_device_num": 10_000}, "--numWorker"),
        ],
    )
    def test_what_cannot_run_is_refused_by_the_name_of_its_argument(
        self, sqlite_stage: Stage, spec: dict[str, object], field: str
    ) -> None:
        values = {"framework": "edtPyTorch", "model_main": "main.py", "args_verbatim": "", "app_name": "a", **spec}
        with pytest.raises(SubmissionInvalid) as refused:
            execs.submit(
                sqlite_stage.platform,
                owner=sqlite_stage.admin,
                spec=JobSpec(**values),  # type: ignore[arg-type]
                staged=stage_code(sqlite_stage.platform),
            )
        assert refused.value.field == field
        assert list(execs.jobs(sqlite_stage.platform, viewer=sqlite_stage.admin)) == []

    def test_the_working_directory_is_the_model_dir_where_the_archive_has_one(self, sqlite_stage: Stage) -> None:
        staged = stage_code(sqlite_stage.platform)
        (staged / "resnet").mkdir()
        (staged / "main.py").rename(staged / "resnet" / "main.py")
        spec = JobSpec("edtPyTorch", "main.py", "", "app", model_dir="resnet")
        job = execs.submit(sqlite_stage.platform, owner=sqlite_stage.admin, spec=spec, staged=staged)
        assert job.work_dir.parts[-2:] == ("_submitted_code", "resnet")
        flat = execs.submit(
            sqlite_stage.platform, owner=sqlite_stage.admin, spec=spec, staged=stage_code(sqlite_stage.platform)
        )
        assert flat.work_dir.name == "_submitted_code"

    def test_a_script_that_makes_its_model_folder_itself_finds_none(self, sqlite_stage: Stage) -> None:
        assert not sqlite_stage.submitted(model_folder=False).model_dir.exists()
        assert sqlite_stage.submitted().model_dir.is_dir()

    def test_the_seed_is_the_users_or_random_and_threads_are_fixed_by_the_nodes(self, sqlite_stage: Stage) -> None:
        sqlite_stage.node(slots=2)
        assert sqlite_stage.submitted(environ={"EDT_SEED": "7"}).seed == 7
        seeds = {sqlite_stage.submitted().seed for _ in range(3)}
        assert len(seeds) == 3
        assert all(0 <= seed < 2**31 for seed in seeds)
        assert sqlite_stage.submitted().threads == 4


class TestSecrets:
    def test_environment_values_are_in_the_spec_and_the_jobs_row_and_nowhere_else(self, stage: Stage) -> None:
        node = stage.node()
        job = stage.submit(environ={"API_KEY": "canary-7a1"})
        stage.settle()
        assert node.fetch()[job, 1].spec.environ["API_KEY"] == "canary-7a1"
        views = [stage.job(job), history.events(stage.platform, job, viewer=stage.admin)]
        assert "canary" not in repr(views)
        assert "canary" not in repr(JobSpec("f", "m", "", "a", environ={"API_KEY": "canary"}))
        with stage.platform.database.snapshot() as tx:
            for table in tables.metadata.sorted_tables:
                rows = [dict(row._mapping) for row in tx.execute(select(table))]
                if table is tables.jobs:
                    rows = [{key: value for key, value in row.items() if key != "environ"} for row in rows]
                assert "canary" not in json.dumps(rows, default=str)


class TestViewing:
    def test_users_see_and_stop_their_own_jobs_and_admins_all(self, stage: Stage) -> None:
        ada = accounts.add_user(stage.platform, "ada", "hash")
        bob = accounts.add_user(stage.platform, "bob", "hash")
        job = stage.submit(owner=ada)
        assert [view.owner for view in execs.jobs(stage.platform, viewer=ada)] == ["ada"]
        assert list(execs.jobs(stage.platform, viewer=bob)) == []
        assert len(list(execs.jobs(stage.platform, viewer=stage.admin))) == 1
        for use in (execs.job, execs.stop, execs.delete, history.events, history.resizes):
            with pytest.raises(NoSuchJob):
                use(stage.platform, job, viewer=bob)
        assert execs.job(stage.platform, job, viewer=ada).state is JobState.SUBMITTED

    def test_lists_can_be_cut_sorted_and_chosen_by_state(self, sqlite_stage: Stage) -> None:
        first, second, third = (sqlite_stage.submit() for _ in range(3))
        execs.stop(sqlite_stage.platform, second, viewer=sqlite_stage.admin)

        def ids(**how: object) -> list[str]:
            found = execs.jobs(sqlite_stage.platform, viewer=sqlite_stage.admin, **how)  # type: ignore[arg-type]
            return [view.exec_id for view in found]

        assert ids() == [first, second, third]
        assert ids(order=JobOrder(descending=True), limit=2) == [third, second]
        assert ids(states=[JobState.KILLED]) == [second]


class TestDeleting:
    def test_a_deleted_job_is_gone_from_the_lists_and_its_folder_goes_when_it_is_over(self, stage: Stage) -> None:
        node = stage.node()
        job = stage.submitted()
        stage.settle()
        execs.delete(stage.platform, job.exec_id, viewer=stage.admin)
        with pytest.raises(NoSuchJob):
            stage.job(job.exec_id)
        remove_folders(stage.platform)
        assert job.directory.exists(), "its processes still write there"
        node.obey()
        remove_folders(stage.platform)
        assert not job.directory.exists()

    def test_delete_all_takes_the_viewers_own_jobs_only(self, sqlite_stage: Stage) -> None:
        ada = accounts.add_user(sqlite_stage.platform, "ada", "hash")
        theirs, mine = sqlite_stage.submit(owner=ada), sqlite_stage.submit()
        assert execs.delete_all(sqlite_stage.platform, viewer=sqlite_stage.admin) == 1
        assert [view.exec_id for view in execs.jobs(sqlite_stage.platform, viewer=sqlite_stage.admin)] == [theirs]
        assert mine != theirs


def token_of(platform: Platform, user: UserView, seconds: float) -> str:
    """A token of this user, valid for so long."""
    token = secrets.token_urlsafe()
    accounts.add_token(platform, user, token, platform.clock() + seconds)
    return token


class TestUsers:
    def test_a_token_stands_for_its_user_until_it_expires_is_revoked_or_the_password_changes(
        self, stage: Stage
    ) -> None:
        ada = accounts.add_user(stage.platform, "ada", "hash")
        first, second = (token_of(stage.platform, ada, 60) for _ in range(2))
        found = accounts.verify_token(stage.platform, first)
        assert found is not None
        assert (found.name, found.role) == ("ada", Role.USER)
        accounts.revoke_token(stage.platform, first)
        assert accounts.verify_token(stage.platform, first) is None
        accounts.set_password(stage.platform, ada, "other")
        assert accounts.verify_token(stage.platform, second) is None
        fourth = token_of(stage.platform, accounts.user(stage.platform, "ada"), 60)
        stage.clock.pass_(61)
        assert accounts.verify_token(stage.platform, fourth) is None

    def test_what_was_asked_for_under_a_password_is_not_done_once_it_is_changed(self, stage: Stage) -> None:
        seen = accounts.add_user(stage.platform, "ada", "known to a thief")
        accounts.set_password(stage.platform, seen, "new")
        with pytest.raises(PasswordChanged):
            accounts.set_password(stage.platform, seen, "the thief's")
        with pytest.raises(PasswordChanged):
            token_of(stage.platform, seen, 60)
        assert accounts.user(stage.platform, "ada").password_hash == "new"

    def test_setting_a_password_again_is_setting_it_once(self, sqlite_stage: Stage) -> None:
        seen = accounts.add_user(sqlite_stage.platform, "ada", "old")
        accounts.set_password(sqlite_stage.platform, seen, "new")
        token = token_of(sqlite_stage.platform, accounts.user(sqlite_stage.platform, "ada"), 60)
        accounts.set_password(sqlite_stage.platform, seen, "new")
        assert accounts.verify_token(sqlite_stage.platform, token) is not None

    def test_no_token_is_stored_as_it_is(self, sqlite_stage: Stage) -> None:
        token = token_of(sqlite_stage.platform, sqlite_stage.admin, 60)
        with sqlite_stage.platform.database.snapshot() as tx:
            rows = [dict(row._mapping) for row in tx.execute(select(tables.tokens))]
        assert token not in repr(rows)

    def test_names_are_unique_and_readable_and_one_admin_stays(self, sqlite_stage: Stage) -> None:
        with pytest.raises(UserExists):
            accounts.add_user(sqlite_stage.platform, "admin", "hash")
        for name in ("", "a b", "-x", "a/b", "x" * 65):
            with pytest.raises(UserInvalid):
                accounts.add_user(sqlite_stage.platform, name, "hash")
        with pytest.raises(LastAdmin):
            accounts.remove_user(sqlite_stage.platform, "admin")
        with pytest.raises(NoSuchUser):
            accounts.remove_user(sqlite_stage.platform, "nobody")

    def test_a_removed_user_loses_access_and_their_jobs_stop_and_stay_listed(self, sqlite_stage: Stage) -> None:
        platform = sqlite_stage.platform
        ada = accounts.add_user(platform, "ada", "hash")
        token = token_of(platform, ada, 60)
        job = sqlite_stage.submit(owner=ada)
        accounts.remove_user(platform, "ada")
        assert accounts.verify_token(platform, token) is None
        assert [user.name for user in accounts.users(platform)] == ["admin"]
        assert sqlite_stage.job(job).state is JobState.KILLED


class TestANameThatIsGivenAgain:
    """Two users, one after the other, are called ada; whose something is goes by the user's number."""

    def _two(self, stage: Stage) -> tuple[UserView, UserView, str, str, IdempotentRequest]:
        """The old ada, the new one, the old one's job and token, the key under which that job was submitted."""
        platform, key = stage.platform, IdempotentRequest.of("k-1", "the same request")
        old = accounts.add_user(platform, "ada", "hash")
        token = token_of(platform, old, 600)
        spec = JobSpec("edtPyTorch", "main.py", "", "of ada")
        job = execs.submit(platform, owner=old, spec=spec, staged=stage_code(platform), request=key).exec_id
        accounts.remove_user(platform, "ada")
        return old, accounts.add_user(platform, "ada", "other"), job, token, key

    def test_the_new_user_owns_nothing_of_the_old_one(self, stage: Stage) -> None:
        platform = stage.platform
        old, new, job, token, key = self._two(stage)
        assert new.id != old.id and new.name == old.name
        assert list(execs.jobs(platform, viewer=new)) == []
        wanted = JobFilter(owner="ada")
        assert execs.jobs_page(platform, viewer=new, wanted=wanted, limit=9) == JobPage((), None, 0)
        for use in (execs.job, history.events, history.resizes, history.allocations, execs.stop):
            with pytest.raises(NoSuchJob):
                use(platform, job, viewer=new)
        with pytest.raises(NoSuchJob):
            execs.delete(platform, job, viewer=new)
        assert execs.delete_all(platform, viewer=new) == 0
        assert accounts.verify_token(platform, token) is None
        assert execs.submitted_before(platform, owner=new, request=key) is None

    def test_whoever_was_removed_cannot_act_as_who_has_the_name_now(self, stage: Stage) -> None:
        platform = stage.platform
        old, new, _, _, _ = self._two(stage)
        with pytest.raises(NoSuchUser):
            accounts.set_password(platform, old, "taken over")
        with pytest.raises(NoSuchUser):
            token_of(platform, old, 60)
        with pytest.raises(NoSuchUser):
            stage.submit(owner=old)
        assert accounts.user(platform, "ada") == new

    def test_an_admin_sees_the_jobs_of_both_and_which_owner_was_removed(self, stage: Stage) -> None:
        platform = stage.platform
        _, new, before, _, _ = self._two(stage)
        after = stage.submit(owner=new)
        page = execs.jobs_page(platform, viewer=stage.admin, wanted=JobFilter(owner="ada"), limit=9)
        assert [(job.exec_id, job.owner, job.owner_removed) for job in page.jobs] == [
            (after, "ada", False),
            (before, "ada", True),
        ]
        assert [user.name for user in accounts.users(platform)] == ["ada", "admin"]

    def test_removing_the_new_user_stops_only_the_new_users_jobs(self, sqlite_stage: Stage) -> None:
        platform = sqlite_stage.platform
        _, new, _, _, _ = self._two(sqlite_stage)
        other = accounts.add_user(platform, "bob", "hash")
        theirs, mine = sqlite_stage.submit(owner=other), sqlite_stage.submit(owner=new)
        accounts.remove_user(platform, "ada")
        assert sqlite_stage.job(mine).state is JobState.KILLED
        assert sqlite_stage.job(theirs).state is JobState.SUBMITTED
        assert accounts.add_user(platform, "ada", "third").role is Role.USER


class TestLetters:
    def test_the_spec_holds_what_a_wmla_job_finds_in_its_environment(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submitted(data_path="mnist", arguments=("--epochs", "2"), environ={"A": "b"})
        look(sqlite_stage.platform)
        spec = node.fetch()[job.exec_id, 1].spec
        settings, environ = sqlite_stage.platform.settings, spec.environ
        assert environ["RESULT_DIR"] == spec.result_dir == str(job.directory)
        assert environ["DATA_DIR"] == str(settings.data / "mnist")
        assert environ["DLI_DATA_FS"] == str(settings.data)
        assert environ["LOG_DIR"] == str(job.log_dir)
        assert environ["DLI_EXECID"] == environ["TRAINING_ID"] == environ["APP_ID"] == job.exec_id
        assert environ["DLI_SUBMIT_USERNAME"] == "admin"
        assert environ["A"] == "b"
        needed = "JOB_STATE_DIR DLI_RESULT_FS DLI_WORK_DIR SAVED_MODEL_DIR CHECKPOINT_DIR DLI_IS_ELASTIC"
        assert set(needed.split()) < environ.keys()
        assert (spec.arguments, spec.max_engines, spec.threads) == (("--epochs", "2"), 4, 2)
        assert spec.spool_dir.endswith(f"{job.exec_id}/spool/1-n1")
        assert spec.work_dir == str(job.work_dir)

    def test_each_slot_knows_which_of_its_job_it_is(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        jobs = [sqlite_stage.submit(workers=2), sqlite_stage.submit(workers=2)]
        sqlite_stage.settle()
        listed = node.fetch()
        assert [[slot.ordinal for slot in listed[job, 1].desired.slots] for job in jobs] == [[1, 2], [1, 2]]

    def test_a_job_may_say_otherwise(self, sqlite_stage: Stage) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit(environ={"DATA_DIR": "/elsewhere"})
        look(sqlite_stage.platform)
        assert node.fetch()[job, 1].spec.environ["DATA_DIR"] == "/elsewhere"

    @pytest.mark.parametrize("backend", ["pytorch", "tensorflow"])
    def test_the_spec_says_what_the_supervisor_is_to_import(self, sqlite_stage: Stage, backend: str) -> None:
        node = sqlite_stage.node()
        job = sqlite_stage.submit(backend=backend)
        look(sqlite_stage.platform)
        spec = node.fetch()[job, 1].spec
        assert spec.framework == spec.environ["FABRIC_BACKEND"] == backend
        assert "TF_USE_LEGACY_KERAS" not in spec.environ

    def test_an_administrator_may_give_tensorflow_jobs_keras_2_and_a_job_may_refuse_it(
        self, sqlite_stage: Stage
    ) -> None:
        settings = sqlite_stage.platform.settings.model_copy(update={"tf_use_legacy_keras": True})
        before = replace(sqlite_stage, platform=replace(sqlite_stage.platform, settings=settings))
        node = sqlite_stage.node(slots=3)
        jobs = [
            before.submit(backend="tensorflow"),
            before.submit(backend="tensorflow", environ={"TF_USE_LEGACY_KERAS": "0"}),
            before.submit(),
        ]
        look(sqlite_stage.platform)  # whose administrator has changed his mind
        specs = node.fetch()
        assert [specs[job, 1].spec.environ.get("TF_USE_LEGACY_KERAS") for job in jobs] == ["1", "0", None]


def test_the_timeline_shows_who_held_which_slot(sqlite_stage: Stage, tmp_path: Path) -> None:
    node = sqlite_stage.node(slots=2, engines=2)
    job = sqlite_stage.submit(workers=2)
    sqlite_stage.settle()
    sqlite_stage.clock.pass_(10)
    node.end((job, 1), ExitKind.FINISHED)
    sqlite_stage.clock.pass_(10)
    timeline = history.timeline(sqlite_stage.platform, viewer=sqlite_stage.admin)
    assert [(held.slot, held.exec_id, held.kind) for held in timeline.allocations] == [
        ("0", job, ExitKind.FINISHED),
        ("1", job, ExitKind.FINISHED),
    ]
    assert {held.released_at for held in timeline.allocations} == {timeline.now - 10}
    later = history.timeline(sqlite_stage.platform, viewer=sqlite_stage.admin, since=timeline.now - 5)
    assert later.allocations == ()


@pytest.mark.parametrize("database_url", SQLITE_FIRST, indirect=True)
def test_a_timeline_of_too_much_begins_later_and_says_when(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_OF_A_KIND", 2)
    node = stage.node(slots=2, engines=1)
    held = stage.submit(workers=1)
    stage.settle()
    short, ends = [], []
    for _ in range(4):
        short.append(stage.submit(workers=1))
        stage.settle()
        stage.clock.pass_(10)
        node.end((short[-1], 1), ExitKind.FINISHED)
        ends.append(stage.clock.now)
        stage.clock.pass_(10)
    timeline = history.timeline(stage.platform, viewer=stage.admin)
    assert timeline.since == ends[1]
    assert [bar.exec_id for bar in timeline.allocations] == [held, *short[1:]]
    assert {resize.exec_id for resize in timeline.resizes} == set(short[2:])
    recent = history.timeline(stage.platform, viewer=stage.admin, since=ends[2])
    assert recent.since == ends[2], "of a time that is not too much nothing is left out"
    early = history.timeline(stage.platform, viewer=stage.admin, until=ends[0])
    assert (early.since, [bar.exec_id for bar in early.allocations]) == (0.0, [held, short[0]])


def test_operations_take_a_platform_that_anybody_can_make(sqlite_stage: Stage) -> None:
    other: Platform = replace(sqlite_stage.platform, clock=lambda: 5.0)
    assert accounts.add_user(other, "eve", "hash").created_at == 5.0


@pytest.mark.parametrize("database_url", SQLITE_FIRST, indirect=True)
def test_a_timeline_of_too_many_failures_or_resizes_begins_later_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = stage.node(slots=2, engines=1)
    ends = []
    for _ in range(4):
        job = stage.submit(workers=1)
        stage.settle()
        stage.clock.pass_(10)
        node.end((job, 1), ExitKind.SCRIPT_ERROR)
        ends.append(stage.clock.now)
        stage.clock.pass_(10)
    whole = history.timeline(stage.platform, viewer=stage.admin)
    at = [failure.time for failure in whole.failures]
    assert len(at) > len(whole.allocations) == 4, "an engine's, and its attempt's"
    with stage.platform.database.snapshot() as tx:
        assert failures.few_since(tx, 0, math.inf, len(at)) == 0
        decided = [resize.decided_at for resize in whole.resizes]
        assert resizes.few_since(tx, 0, math.inf, len(decided)) == 0
        assert resizes.few_since(tx, 0, math.inf, 1) == decided[-2]
    monkeypatch.setattr(history, "MOST_OF_A_KIND", 3)
    timeline = history.timeline(stage.platform, viewer=stage.admin)
    assert timeline.since == at[-4] > ends[0]
    assert [failure.time for failure in timeline.failures] == at[-4:]
