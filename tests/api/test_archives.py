"""The extractor: what it takes, and that whatever is cut, broken or aimed elsewhere is refused whole."""

from __future__ import annotations

import gzip
import io
import os
import random
import shutil
import struct
import subprocess
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edt_api.errors import ArchiveRefused, TooLarge
from edt_api.submissions.archives import unpack
from edt_api.submissions.archives.tree import LIMITS, Limits

BLOCK = 512
FILES = {"net/main.py": b"print('hello')\n" * 60, "net/empty.txt": b"", "net/lib/data.bin": bytes(range(256)) * 5}
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""Thousands of archives are unpacked here, and each is synced to where it lies."""
fuzzy = settings(max_examples=80, deadline=None)


def tarred(files: Mapping[str, bytes] = FILES, form: int = tarfile.GNU_FORMAT, mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(data), mode
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def zipped(files: Mapping[str, bytes] = FILES, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return buffer.getvalue()


def one_member(**facts: object) -> bytes:
    """A tar with one member of any type and name, and a good one before it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("good.py"))
        member = tarfile.TarInfo()
        for name, value in facts.items():
            setattr(member, name, value)
        archive.addfile(member)
    return buffer.getvalue()


@contextmanager
def place() -> Iterator[Path]:
    """A folder to unpack into, inside one where a trespasser would be seen."""
    outside = Path(tempfile.mkdtemp(prefix="edt-unpack-", dir=MEMORY))
    try:
        (outside / "staged").mkdir()
        yield outside / "staged" / "upload"
        assert [path.name for path in outside.iterdir()] == ["staged"]
    finally:
        shutil.rmtree(outside)


def unpacked(data: bytes, limits: Limits = LIMITS) -> dict[str, bytes]:
    """What the archive holds. Where it is refused, that nothing of it is left."""
    with place() as into:
        try:
            unpack(io.BytesIO(data), into, script="script.py", limits=limits)
        except (ArchiveRefused, TooLarge):
            assert not into.exists()
            raise
        found = [path for path in into.rglob("*") if not path.is_dir()]
        assert all(path.is_file() and not path.is_symlink() for path in found)
        return {path.relative_to(into).as_posix(): path.read_bytes() for path in found}


def refused(data: bytes, match: str | None = None, limits: Limits = LIMITS) -> str:
    with pytest.raises((ArchiveRefused, TooLarge), match=match) as error:
        unpacked(data, limits)
    return str(error.value)


