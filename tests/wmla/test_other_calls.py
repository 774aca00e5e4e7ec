"""WMLA's calls about the service, Spectrum Conductor's, and those for what the platform does not do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from ibm_cloud_sdk_core import ApiException
from ibm_cloud_sdk_core.authenticators import BasicAuthenticator
from ibm_wmla.edi_authentication import ElasticDistributedInferenceAuthenticator
from ibm_wmla.wmla_api_edi_v2 import ElasticDistributedInferenceV2
from ibm_wmla.wmla_api_v1 import DeepLearningImpactV1, FrameworkDetail

from edt_api.routes.legacy import FAMILIES
from edt_scheduler.decide.reconcile import look
from edt_scheduler.operations import agents
from edt_scheduler.views import JobView, SlotUse
from support.credentials import PASSWORD
from support.puppets import Puppet
from support.served_api import EXECS, ServedApi

DL = "/platform/rest/deeplearning/v1"
SC = "/platform/rest/conductor/v1"


@pytest.fixture(scope="module")
def sdk(api: ServedApi) -> DeepLearningImpactV1:
    client = DeepLearningImpactV1(authenticator=BasicAuthenticator("ana", PASSWORD))
    client.set_service_url(api.url)
    return client


@pytest.fixture(scope="module")
def running(api: ServedApi) -> Iterator[JobView]:
    """A running job of ana's with two engines, whose slots are measured."""
    node = Puppet(api.platform, name="gpu-1", slots=3, engines=2).join()
    job = api.submit(args="--exec-start edtPyTorch --numWorker 2 --model-main main.py")
    for _ in range(3):
        look(api.platform)
        node.obey()
    agents.record_usage(api.platform, "gpu-1", [SlotUse(str(n), 0.83, 7809 << 20) for n in range(2)])
    (job.log_dir / "driver.out").write_text("the driver's\n")
    for number, allocation in enumerate(sorted(node.running[(job.exec_id, 1)]), 1):
        (job.log_dir / f"engine-{allocation}.err").write_text(f"größer {number}\n")
    yield job


def get(api: ServedApi, path: str, **how: Any) -> httpx.Response:
    return api.client("ana").get(path, **how)


class TestTheService:
    @pytest.mark.parametrize("slash", ["", "/"])
    def test_the_settings_that_clients_read_first(self, api: ServedApi, slash: str) -> None:
        assert get(api, f"{DL}/conf{slash}").json()["MSD_ENABLED"] == "true"
        assert api.client().get(f"{DL}/conf{slash}").status_code == 401

    def test_the_status_counts_nodes_and_slots(self, api: ServedApi, running: JobView) -> None:
        status = get(api, f"{DL}/status/").json()
        assert (status["status"], status["nodes"], status["slots"], status["used_slots"]) == (
            "RUNNING",
            {"up": 1},
            3,
            2,
        )

    def test_there_is_one_plan_below_a_root_until_there_are_queues(self, api: ServedApi, running: JobView) -> None:
        tree = get(api, f"{DL}/resplans/resplantree").json()
        (plan,) = tree["childTreeDto"]
        assert plan["pid"] == tree["id"] and plan["childTreeDto"] == []
        record = get(api, f"{DL}/scheduler/engine/applications/{running.exec_id}").json()[0]
        assert record["consumer"] == f"/{plan['id']}"
        found = get(api, f"{DL}/resplans/resplan/{plan['id']}").json()
        assert (found["path"], found["slots"], found["used_slots"]) == (record["consumer"], 3, 2)

    def test_the_plan_above_all_cannot_be_deleted_and_another_is_not_there(self, api: ServedApi) -> None:
        refused = api.client("admin").delete(f"{DL}/resplans/resplan/openedt")
        assert refused.status_code == 409 and "cannot be deleted: it is the whole cluster" in refused.text
        for answer in (get(api, f"{DL}/resplans/resplan/x"), api.client("admin").delete(f"{DL}/resplans/resplan/x")):
            assert answer.text == "Error 404: there is no resource plan 'x': `dlicmd.py --rp-get-all` lists them\n"

    def test_frameworks_of_generation_a(self, sdk: DeepLearningImpactV1) -> None:
        names = sdk.get_all_deep_learning_frameworks().get_result()
        assert "edtPyTorch" in names
        found = [FrameworkDetail.from_dict(each) for each in sdk.get_deep_learning_frameworks().get_result()]
        assert [each.name for each in found] == names
        chosen = sdk.get_deep_learning_frameworks(backend="PyTorch").get_result()
        assert {each["backend"] for each in chosen} == {"pytorch"}


