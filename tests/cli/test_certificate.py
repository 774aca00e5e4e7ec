"""TLS of `edt up`: which certificate it takes, what it makes by itself, and who is believed."""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography import x509

from edt_cli import login, trust
from edt_cli.errors import CannotStart
from edt_cli.up import certificate
from edt_cli.up.certificate import Certificate, choose, remembered_certificate
from edt_contract import tls

NONE = (None, None)


def made(home: Path, host: str = "127.0.0.1") -> Certificate:
    """The home's own certificate."""
    home.mkdir(exist_ok=True)
    chosen = choose(home, host, True, NONE)
    assert chosen is not None
    return chosen


@contextmanager
def shown(certificate: Certificate) -> Iterator[int]:
    """A server that shows this certificate; its port."""
    context = tls.serving(certificate.certificate, certificate.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                    with connection, context.wrap_socket(connection, server_side=True) as secure:
                        secure.recv(1)
                except ssl.SSLError:
                    continue  # the client does not accept it
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


def accepts(context: ssl.SSLContext, port: int, name: str) -> bool:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        try:
            with context.wrap_socket(plain, server_hostname=name):
                return True
        except ssl.SSLCertVerificationError:
            return False


class TestItsOwnCertificate:
    def test_it_names_this_machine_and_its_key_is_its_owners_alone(self, tmp_path: Path) -> None:
        own = made(tmp_path, "10.1.2.3")
        read = x509.load_pem_x509_certificate(own.certificate.read_bytes())
        names = certificate._names_in(read)
        assert {"localhost", "127.0.0.1", "::1", socket.gethostname(), "10.1.2.3"} <= set(names)
        assert read.not_valid_after_utc - datetime.datetime.now(datetime.UTC) > datetime.timedelta(days=3640)
        assert stat.S_IMODE(own.key.stat().st_mode) == 0o600
        shown = subprocess.run(
            ["openssl", "x509", "-in", str(own.certificate), "-noout", "-fingerprint", "-sha256"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout.strip().partition("=")[2] == own.fingerprint

    def test_a_verifier_that_takes_the_rules_strictly_accepts_it(self, tmp_path: Path) -> None:
        own = made(tmp_path)
        words = ["openssl", "verify", "-x509_strict", "-CAfile", str(own.certificate), "-verify_ip", "127.0.0.1"]
        done = subprocess.run([*words, str(own.certificate)], capture_output=True, text=True, check=False)
        assert done.stdout.endswith(": OK\n"), done.stderr

    def test_it_is_kept_until_it_runs_out_or_another_name_is_wanted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        first = made(tmp_path).fingerprint
        assert made(tmp_path).fingerprint == first
        other = made(tmp_path, "10.1.2.3").fingerprint
        assert other != first
        assert made(tmp_path).fingerprint == other  # it has more names than are wanted
        monkeypatch.setattr(certificate, "_RENEWED_BEFORE_DAYS", 3651)
        assert made(tmp_path).fingerprint != other
        (tmp_path / "tls" / "certificate.pem").write_text("scribble")
        assert made(tmp_path).fingerprint

    def test_a_key_without_its_certificate_is_replaced_together_with_it(self, tmp_path: Path) -> None:
        own = made(tmp_path / "home")
        own.key.write_bytes(made(tmp_path / "other").key.read_bytes())  # the machine went down before the certificate
        assert tls.serving(made(tmp_path / "home").certificate, own.key)

    def test_a_choice_that_cannot_be_read_does_not_lead_back_to_plain_http(self, tmp_path: Path) -> None:
        made(tmp_path)
        (tmp_path / "tls" / "choice.json").write_text("scribble")
        with pytest.raises(CannotStart, match="--tls or --no-tls"):
            choose(tmp_path, "127.0.0.1", None, NONE)
        assert choose(tmp_path, "127.0.0.1", False, NONE) is None
        assert choose(tmp_path, "127.0.0.1", None, NONE) is None

    def test_the_choice_is_remembered_until_another_is_made(self, tmp_path: Path) -> None:
        home = tmp_path / "home"
        home.mkdir()
        assert choose(home, "127.0.0.1", None, NONE) is None
        own = made(home)
        assert choose(home, "127.0.0.1", None, NONE) == own == remembered_certificate(home)
        given = made(tmp_path / "elsewhere")
        assert choose(home, "127.0.0.1", None, (given.certificate, given.key)) == given
        assert choose(home, "127.0.0.1", None, NONE) == given
        assert choose(home, "127.0.0.1", True, NONE) == own
        assert choose(home, "127.0.0.1", False, NONE) is None
        assert choose(home, "127.0.0.1", None, NONE) is remembered_certificate(home) is None

    @pytest.mark.parametrize(
        ("wrong", "said"),
        [
            ("no key", "go together"),
            ("not there", "cannot be read: No such file"),
            ("no certificate", "holds no certificate"),
            ("no key in it", "holds no key"),
            ("another's key", "are no certificate with its key"),
            ("encrypted", "is encrypted"),
        ],
    )
    def test_what_cannot_be_shown_is_one_sentence(self, tmp_path: Path, wrong: str, said: str) -> None:
        good, other, text = made(tmp_path / "a"), made(tmp_path / "b"), tmp_path / "text"
        text.write_text("nothing of that kind")
        files: dict[str, tuple[Path, Path | None]] = {
            "no key": (good.certificate, None),
            "not there": (tmp_path / "nowhere", good.key),
            "no certificate": (text, good.key),
            "no key in it": (good.certificate, text),
            "another's key": (good.certificate, other.key),
            "encrypted": (good.certificate, tmp_path / "locked"),
        }
        words = ["openssl", "pkey", "-in", str(good.key), "-aes128", "-passout", "pass:x", "-out", tmp_path / "locked"]
        subprocess.run(words, check=True)
        with pytest.raises(CannotStart, match=said) as refused:
            choose(tmp_path, "127.0.0.1", None, files[wrong])
        assert len(str(refused.value).splitlines()) == 1


class TestWhoIsBelieved:
    def test_a_certificate_given_by_itself_is_accepted_at_any_address_and_no_other_is(self, tmp_path: Path) -> None:
        own, other = made(tmp_path / "a"), made(tmp_path / "b")
        with shown(own) as port:
            assert accepts(tls.by_itself(own.certificate), port, "some.name.example")
            assert not accepts(tls.by_itself(other.certificate), port, "localhost")
            assert accepts(tls.by_authorities(own.certificate), port, "localhost")
            assert not accepts(tls.by_authorities(own.certificate), port, "some.name.example")
            assert not accepts(tls.by_authorities(other.certificate), port, "localhost")

    def test_of_a_chain_only_the_servers_own_certificate_is_accepted(self, tmp_path: Path) -> None:
        own, other = made(tmp_path / "a"), made(tmp_path / "b")
        chain = tmp_path / "chain.pem"
        chain.write_text(own.certificate.read_text() + other.certificate.read_text())
        with shown(other) as port:
            assert not accepts(tls.by_itself(chain), port, "localhost")

    def test_a_login_from_before_tls_leads_to_the_homes_api_as_it_speaks_now(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = tmp_path / "home"
        home.mkdir()
        (home / "port").write_text("9280\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.setenv("EDT_HOME", str(home))
        monkeypatch.delenv("EDT_API", raising=False)
        login.login_file().parent.mkdir(parents=True)
        login.login_file().write_text(json.dumps({"api": "http://127.0.0.1:9280", "user": "ana", "token": "t"}))
        assert login.api_address(None) == "http://127.0.0.1:9280"
        made(home)
        assert login.api_address(None) == "https://127.0.0.1:9280"
        assert login.token_for(login.api_address(None)) is None  # it goes nowhere but where it came from
        login.login_file().write_text(json.dumps({"api": "http://edt.example:9280", "user": "ana", "token": "t"}))
        assert login.api_address(None) == "http://edt.example:9280"

    def test_edt_believes_the_file_of_the_environment_then_the_logins_then_its_own_homes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home, own, other = tmp_path / "home", made(tmp_path / "home"), made(tmp_path / "other")
        (home / "port").write_text("9280\n")
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
        monkeypatch.delenv("EDT_CA_FILE", raising=False)
        assert trust.home_address(home) == "https://127.0.0.1:9280"
        with shown(own) as mine, shown(other) as others:
            here, elsewhere = "https://localhost:9280", "https://edt.example:9280"

            def believed(api: str) -> tuple[bool, bool]:
                context = login.accepted_by(api, home)
                assert isinstance(context, ssl.SSLContext)
                return accepts(context, mine, "localhost"), accepts(context, others, "localhost")

            assert believed(here) == (True, False)
            assert login.accepted_by(elsewhere, home) is True  # what the machine's authorities have signed
            assert login.accepted_by("http://localhost:9280", home) is True
            login.login_file().parent.mkdir(parents=True)
            kept = {"api": elsewhere, "user": "ana", "token": "t", "ca": str(other.certificate)}
            login.login_file().write_text(json.dumps(kept))
            assert believed(elsewhere) == (False, True)
            assert believed(here) == (True, False)
            monkeypatch.setenv("EDT_CA_FILE", str(other.certificate))
            assert believed(here) == (False, True)
            monkeypatch.setenv("EDT_CA_FILE", str(tmp_path / "nowhere"))
            with pytest.raises(CannotStart, match="cannot be read"):
                login.accepted_by(here, home)
