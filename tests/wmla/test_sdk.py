"""WMLA's published SDK, unchanged, against this server: every method that it has."""

from __future__ import annotations

import inspect
import io
import re
from collections.abc import Callable, Iterator
from typing import Any

import ibm_wmla.wmla_api_edi_v2 as edi
import ibm_wmla.wmla_api_v1 as dli
import pytest
import requests
from ibm_cloud_sdk_core import ApiException
from ibm_cloud_sdk_core.authenticators import Authenticator, BasicAuthenticator, BearerTokenAuthenticator

from support.credentials import PASSWORD
from support.served_api import ServedApi

ARGS = "--exec-start edtPyTorch --numWorker 2 --model-main main.py --epochs 1"
CLEAN = {400, 404, 501}
"""The answers to a request about something that this server does not have. None of them is the server's own fault."""


def sdk(api: ServedApi, authenticator: Authenticator | None = None) -> dli.DeepLearningImpactV1:
    service = dli.DeepLearningImpactV1(authenticator=authenticator or BasicAuthenticator("ana", PASSWORD))
    service.set_service_url(api.url)
    return service


def inference_sdk(api: ServedApi) -> edi.ElasticDistributedInferenceV2:
    service = edi.ElasticDistributedInferenceV2(authenticator=BasicAuthenticator("ana", PASSWORD))
    service.set_service_url(api.url)
    return service


def methods(service: type) -> dict[str, Callable[..., Any]]:
    return {name: each for name, each in vars(service).items() if inspect.isfunction(each) and name[0] != "_"}


def required(method: Callable[..., Any]) -> dict[str, Any]:
    """A value of the right type for each argument that must be given."""
    values = {
        "str": "nothing-of-this-name",
        "int": 1,
        "bool": True,
        "dict": {},
        "List": [],
        "ResDef": dli.ResDef("PyTorch", "10", 32),
        "AlgoDef": dli.AlgoDef("Random"),
    }
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(method).parameters.items():
        if name in {"self", "kwargs"} or parameter.default is not parameter.empty:
            continue
        kind = getattr(parameter.annotation, "__name__", str(parameter.annotation))
        given[name] = io.BytesIO(b"content") if kind == "BinaryIO" else values[kind]
    return given


def listed(method: Callable[..., Any]) -> str | None:
    """What the SDK says the method's list holds; None: it is no list."""
    found = re.search(r"`List\[(\w+)\]` result", method.__doc__ or "")
    return found[1] if found else None


LISTS = {name: kind for name, each in methods(dli.DeepLearningImpactV1).items() if (kind := listed(each)) is not None}
OF_JOBS = {
    "new_instance", "list_execs", "create_exec", "delete_exec", "get_exec", "get_applications", "get_app_instances",
    "get_platform_rest_deeplearning_execs_frameworks", "get_platform_rest_deeplearning_exec_log",
    "get_platform_rest_deeplearning_exec_result", "post_platform_rest_deeplearning_exec_stop",
    "get_deep_learning_conf", "get_deep_learning_frameworks", "get_all_deep_learning_frameworks",
}  # fmt: skip
"""Methods with tests of their own below."""


@pytest.mark.parametrize("name", sorted(set(methods(dli.DeepLearningImpactV1)) - OF_JOBS))
def test_every_other_method_gets_a_list_that_fits_its_model_or_a_clean_refusal(api: ServedApi, name: str) -> None:
    method = getattr(sdk(api), name)
    arguments = required(method)
    try:
        result = method(**arguments).get_result()
    except ApiException as refusal:
        assert refusal.status_code in CLEAN, (name, refusal.status_code, refusal.message)
        assert refusal.message, name
        assert "nothing at this path" not in str(refusal.message), name
        assert LISTS.get(name) is None or arguments, f"{name} lists all of them, and there are none: []"
    else:
        assert result == [] if name in LISTS else result is not None or name.startswith("delete_all"), (name, result)


@pytest.mark.parametrize("name", sorted(set(methods(edi.ElasticDistributedInferenceV2)) - {"new_instance"}))
def test_the_inference_service_answers_every_method_cleanly(api: ServedApi, name: str) -> None:
    method = getattr(inference_sdk(api), name)
    try:
        result = method(**required(method)).get_result()
    except ApiException as refusal:
        assert refusal.status_code in CLEAN, (name, refusal.status_code, refusal.message)
    else:
        assert result is not None, name


@pytest.fixture(params=["Basic", "Bearer"])
def signed_in(request: pytest.FixtureRequest, api: ServedApi) -> dli.DeepLearningImpactV1:
    """The SDK, with a password or with the token of a logon."""
    if request.param == "Basic":
        return sdk(api)
    answer = requests.get(f"{api.url}/auth/v1/logon", auth=("ana", PASSWORD), timeout=20)
    return sdk(api, BearerTokenAuthenticator(answer.json()["accessToken"]))


@pytest.fixture
def submitted(signed_in: dli.DeepLearningImpactV1) -> Iterator[dict[str, Any]]:
    """A job that the SDK has submitted."""
    answer = signed_in.create_exec("dli-edt", ARGS, io.BytesIO(b"print('hello')\n"))
    assert answer.get_status_code() == 200
    yield answer.get_result()
    signed_in.delete_exec()