class TestPlansOfQueues:
    """Queues as WMLA's clients read them: resource plans below the plan of the whole cluster."""

    @pytest.fixture(autouse=True)
    def queues(self, api: ServedApi) -> Iterator[None]:
        admin = api.client("admin")
        for path, settings in {
            "a": {"quota": 1, "weight": 2, "policy": "fifo"},
            "a/train": {"limit": 2},
            "b": {},
            "b/train": {},
        }.items():
            assert admin.put(f"/api/v1/queues/{path}", json=settings).status_code == 200
        yield
        for path in ("a/train", "a", "b/train", "b"):
            admin.delete(f"/api/v1/queues/{path}")

    def test_the_tree_has_each_queue_below_the_one_above_it(self, api: ServedApi) -> None:
        (top,) = get(api, f"{DL}/resplans/resplantree/").json()["childTreeDto"]
        assert [(plan["id"], plan["pid"]) for plan in top["childTreeDto"]] == [("a", "openedt"), ("b", "openedt")]
        below = [plan["childTreeDto"] for plan in top["childTreeDto"]]
        assert below == [[{"id": "train", "pid": above, "childTreeDto": []}] for above in ("a", "b")]

    def test_a_plan_is_found_by_its_path_and_by_its_name_where_that_is_the_only_one(self, api: ServedApi) -> None:
        for name in ("a", "/a", "openedt/a", "%2Fopenedt%2Fa"):
            plan = get(api, f"{DL}/resplans/resplan/{name}").json()
            assert (plan["path"], plan["pid"], plan["slots"]) == ("/openedt/a", "openedt", 1), name
            assert (plan["quota"], plan["share_ratio"], plan["limit"], plan["policy"]) == (1, 2, None, "fifo")
        assert get(api, f"{DL}/resplans/resplan/b/train").json()["path"] == "/openedt/b/train"
        two = get(api, f"{DL}/resplans/resplan/train")
        assert two.status_code == 400 and "/openedt/a/train, /openedt/b/train" in two.text

    def test_a_job_names_the_plan_of_the_queue_that_it_belongs_to(self, api: ServedApi) -> None:
        named = {"/openedt/a/train": "/openedt/a/train", "/a/other/more": "/openedt/a", "/c": "/openedt"}
        for given, consumer in named.items():
            job = api.submit(args=f"--exec-start edtPyTorch --model-main main.py --consumer {given} --msd-priority 7")
            (record,) = get(api, f"{DL}/scheduler/engine/applications/{job.exec_id}").json()
            assert (record["consumer"], record["priority"]) == (consumer, 7)
            listed = get(api, f"{DL}/scheduler/engine/applications", params={"sort": "-id", "length": 1}).json()
            assert listed[0] == record
        look(api.platform)
        plan = get(api, f"{DL}/resplans/resplan/a").json()
        assert (plan["pending_jobs"] + plan["running_jobs"], plan["demand_slots"]) == (2, 2)

    def test_an_admin_deletes_a_plan_and_its_jobs_belong_to_the_one_above(self, api: ServedApi) -> None:
        job = api.submit(args="--exec-start edtPyTorch --model-main main.py --queue /a/train")
        assert api.client("ana").delete(f"{DL}/resplans/resplan/a/train").status_code == 403
        assert api.client("admin").delete(f"{DL}/resplans/resplan/a").status_code == 409
        assert api.client("admin").delete(f"{DL}/resplans/resplan/a/train").status_code == 204
        (record,) = get(api, f"{DL}/scheduler/engine/applications/{job.exec_id}").json()
        assert record["consumer"] == "/openedt/a"


class TestConductor:
    def test_a_logon_gives_a_token_for_a_password(self, api: ServedApi) -> None:
        signed = get(api, f"{SC}/auth/logon", headers={"Accept": "application/json"}).json()
        client = api.client(token=signed["accessToken"])
        assert client.get(EXECS).status_code == 200
        assert client.get(f"{SC}/auth/logon/").json()["accessToken"] == signed["accessToken"]
        assert client.get(f"{SC}/auth/logoff").status_code == 200
        assert client.get(EXECS).status_code == 401
        assert api.client().get(f"{SC}/auth/logon").status_code == 401

    def test_a_page_does_not_get_the_token_of_its_session(self, api: ServedApi) -> None:
        page = api.client()
        page.headers["origin"] = api.url
        assert page.post("/api/v1/session", json={"name": "ana", "password": PASSWORD}).status_code == 204
        assert page.get("/api/v1/me").json()["name"] == "ana"
        assert page.get(f"{SC}/auth/logon").status_code == 401
        assert page.post("/dlim/v1/auth/token").status_code == 401
        page.get(f"{SC}/auth/logoff")
        assert page.get("/api/v1/me").status_code == 200

    def test_a_notebook_finds_its_job_and_how_busy_it_is(self, api: ServedApi, running: JobView) -> None:
        exec_json = get(api, f"{EXECS}/{running.exec_id}").json()
        path = f"{SC}/instances/{exec_json['sigId']}/applications"
        rows = get(api, path, params={"state": "RUNNING"}, headers={"Accept": "application/json"}).json()
        (row,) = [row for row in rows if row["driver"]["id"] == exec_json["submissionId"]]
        assert row["driver"]["state"] == "RUNNING" and isinstance(row["apprunduration"], float)
        assert (row["gpuslots"], row["gpumemused"]["total"], row["gpudevutil"]["total"]) == (2, 15618, 166.0)
        assert len({each["id"] for each in row["executors"]}) == 2
        assert get(api, f"{SC}/instances/any/applications/", params={"state": "KILLED"}).json() == []
        assert get(api, f"{SC}/instances").json()[0]["uuid"] == exec_json["sigId"]

    def test_logs_are_downloaded_as_text(self, api: ServedApi, running: JobView) -> None:
        path = f"{SC}/instances/openedt/applications/{running.exec_id}"
        binary = {"Accept": "application/octet-stream"}
        assert get(api, f"{path}/logs/stdout/download", headers=binary).text == "the driver's\n"
        for number in ("1", "2"):
            assert get(api, f"{path}/{number}/logs/stderr/download", headers=binary).text == f"größer {number}\n"
        assert get(api, f"{path}/driver-x/logs/stderr/download").status_code == 404
        unknown = get(api, f"{SC}/instances/openedt/applications/edt-99/logs/stdout/download")
        assert unknown.text == "Error 400: Cannot find task with given execId.\n"


