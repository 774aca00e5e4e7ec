"""Notebooks that a test runs in a real kernel, and what their cells have shown."""

from __future__ import annotations

import base64
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/notebook/digits.ipynb"
CLASSES = """
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from pyedt.fabric_model import FabricModel

inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
data = TensorDataset(inputs, (inputs.sum(1) > 0).long())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, inputs):
        return self.layer(inputs)


net = Net()
edt_model = FabricModel(net, lambda: (data, data), functional.cross_entropy, torch.optim.SGD(net.parameters(), 0.1))
"""
"""A cell with a small model of the notebook's own."""
forgiving = pytest.mark.filterwarnings(
    "ignore:Kernel is running over TCP without encryption",
    "ignore:Unclosed socket:ResourceWarning",
    "ignore:unclosed event loop:ResourceWarning",
)
"""For tests that run kernels: what their libraries warn of by themselves."""


@dataclass(frozen=True)
class Shown:
    """A notebook that has run."""

    notebook: NotebookNode

    @property
    def text(self) -> str:
        """What all cells have printed."""
        return "".join(output.text for output in self._outputs if output.output_type == "stream")

    @property
    def figures(self) -> list[bytes]:
        """The pictures below the cells, as PNG."""
        return [
            base64.b64decode(output.data["image/png"])
            for output in self._outputs
            if output.output_type == "display_data" and "image/png" in output.data
        ]

    @property
    def errors(self) -> list[str]:
        """``Name: message`` of each error that a cell has raised."""
        return [f"{output.ename}: {output.evalue}" for output in self._outputs if output.output_type == "error"]

    @property
    def whole(self) -> str:
        """Everything that is in the notebook's file."""
        return nbformat.writes(self.notebook)

    @property
    def _outputs(self) -> list[NotebookNode]:
        return [output for cell in self.notebook.cells for output in cell.get("outputs", [])]


def example() -> NotebookNode:
    """The notebook of ``examples/``."""
    return nbformat.read(EXAMPLE, as_version=4)


def script_of(notebook: NotebookNode) -> str:
    """The same lines as a script."""
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")


def notebook_of(*cells: str) -> NotebookNode:
    """A notebook with these cells of code."""
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])


def run(notebook: NotebookNode, folder: Path, environ: Mapping[str, str], *, may_fail: bool = False) -> Shown:
    """Run all cells in a kernel of their own.

    Args:
        notebook: its cells get what they show as outputs.
        folder: the kernel's folder.
        environ: its variables.
        may_fail: whether cells may raise errors; the cells after them then run all the same.
    """
    place = {"metadata": {"path": str(folder)}}
    client = NotebookClient(notebook, kernel_name="python3", timeout=200, resources=place, allow_errors=may_fail)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of event loops, inside nbclient
        client.execute(env=dict(environ))
    return Shown(notebook)