class TestJobs:
    def test_a_submitted_job_is_answered_as_the_model_of_a_batch(self, submitted: dict[str, Any]) -> None:
        batch = dli.Batch.from_dict(submitted)
        assert batch.id == batch.app_id == batch.submission_id == submitted["id"]
        assert batch.args == ARGS
        assert all(isinstance(value, str) for value in batch.to_dict().values())

    def test_it_is_found_alone_and_in_the_list(
        self, signed_in: dli.DeepLearningImpactV1, submitted: dict[str, Any]
    ) -> None:
        one = signed_in.get_exec(submitted["id"]).get_result()
        assert dli.Batch.from_dict(one).state == "SUBMITTED"
        assert [dli.Batch.from_dict(each).id for each in signed_in.list_execs().get_result()] == [submitted["id"]]

    def test_its_log_is_a_string_and_its_missing_result_a_sentence(
        self, signed_in: dli.DeepLearningImpactV1, submitted: dict[str, Any]
    ) -> None:
        assert signed_in.get_platform_rest_deeplearning_exec_log(submitted["id"]).get_result() == ""
        with pytest.raises(ApiException) as refusal:
            signed_in.get_platform_rest_deeplearning_exec_result(submitted["id"])
        assert refusal.value.status_code == 400
        assert submitted["id"] in str(refusal.value.message)

    def test_a_stop_and_a_removal_of_all_answer_204(
        self, signed_in: dli.DeepLearningImpactV1, submitted: dict[str, Any]
    ) -> None:
        stopped = signed_in.post_platform_rest_deeplearning_exec_stop(submitted["id"])
        assert (stopped.get_status_code(), stopped.get_result()) == (204, None)
        assert signed_in.get_exec(submitted["id"]).get_result()["state"] == "KILLED"
        assert signed_in.delete_exec().get_status_code() == 204
        assert signed_in.list_execs().get_result() == []

    @pytest.mark.parametrize(
        "name",
        [
            "get_exec",
            "get_platform_rest_deeplearning_exec_log",
            "get_platform_rest_deeplearning_exec_result",
            "post_platform_rest_deeplearning_exec_stop",
        ],
    )
    def test_an_unknown_job_is_a_400_whose_body_is_the_message(
        self, signed_in: dli.DeepLearningImpactV1, name: str
    ) -> None:
        with pytest.raises(ApiException) as refusal:
            getattr(signed_in, name)("wmla-398")
        assert refusal.value.status_code == 400
        assert "Cannot find task with given execId." in str(refusal.value.message)

    def test_a_path_instead_of_a_file_is_named(self, signed_in: dli.DeepLearningImpactV1) -> None:
        with pytest.raises(ApiException, match=r"main\.py") as refusal:
            signed_in.create_exec("dli-edt", ARGS, "/home/ana/main.py")
        assert refusal.value.status_code == 400

    def test_a_wrong_password_is_a_401(self, api: ServedApi) -> None:
        with pytest.raises(ApiException) as refusal:
            sdk(api, BasicAuthenticator("ana", "something else")).list_execs()
        assert refusal.value.status_code == 401


class TestCluster:
    def test_applications_fit_their_model_and_know_the_job(
        self, signed_in: dli.DeepLearningImpactV1, submitted: dict[str, Any]
    ) -> None:
        found = signed_in.get_applications(applicationid=submitted["appId"]).get_result()
        details = [dli.SparkApplicationDetail.from_dict(each) for each in found]
        assert [each.applicationid for each in details] == [submitted["appId"]]
        assert details[0].username == "ana"
        assert isinstance(details[0].submittedtime, int)
        assert isinstance(details[0].slots, int)

    def test_applications_can_be_sorted_and_cut_and_an_index_beyond_the_end_is_a_416(
        self, signed_in: dli.DeepLearningImpactV1, submitted: dict[str, Any]
    ) -> None:
        page = signed_in.get_applications(sort="-submittedtime", start="0", length="1").get_result()
        assert [each["applicationid"] for each in page] == [submitted["appId"]]
        with pytest.raises(ApiException) as refusal:
            signed_in.get_applications(start="1000", length="10")
        assert refusal.value.status_code == 416

    def test_instances_fit_their_model(self, signed_in: dli.DeepLearningImpactV1) -> None:
        found = signed_in.get_app_instances().get_result()
        assert [dli.SigAppInstanceDetail.from_dict(each).name for each in found]

    def test_frameworks_fit_their_models(self, signed_in: dli.DeepLearningImpactV1) -> None:
        runnable = signed_in.get_platform_rest_deeplearning_execs_frameworks().get_result()
        names = {dli.DLFramework.from_dict(each).name for each in runnable}
        assert {"edtPyTorch", "edtTensorflow", "PyTorch", "distPyTorch", "tensorflow", "disttensorflow"} <= names
        [single] = [each for each in runnable if each["name"] == "PyTorch"]
        assert (single["execMode"], single["maxWorkers"], single["appName"]) == ("single", 1, "SingleNodePytorchTrain")
        for each in signed_in.get_deep_learning_frameworks().get_result():
            assert dli.FrameworkDetail.from_dict(each).name
        assert all(isinstance(name, str) for name in signed_in.get_all_deep_learning_frameworks().get_result())

    def test_the_configuration_is_an_object(self, signed_in: dli.DeepLearningImpactV1) -> None:
        assert isinstance(signed_in.get_deep_learning_conf().get_result(), dict)
