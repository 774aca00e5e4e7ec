"""Gradients of a model's parameters as parts of flat vectors, and the way back.

A small model's gradients are written with one call for all of them, after the backward pass. A large model's gradients
are given away one by one while the backward pass goes on with the layers before: a hook on each parameter takes the
gradient as soon as it is complete. That needs no memory for all gradients at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from edt_runner.comm.buckets import SINGLE_BYTES
from edt_runner.comm.tree_reduction import Sink
from edt_runner.errors import PeerLost
from edt_runner.step_times import Phase, clock


class Gradients:
    """The gradients of the trained parameters.

    Args:
        parameters: the trained parameters, in the order of the flat vector.
        dtype: dtype of flat vectors.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], dtype: torch.dtype) -> None:
        self._parameters, self._dtype = list(parameters), dtype
        self.sizes = [parameter.numel() for parameter in parameters]
        ends = list(accumulate(self.sizes))
        self._bounds = [(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]
        self.streams = sum(self.sizes) * dtype.itemsize > SINGLE_BYTES
        """Whether gradients are given away while the backward pass runs."""
        self._views: Any = WeakTensorKeyDictionary()
        """For each flat vector, its parts in the parameters' shapes. Making them takes longer than using them."""
        self._fit: dict[torch.device, bool] = {}
        """Whether views of a vector on this device can be the gradients of all parameters, without a copy."""
        self._take: Callable[[int], None] | None = None
        self._hooks: list[Any] = []

    @property
    def pays(self) -> bool:
        """Whether gradients are better given away during the backward pass even if nothing is sent meanwhile: where it
        saves memory. On a GPU that would cost launches."""
        return all(parameter.device.type == "cpu" for parameter in self._parameters)

    def _listen(self) -> None:
        """Let the backward pass call ``take``."""
        if not self._hooks:
            for index, parameter in enumerate(self._parameters):
                own: Any = parameter  # torch's method has no types
                self._hooks.append(own.register_post_accumulate_grad_hook(_hook(weakref.ref(self), index)))

    def clear(self) -> None:
        """Forget all gradients."""
        for parameter in self._parameters:
            parameter.grad = None

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the parts of a flat vector's gradients in the shapes of the parameters, as views.

        Args:
            vector: tensor of at least as many numbers as there are gradients, which come first.
        """
        found: list[Tensor] | None = self._views.get(vector)
        if found is None:
            parts = torch.split(vector.detach()[: sum(self.sizes)], self.sizes)  # those of itself would keep it alive
            found = [part.view(parameter.shape) for part, parameter in zip(parts, self._parameters, strict=True)]
            self._views[vector] = found
        return found

    # ── into a vector ─────────────────────────────────────────────────────────────────────────────────────────
    @torch.no_grad()  # a gradient may have a graph of its own
    def put(self, sink: Sink, factor: float) -> list[bool]:
        """Give all gradients x ``factor`` to a sink, after the backward pass.

        Returns:
            For each parameter, whether it has a gradient.
        """
        gradients = [parameter.grad for parameter in self._parameters]
        if sum(self.sizes) * self._dtype.itemsize > SINGLE_BYTES:
            for index in reversed(range(len(gradients))):
                self._put_one(sink, index, factor)
        else:
            with clock.within(Phase.COPIES):
                self._put_all(sink, gradients, factor)
        return [gradient is not None for gradient in gradients]

    def _put_one(self, sink: Sink, index: int, factor: float) -> None:
        gradient = self._parameters[index].grad
        if gradient is None:
            sink.put_zeros(*self._bounds[index])
        else:
            sink.put(self._bounds[index][0], gradient, factor)

    def _put_all(self, sink: Sink, gradients: Sequence[Tensor | None], factor: float) -> None:
        places: list[Tensor] = []
        plain: list[Tensor] = []
        for gradient, place in zip(gradients, self.views(sink.target), strict=True):
            if gradient is None:  # not nothing: -0.0 + 0.0 is 0.0
                place.add_(0.0) if sink.adds else place.zero_()
                continue
            found = gradient.to_dense() if gradient.is_sparse else gradient
            places.append(place)
            plain.append(found.to(place.device, place.dtype))
        sink.put_all(places, plain, factor)
        sink.put_range(0, sum(self.sizes))

    @contextmanager
    def streaming(self, sink: Sink, factor: float) -> Iterator[list[bool]]:
        """A context in which the backward pass gives gradients x ``factor`` to a sink. At its end all are given.

        It yields a list that says for each parameter, at the end of the context, whether it had a gradient.

        Raises:
            PeerLost: a parameter got another gradient after its gradient was given away. The step has to be tried
                again; it will not be streamed then.
        """
        present = [False] * len(self._parameters)
        twice: list[int] = []

        def take(index: int) -> None:
            gradient = self._parameters[index].grad
            if present[index]:
                twice.append(index)
            elif gradient is not None:
                present[index] = True
                with torch.no_grad():  # a gradient may have a graph of its own
                    self._put_one(sink, index, factor)
                self._parameters[index].grad = None

        self._listen()
        self._take = take
        try:
            yield present
        finally:
            self._take = None
        for index in reversed(range(len(present))):
            if not present[index]:
                take(index)
            if not present[index]:
                sink.put_zeros(*self._bounds[index])
        if twice:
            self.streams = False
            raise PeerLost("a backward pass has computed a gradient in several parts, so the step is tried again")

    @contextmanager
    def trying(self) -> Iterator[None]:
        """A context with a trial pass, which finds out whether gradients can be streamed.

        A parameter that gets its gradient in several parts, as with checkpoints of the reentrant kind and shared
        weights, cannot give it away after the first.
        """
        seen = [0] * len(self._parameters)

        def take(index: int) -> None:
            seen[index] += 1

        if self.streams:
            self._listen()
        self._take = take
        try:
            yield
        finally:
            self._take = None
        if not self.pays:
            while self._hooks:
                self._hooks.pop().remove()
        if max(seen, default=0) > 1:
            self.streams = False

    def take(self, index: int) -> None:
        """A backward pass has completed the gradient of parameter ``index``."""
        if self._take is not None:
            self._take(index)

    # ── back into the model ───────────────────────────────────────────────────────────────────────────────────
    def set(self, gradients: Tensor, present: Sequence[float]) -> None:
        """Make parts of a flat vector the gradients of the parameters, without a copy where types and devices allow.

        Args:
            gradients: the vector.
            present: for each parameter, 0 if no micro-batch had a gradient for it.
        """
        fit = self._fit.get(gradients.device)
        if fit is None:
            like = (gradients.dtype, gradients.device)
            fit = self._fit[gradients.device] = all((each.dtype, each.device) == like for each in self._parameters)
        for parameter, view, used in zip(self._parameters, self.views(gradients), present, strict=True):
            if not used:
                parameter.grad = None
            elif fit or (view.dtype is parameter.dtype and view.device == parameter.device):
                parameter.grad = view
            else:
                parameter.grad = view.to(parameter.device, parameter.dtype)


def _hook(gradients: weakref.ref[Gradients], index: int) -> Callable[[Tensor], None]:
    """A hook for a parameter, which may outlive the training."""

    def hook(_: Tensor) -> None:
        found = gradients()
        if found is not None:
            found.take(index)

    return hook
