"""The dashboard's files: what is served, with which headers, and that nothing else is."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from edt_api.routes import pages
from support.served_api import ServedApi


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built dashboard: a page, an asset, an icon; and beside it what is nobody's business."""
    folder = tmp_path / "static"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>the page</title>")
    (folder / "icon.svg").write_text("<svg/>")
    (folder / "assets" / "index-abc123.js").write_text("export {}")
    (tmp_path / "secret").write_text("hidden away")
    (folder / "way-out").symlink_to(tmp_path)
    monkeypatch.setattr(pages, "STATIC", folder)
    return folder


def get(api: ServedApi, path: str) -> httpx.Response:
    return api.client().get(path)


def test_the_root_leads_to_the_dashboard_without_a_credential(api: ServedApi) -> None:
    for path in ("/", "/ui"):
        answer = get(api, path)
        assert (answer.status_code, answer.headers["location"]) == (307, "/ui/")


@pytest.mark.usefixtures("static")
def test_paths_that_are_the_dashboards_own_get_its_page_which_is_asked_for_again(api: ServedApi) -> None:
    odd = ("/ui/%00", f"/ui/{'a' * 300}", f"/ui/{'a/' * 3000}")
    for path in ("/ui/", "/ui/login", "/ui/jobs/edt-7/logs", "/ui/index.html", *odd):
        answer = get(api, path)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, "no-cache"), path
        assert "the page" in answer.text
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert api.client().head("/ui/").status_code == 200


@pytest.mark.usefixtures("static")
def test_assets_are_kept_for_ever_and_one_that_is_gone_is_not_the_page(api: ServedApi) -> None:
    asset = get(api, "/ui/assets/index-abc123.js")
    assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert asset.headers["content-type"].startswith("text/javascript")
    assert get(api, "/ui/icon.svg").headers["cache-control"] == "no-cache"
    gone = get(api, "/ui/assets/index-older.js")
    assert (gone.status_code, gone.json()["code"]) == (404, "no-such-page")
    assert gone.headers["cache-control"] == "no-store"


def test_assets_are_known_as_such_where_the_installation_lies_behind_a_link(
    api: ServedApi, static: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = static.with_name("link")
    link.symlink_to(static)
    monkeypatch.setattr(pages, "STATIC", link)
    assert "immutable" in get(api, "/ui/assets/index-abc123.js").headers["cache-control"]


@pytest.mark.usefixtures("static")
def test_scripts_travel_compressed_where_that_is_taken(api: ServedApi) -> None:
    path = "/ui/assets/index-abc123.js"
    for taken, encoding in (("gzip, deflate, br", "gzip"), ("identity", None)):
        answer = api.client().get(path, headers={"Accept-Encoding": taken})
        assert answer.headers.get("content-encoding") == encoding
        assert answer.headers["vary"] == "Accept-Encoding"
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
        assert answer.text == "export {}"
        assert len(api.client().head(path, headers={"Accept-Encoding": taken}).content) == 0


@pytest.mark.usefixtures("static")
def test_every_page_forbids_inline_code_foreign_sources_and_frames(api: ServedApi) -> None:
    for path in ("/ui/", "/ui/icon.svg", "/ui/assets/index-abc123.js"):
        headers = get(api, path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.usefixtures("static")
def test_no_path_leads_out_of_the_folder(api: ServedApi) -> None:
    for path in ("/ui/%2e%2e/secret", "/ui/assets/..%2f..%2fsecret", "/ui/way-out/secret", "/ui//etc/passwd"):
        answer = get(api, path)
        assert "hidden" not in answer.text, path
        assert "root:" not in answer.text, path


def test_a_dashboard_that_is_not_built_says_how_to_build_it(
    api: ServedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "STATIC", tmp_path / "nothing")
    answer = get(api, "/ui/jobs")
    assert answer.status_code == 503
    assert "make dashboard" in answer.text
    assert answer.headers["cache-control"] == "no-store"