class TestWhatIsTaken:
    @pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    def test_every_form_of_tar_plain_or_with_gzip(self, form: int) -> None:
        files = {**FILES, f"{'long' * 20}/{'name' * 20}.py": b"x" * 513}
        assert unpacked(tarred(files, form)) == files
        assert unpacked(gzip.compress(tarred(files, form))) == files

    @pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    def test_names_of_any_length_and_script(self, form: int) -> None:
        files = {f"{'d' * 120}/{'e' * 120}/größe-数据.py": b"1"}
        assert unpacked(tarred(files, form)) == files

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    def test_zip(self, method: int) -> None:
        assert unpacked(zipped(FILES, method)) == FILES

    def test_zip_as_it_is_written_to_a_pipe_and_with_wide_headers(self) -> None:
        class Pipe(io.BytesIO):
            def seekable(self) -> bool:
                return False

            def seek(self, *_: object) -> int:
                raise OSError("a pipe")

            def tell(self) -> int:
                raise OSError("a pipe")

        pipe = Pipe()
        with (
            zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("a.py", "w", force_zip64=True) as f,
        ):
            f.write(b"x" * 1000)
        assert unpacked(pipe.getvalue()) == {"a.py": b"x" * 1000}

    def test_a_zip_with_a_comment(self) -> None:
        buffer = io.BytesIO(zipped())
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.comment = b"made by hand"
        assert unpacked(buffer.getvalue()) == FILES

    @pytest.mark.parametrize(("raw", "name"), [("größe.py".encode(), "größe.py"), (b"gr\x94\xe1e.py", "größe.py")])
    def test_names_in_a_zip_that_does_not_say_how_they_are_written(self, raw: bytes, name: str) -> None:
        assert unpacked(zipped({"x" * len(raw): b"1"}).replace(b"x" * len(raw), raw)) == {name: b"1"}

    def test_a_bare_script_gets_the_name_it_was_given(self) -> None:
        assert unpacked(b"print('hello')\n") == {"script.py": b"print('hello')\n"}

    @pytest.mark.skipif(shutil.which("tar") is None, reason="needs tar")
    @pytest.mark.parametrize("flags", [["-cf"], ["-czf"], ["--format=posix", "-cf"], ["--format=v7", "-cf"]])
    def test_what_tar_makes_of_a_folder_with_its_root_entry(self, tmp_path: Path, flags: list[str]) -> None:
        (tmp_path / "x" / "lib").mkdir(parents=True)
        (tmp_path / "x" / "main.py").write_bytes(b"1\n")
        (tmp_path / "x" / "lib" / "a.py").write_bytes(b"2\n")
        subprocess.run(["tar", *flags, "x.tar", "-C", "x", "."], cwd=tmp_path, check=True)
        assert unpacked((tmp_path / "x.tar").read_bytes()) == {"main.py": b"1\n", "lib/a.py": b"2\n"}

    def test_several_gzip_members_and_zeros_behind_them_are_one_stream(self) -> None:
        whole = tarred()
        assert unpacked(gzip.compress(whole[:700]) + gzip.compress(whole[700:]) + bytes(1000)) == FILES

    def test_a_global_header_as_git_archive_writes_it_is_read_past(self) -> None:
        buffer = io.BytesIO()
        with tarfile.open(
            fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "0" * 40}
        ) as archive:
            archive.addfile(tarfile.TarInfo("a.py"))
        assert unpacked(buffer.getvalue()) == {"a.py": b""}

    def test_of_a_files_mode_only_whether_it_can_be_run_is_kept(self) -> None:
        for mode, kept in ((0o6777, 0o755), (0o600, 0o644), (0o000, 0o644)):
            with place() as into:
                unpack(io.BytesIO(tarred({"a.sh": b"x"}, mode=mode)), into, script="s")
                assert (into / "a.sh").stat().st_mode & 0o7777 == kept & ~_umask()

    def test_it_is_on_disk_when_it_is_told_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        synced: set[str] = set()
        real = os.fsync

        def fsync(descriptor: int) -> None:
            synced.add(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)
        with place() as into:
            unpack(io.BytesIO(tarred()), into, script="s")
            assert {str(path) for path in (into.parent, into, *into.rglob("*"))} <= synced