class TestWhatIsNotOffered:
    @pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.path)
    def test_lists_are_empty_objects_unknown_and_changes_refused_with_a_sentence(
        self, api: ServedApi, family: Any
    ) -> None:
        client = api.client("ana")
        for below in family.lists:
            for slash in ("", "/"):
                assert client.get(f"{family.path}{below}{slash}").json() == []
        for below in ("/x", "/x/y", "/x/y/z"):
            answer = client.get(f"{family.path}{below}")
            assert answer.status_code == 404 and family.instead in answer.text
            for method in ("POST", "PUT", "DELETE"):
                answer = client.request(method, f"{family.path}{below}", json={})
                assert answer.status_code == 501
                assert answer.text == f"Error 501: {family.instead}\n"
        assert client.patch(f"{family.path}/x").status_code == 405
        assert api.client().get(family.path).status_code == 401

    def test_a_path_that_wmla_does_not_have_stays_unknown(self, api: ServedApi) -> None:
        for path in (f"{DL}/nothing", f"{DL}/modelsx", "/dlim/v1/nothing", "/dlim/v2/model", f"{SC}/nothing"):
            answer = get(api, path)
            assert (answer.status_code, answer.text) == (404, "Error 404: there is nothing at this path\n"), path

    def test_the_sdk_reads_the_lists_and_tells_the_sentence(self, sdk: DeepLearningImpactV1) -> None:
        for call in (sdk.get_models, sdk.get_model_template_details, sdk.get_full_dataset_details, sdk.get_all_hpo):
            assert call().get_result() == []
        with pytest.raises(ApiException, match="submit a job for each set of values") as raised:
            sdk.stop_one_hpo("hpo-1")
        assert raised.value.status_code == 501

    def test_the_inference_services_token_is_the_callers(self, api: ServedApi) -> None:
        authenticator = ElasticDistributedInferenceAuthenticator(username="ana", password=PASSWORD, url=api.url)
        client = ElasticDistributedInferenceV2(authenticator=authenticator)
        client.set_service_url(api.url)
        assert client.get_models().get_result() == []
        with pytest.raises(ApiException) as raised:
            client.start_model_inference("model")
        assert raised.value.status_code == 501
        token = api.client("ana").post("/dlim/v1/auth/token").json()["service_token"]
        assert api.client(token=token).post("/dlim/v1/auth/token/").json()["user_token"] == token


class TestExecs:
    def test_a_deploy_is_refused_with_what_to_do_instead(self, api: ServedApi, running: JobView) -> None:
        client = api.client("ana")
        refused = client.post(f"{EXECS}/{running.exec_id}/deploy", json={"name": "x"})
        assert refused.status_code == 501 and "GET /execs/{id}/result" in refused.text
        unknown = client.post(f"{EXECS}/edt-99/deploy", json={"name": "x"})
        assert unknown.text == "Error 400: Cannot find task with given execId.\n"

    def test_a_list_can_be_read_from_a_place_on(self, api: ServedApi) -> None:
        client = api.client("bob")
        names = [api.submit("bob").exec_id for _ in range(3)]
        for path in (EXECS, f"{EXECS}/"):
            found = client.get(path, params={"start": 1, "length": 1, "limit": 2}).json()
            assert [each["id"] for each in found] == names[1:2]
            assert client.get(path, params={"start": 2, "sort_by": "id:desc"}).json()[0]["id"] == names[0]
            assert client.get(path, params={"start": 0, "state": "KILLED"}).json() == []
            assert client.get(path, params={"start": 3}).status_code == 416
