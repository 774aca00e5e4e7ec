"""`edt up`'s last resort: all that belongs to a home is killed, whatever it is doing at that instant."""

from __future__ import annotations

import subprocess
import sys
import uuid

from edt_cli.up.home import TAG_VARIABLE

FOR_EVER = 'exec /bin/sh -c "$AGAIN"'
PLATFORM = f"""
import subprocess, sys
from edt_cli.up.services import kill_all
from edt_contract.processes import adopt_orphans
adopt_orphans()
bare = subprocess.Popen(["/bin/sh", "-c", "/bin/sleep 600 & exec /bin/sleep 600"], env={{}})
print(kill_all("{TAG_VARIABLE}", sys.argv[1]))
assert bare.wait(10) == -9
while kill_all("{TAG_VARIABLE}", sys.argv[1]):
    pass
"""


def test_the_command_line_asks_for_psutil_only_where_it_starts_a_platform() -> None:
    bare = "import sys; sys.modules['psutil'] = None; from edt_cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", bare, "up", "--help"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_process_of_a_home_escapes_by_showing_no_environment() -> None:
    """Neither those that are just becoming another program, nor children that were started with none."""
    tag = uuid.uuid4().hex
    environ = {TAG_VARIABLE: tag, "AGAIN": FOR_EVER}
    restless = [subprocess.Popen(["/bin/sh", "-c", FOR_EVER], env=environ) for _ in range(6)]
    somebody = subprocess.Popen(["/bin/sleep", "600"], env={**environ, TAG_VARIABLE: "another home"})
    try:
        done = subprocess.run(
            [sys.executable, "-c", PLATFORM, tag], capture_output=True, text=True, timeout=60, check=True
        )
        assert int(done.stdout) in {7, 8}, "a child's own child may not have been started yet"
        assert [process.wait(10) for process in restless] == [-9] * 6
        assert somebody.poll() is None
    finally:
        for process in (*restless, somebody):
            process.kill()
            process.wait()