class TestCutOrBroken:
    def test_a_tar_cut_at_any_block_is_refused_until_its_end_mark_is_whole(self) -> None:
        whole = tarred()
        marked = len(whole.rstrip(b"\0")) // BLOCK * BLOCK + BLOCK + 2 * BLOCK
        for cut in range(BLOCK, len(whole), BLOCK):
            if cut < marked:
                refused(whole[:cut], "cut short|broken")
            else:
                assert unpacked(whole[:cut]) == FILES

    def test_a_tar_cut_inside_a_block_is_refused(self) -> None:
        whole = tarred()
        for cut in range(BLOCK + 1, len(whole.rstrip(b"\0")), 97):
            refused(whole[:cut])

    def test_a_gzip_cut_anywhere_is_refused(self) -> None:
        whole = gzip.compress(tarred())
        for cut in range(2, len(whole)):
            refused(whole[:cut])

    def test_a_gzip_header_with_flags_that_mean_nothing_is_refused(self) -> None:
        whole = gzip.compress(tarred())
        refused(whole[:3] + b"\xe0" + whole[4:], "broken")

    def test_a_zip_cut_anywhere_is_refused(self) -> None:
        whole = zipped()
        for cut in range(4, len(whole)):
            refused(whole[:cut])

    def test_a_broken_header_in_the_middle_is_not_taken_for_the_end(self) -> None:
        whole = bytearray(tarred({"a.py": b"1", "b.py": b"2", "c.py": b"3"}))
        for damage in (b"\0" * BLOCK, b"\xff" * BLOCK, b"garbage".ljust(BLOCK)):
            broken = bytes(whole[: 2 * BLOCK]) + damage + bytes(whole[3 * BLOCK :])
            with tarfile.open(fileobj=io.BytesIO(broken), ignore_zeros=False) as lenient:
                assert lenient.getnames() == ["a.py"]  # what the standard library makes of it
            refused(broken, "broken")

    def test_any_byte_of_a_header_that_is_another_is_noticed(self) -> None:
        whole = tarred({"a.py": b"1", "b.py": b"2"})
        for at in range(2 * BLOCK, 3 * BLOCK):
            for damage in (whole[at] ^ 1, whole[at] ^ 0x80, 0):
                broken = whole[:at] + bytes([damage]) + whole[at + 1 :]
                try:
                    assert unpacked(broken) == {"a.py": b"1", "b.py": b"2"}
                except ArchiveRefused:
                    continue

    @pytest.mark.parametrize("make", [lambda: gzip.compress(tarred(), mtime=0), zipped], ids=["gzip", "zip"])
    def test_any_byte_that_is_another_is_noticed_or_changes_nothing(self, make: object) -> None:
        whole: bytes = make()  # type: ignore[operator]
        for at in range(len(whole)):
            broken = whole[:at] + bytes([whole[at] ^ random.Random(at).randrange(1, 256)]) + whole[at + 1 :]
            try:
                assert unpacked(broken) == FILES
            except (ArchiveRefused, TooLarge):
                continue

    def test_what_follows_the_end_is_refused(self) -> None:
        refused(tarred() + b"more", "follows its end")
        refused(tarred() + tarred(), "follows its end")
        refused(gzip.compress(tarred()) + b"more", "broken")
        refused(zipped() + b"more", "follows its end")
        refused(b"#!/bin/sh\n" * 60 + zipped())

    def test_a_name_told_for_a_file_that_does_not_come_is_refused(self) -> None:
        whole = tarred({"n" * 150: b"1"})
        refused(whole[: 2 * BLOCK] + bytes(2 * BLOCK), "without its file")

    @pytest.mark.parametrize(
        ("record", "why"),
        [
            (b"99 path=x\n", "cannot be read"),
            (b"0 path=x\n", "cannot be read"),
            (b"11 path:xx\n", "cannot be read"),
            (b"11 size=-1\n", "no number"),
            (b"18 path=../../etc\n", "leads out"),
            (b"27 GNU.sparse.realsize=999\n", "sparse"),
            (b"11 path=\xff\xfe\n", "UTF-8"),
        ],
    )
    def test_extension_headers_are_no_way_round(self, record: bytes, why: str) -> None:
        header = tarfile.TarInfo("x")
        header.type, header.size = tarfile.XHDTYPE, len(record)
        data = header.tobuf(tarfile.USTAR_FORMAT) + record.ljust(BLOCK, b"\0") + tarred({"a": b""})
        refused(data, why)

    @pytest.mark.parametrize(
        "data", [b"", bytes(1024), tarred({}), zipped({}), b"\x1f\x8b", b"PK\x03\x04", b"\x7fELF\0\0"]
    )
    def test_what_holds_nothing_is_refused(self, data: bytes) -> None:
        refused(data)

    @pytest.mark.parametrize(("magic", "name"), [(b"BZh9", "bzip2"), (b"\xfd7zXZ\0", "xz"), (b"Rar!", "RAR")])
    def test_other_packers_are_refused_by_name(self, magic: bytes, name: str) -> None:
        refused(magic + b"whatever", f"{name}.*gzip")


