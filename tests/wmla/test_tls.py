"""`edt up --tls`: the whole platform behind TLS, for WMLA's command, the SDK's HTTP library, `edt` and other nodes."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
import requests

from support.credentials import PASSWORD
from support.dlicmd import Dlicmd
from support.running_platform import Platform
from support.waiting import until

pytestmark = pytest.mark.lane("processes")  # a whole platform


def own(platform: Platform) -> Path:
    return platform.home / "tls" / "certificate.pem"


@pytest.mark.timeout(300)  # a machine may be busy
def test_a_job_goes_through_a_platform_that_speaks_tls_with_a_certificate_of_its_own_making(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print('hello over TLS')\n")
    with Platform(tmp_path, slots=1, tls=True) as platform:
        said = re.search(r"TLS with (\S+), SHA-256 ((?:[0-9A-F]{2}:){31}[0-9A-F]{2})\n", platform.log)
        assert said is not None
        assert said[1] == str(own(platform))
        assert f"OpenEDT is at {platform.url}" in platform.log

        # WMLA's command checks no certificate, and needs no proxy.
        command = Dlicmd(tmp_path / "person", platform.url)
        assert command("--logon", "--username", "admin", "--password", PASSWORD).status == 0
        job = command("--exec-start", "edtPyTorch", "--model-main", str(tmp_path / "main.py")).json["execId"]
        platform.checker.acknowledge(job)
        platform.jobs.append(job)
        until(lambda: command("--exec-get", job).json["state"] == "FINISHED", 60)
        assert command("--exec-trainoutlogs", job).out == "hello over TLS\n"

        # The SDK's HTTP library checks it against the file, by name and by address; without the file it refuses.
        for url in (platform.url, platform.url.replace("127.0.0.1", "localhost")):
            answer = requests.get(
                f"{url}/auth/v1/logon", auth=("admin", PASSWORD), verify=str(own(platform)), timeout=9
            )
            assert answer.json()["accessToken"].count(".") == 2
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(f"{platform.url}/livez", timeout=9)

        # `edt` on this machine believes its own home; elsewhere it takes a file, and nothing without.
        here = {"EDT_HOME": str(platform.home), "EDT_API": ""}
        assert platform.cli("login", "--password-stdin", stdin=f"{PASSWORD}\n", **here).returncode == 0
        assert job in platform.cli("ls", "--all", **here).stdout
        assert "ready" in platform.cli("doctor", "--home", str(platform.home), **here).stdout
        elsewhere = {"EDT_HOME": str(tmp_path / "elsewhere"), "XDG_CONFIG_HOME": str(tmp_path / "other")}
        refused = platform.cli("login", "--password-stdin", stdin=f"{PASSWORD}\n", **elsewhere)
        assert refused.returncode == 1
        assert re.search(r"certificate of https://\S+ is not accepted .* --ca FILE", refused.stderr)
        words = ("login", "--password-stdin", "--ca", str(own(platform)))
        assert platform.cli(*words, stdin=f"{PASSWORD}\n", **elsewhere).returncode == 0
        assert job in platform.cli("ls", "--all", **elsewhere).stdout


@pytest.mark.extended
@pytest.mark.timeout(400)  # it starts three times, and a machine may be busy
def test_other_nodes_come_in_by_tls_and_a_later_start_remembers_it(tmp_path: Path) -> None:
    with Platform(tmp_path, slots=1, tls=True) as platform:
        platform.environ["EDT_CA_FILE"] = str(own(platform))
        platform.add_node("second", 1)
        assert {node["name"]: node["health"] for node in platform.nodes()}["second"] == "up"
        [before] = set(re.findall(r"SHA-256 (\S+)", platform.log))
        assert platform.interrupt() == 0
        platform.start()
        assert set(re.findall(r"SHA-256 (\S+)", platform.log)) == {before}
        assert platform.interrupt() == 0
        platform.start("--no-tls", ready=False)
        plain = platform.url.replace("https:", "http:")
        until(lambda: f"OpenEDT is at {plain}" in platform.log, 60)
        assert httpx.get(f"{plain}/livez", trust_env=False).is_success
        assert platform.interrupt() == 0
