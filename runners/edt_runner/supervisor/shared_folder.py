"""The files in the job's checkpoint folder by which supervisors learn about the attempt when messages do not arrive."""

from __future__ import annotations

import json
from pathlib import Path

from edt_contract.attempt import FENCE_FILE, AttemptSpec
from edt_contract.durable import write_whole
from edt_runner.supervisor import users

HEAD_NODE_FILE = "head-node"
"""File in the job's checkpoint folder with fence, node and address of the supervisor that became the head node last."""


class SharedFolder:
    """The files in the job's checkpoint folder that tell supervisors about the attempt when messages do not arrive.

    All nodes of a job see the same folder. The job itself can write there, so the files may hold anything.
    """

    def __init__(self, spec: AttemptSpec) -> None:
        self._spec, self._folder = spec, Path(spec.checkpoint_dir)

    def shut_out_by(self) -> int:
        """The higher fence in the fence file, by which this attempt must end; 0: there is none."""
        try:
            with users.as_script():
                lowest = int((self._folder / FENCE_FILE).read_text())
        except (OSError, ValueError):
            return 0
        return lowest if lowest > self._spec.fence else 0

    def head_node(self) -> str | None:
        """``host:port`` of the supervisor that became this attempt's head node last; None: no supervisor has become it,
        or the file cannot be read."""
        try:
            with users.as_script():
                facts = json.loads((self._folder / HEAD_NODE_FILE).read_text())
            return str(facts["address"]) if facts["fence"] == self._spec.fence else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def name_head_node(self, address: str | None) -> None:
        """Write into the shared file that this node is the head node.

        Args:
            address: ``host:port`` of the coordinator.

        Raises:
            OSError: the disk does not accept the file.
        """
        facts = {"fence": self._spec.fence, "node": self._spec.node, "address": address}
        with users.as_script():
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._folder / HEAD_NODE_FILE, json.dumps(facts), durable=False)