class TestNeverElsewhere:
    @pytest.mark.parametrize(
        "name",
        [
            "../up", "a/../../up", "/etc/passwd", "//etc/passwd", "a/..", "..", "C:/x", "c:x", "a\\..\\up", "a\nb",
            "a\x1bb", "/".join("d" * 40), "n" * 256, "/".join(["n" * 200] * 6),
        ],
    )  # fmt: skip
    def test_names_that_could_lead_out_or_confuse_are_refused(self, name: str) -> None:
        for data in (tarred({name: b"x"}), tarred({name: b"x"}, tarfile.PAX_FORMAT), zipped({name: b"x"})):
            refused(data)
        refused(one_member(name=name, type=tarfile.DIRTYPE))

    @pytest.mark.parametrize(
        ("kind", "word"),
        [
            (tarfile.SYMTYPE, "symbolic link"),
            (tarfile.LNKTYPE, "hard link"),
            (tarfile.CHRTYPE, "character device"),
            (tarfile.BLKTYPE, "block device"),
            (tarfile.FIFOTYPE, "pipe"),
            (tarfile.GNUTYPE_SPARSE, "sparse"),
            (b"M", "do not know"),
            (b"Z", "do not know"),
        ],
    )
    def test_links_devices_and_the_like_are_refused_by_name(self, kind: bytes, word: str) -> None:
        assert "'evil'" in refused(one_member(name="evil", type=kind, linkname="good.py"), word)

    def test_a_link_in_a_zip_is_refused_by_name(self) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            link = zipfile.ZipInfo("evil")
            link.external_attr = 0o120777 << 16
            archive.writestr(link, "/etc/passwd")
        assert "'evil'" in refused(buffer.getvalue(), "link")

    def test_nothing_comes_twice_or_as_file_and_folder(self) -> None:
        both = tarred({"a": b"1"})[: 2 * BLOCK]
        refused(both + tarred({"a": b"2"}), "twice")
        refused(both + tarred({"./a": b"2"}), "twice")
        refused(both + tarred({"a/b": b"2"}), "file and a folder")
        refused(tarred({"a/b": b"2"})[: 2 * BLOCK] + tarred({"a": b"2"}), "twice")

    def test_names_that_are_not_utf8_are_refused(self) -> None:
        refused(tarred({"x": b""}).replace(b"x\0", b"\xff\0", 1).replace(*_checksums(b"x", b"\xff")), "UTF-8")


class TestBombs:
    SMALL = Limits(total_bytes=100_000, file_bytes=50_000, members=20, ratio=10, ratio_from_bytes=20_000)

    def test_bytes_are_counted_as_they_are_written(self) -> None:
        noise = random.Random(1).randbytes
        refused(tarred({"a": noise(60_000)}), "larger than 50000", self.SMALL)
        refused(tarred({name: noise(40_000) for name in "abc"}), "too large", self.SMALL)

    @pytest.mark.parametrize("pack", [lambda data: gzip.compress(tarred(data)), zipped], ids=["gzip", "zip"])
    def test_what_unpacks_to_too_many_times_itself_is_refused(self, pack: object) -> None:
        assert unpacked(pack({"a": bytes(15_000)}), self.SMALL)  # type: ignore[operator]
        refused(pack({"a": bytes(45_000)}), "too large", self.SMALL)  # type: ignore[operator]

    def test_a_real_bomb_is_stopped_before_it_has_cost_much(self) -> None:
        data = zlib.compressobj(9, wbits=31)
        header = tarfile.TarInfo("zeros")
        header.size = 1 << 40
        bomb = data.compress(header.tobuf()) + b"".join(data.compress(bytes(1 << 20)) for _ in range(64)) + data.flush()
        refused(bomb, "too large")

    def test_padding_is_counted_too(self) -> None:
        refused(gzip.compress(tarred() + bytes(40 << 20)), "unpacks to more", self.SMALL)

    def test_there_is_a_most_of_files_and_folders(self) -> None:
        refused(tarred({f"{n}.py": b"" for n in range(21)}), "too many", self.SMALL)
        refused(tarred({"/".join("abcdefghijklmnopqrstu"): b""}), "too many", self.SMALL)

    def test_there_is_a_most_of_headers_of_a_tar_that_add_no_file(self) -> None:
        header = tarfile.TarInfo("about nothing")
        header.type = tarfile.XGLTYPE
        empty = header.tobuf(tarfile.USTAR_FORMAT)
        assert unpacked(empty * 57 + tarred(), self.SMALL) == FILES
        refused(empty * 58 + tarred(), "too many headers: at most 60", self.SMALL)
        folder = tarfile.TarInfo("a")
        folder.type = tarfile.DIRTYPE
        refused(folder.tobuf() * 58 + tarred(), "too many headers", self.SMALL)

    def test_every_file_may_have_two_headers_that_tell_more(self) -> None:
        names = [f"{'long' * 30}{number}.py" for number in range(20)]
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            assert len(unpacked(tarred(dict.fromkeys(names, b"x"), form), self.SMALL)) == 20

    def test_entries_of_a_zip_with_a_comment_are_counted_once(self) -> None:
        buffer = io.BytesIO(zipped({f"{n}.py": b"" for n in range(20)}))
        with zipfile.ZipFile(buffer, "a") as archive:
            archive.comment = b"made by hand"
        assert len(unpacked(buffer.getvalue(), self.SMALL)) == 20

    def test_entries_of_a_zip_are_counted_before_any_is_made(self, monkeypatch: pytest.MonkeyPatch) -> None:
        many, few = zipped({f"{n}.py": b"" for n in range(21)}), zipped({f"{n}.py": b"" for n in range(20)})
        assert len(unpacked(few, self.SMALL)) == 20
        long = replace(self.SMALL, directory_bytes=700)
        monkeypatch.delattr(zipfile, "ZipInfo")
        refused(many, "too many files: at most 20", self.SMALL)
        refused(few, "directory has .* bytes: at most 700", long)

    def test_entries_of_a_zip_that_a_wrong_length_swallows_are_missed(self) -> None:
        whole = zipped({"a": b"1", "b": b"2"})
        comment = whole.index(b"PK\x01\x02") + 32
        swallowed = whole[:comment] + struct.pack("<H", 47) + whole[comment + 2 :]
        assert zipfile.ZipFile(io.BytesIO(swallowed)).namelist() == ["a"], "what the standard library makes of it"
        refused(swallowed, "has 1 entries, and declares 2")

    def test_zip_entries_that_share_their_bytes_are_refused(self) -> None:
        whole = zipped({"a": b"x" * 100, "b": b"x" * 100}, zipfile.ZIP_STORED)
        directory = whole.index(b"PK\x01\x02")
        second = whole.index(b"PK\x01\x02", directory + 1)
        forged = whole[: second + 42] + struct.pack("<L", 0) + whole[second + 46 :]
        refused(forged, "differ|overlaps")
        same = whole[:second] + whole[directory:second] + whole[second + (second - directory) :]
        refused(same, "overlaps")

    def test_a_zip_that_lies_about_its_sizes_is_refused(self) -> None:
        whole = zipped({"a": b"x" * 5000})
        at = whole.index(b"PK\x01\x02") + 24
        refused(whole[:at] + struct.pack("<L", 10) + whole[at + 4 :], "'a'.*Bad CRC-32")

    def test_encrypted_and_oddly_packed_zips_are_refused(self) -> None:
        whole = zipped({"a": b"x" * 50})
        directory = whole.index(b"PK\x01\x02")
        refused(whole[: directory + 8] + b"\x01\x00" + whole[directory + 10 :], "encrypted")
        odd = whole[:8] + b"\x0e\x00" + whole[10 : directory + 10] + b"\x0e\x00" + whole[directory + 12 :]
        refused(odd, "method 14")


NAMES = st.from_regex(r"[a-z]{1,3}(/[a-z]{1,3}){0,2}\.py", fullmatch=True)
TREES = st.dictionaries(NAMES, st.binary(max_size=1500), min_size=1, max_size=5)


class TestAnything:
    @fuzzy
    @given(TREES)
    def test_every_tree_comes_back_as_it_was(self, files: dict[str, bytes]) -> None:
        for data in (tarred(files), gzip.compress(tarred(files, tarfile.PAX_FORMAT)), zipped(files)):
            assert unpacked(data) == files

    @fuzzy
    @given(st.binary(max_size=2000), st.sampled_from([b"", b"\x1f\x8b\x08", b"PK\x03\x04", b"PK\x05\x06"]))
    def test_any_bytes_are_taken_or_refused(self, data: bytes, magic: bytes) -> None:
        with suppress(ArchiveRefused, TooLarge):
            unpacked(magic + data)

    @fuzzy
    @given(st.data())
    def test_any_mixture_of_good_archives_is_taken_or_refused(self, data: st.DataObject) -> None:
        whole = data.draw(st.sampled_from([tarred(), tarred(form=tarfile.PAX_FORMAT), zipped()]))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), min_size=2, max_size=2)))
        insert = data.draw(st.sampled_from([b"", bytes(512), whole[:512], b"PK\x05\x06", b"../x", b"\xff" * 12]))
        with suppress(ArchiveRefused, TooLarge):
            unpacked(whole[: cuts[0]] + insert + whole[cuts[1] :])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _checksums(old: bytes, new: bytes) -> tuple[bytes, bytes]:
    """The checksum field of a header named ``old``, and what it is where it is named ``new``."""
    was = tarfile.TarInfo(old.decode()).tobuf(tarfile.GNU_FORMAT)[148:156]
    return was, b"%06o\0 " % (int(was[:6], 8) - sum(old) + sum(new))
