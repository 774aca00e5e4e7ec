"""Learning-rate rules, which change the learning rate with the batch, and their names.

The runner asks a rule once for each update, in order. The rule answers with factors on the optimizer's
hyperparameters. With k = batch / reference batch, both in samples, the factors are:

    constant        1
    linear          k                                               Krizhevsky, arXiv 1404.5997; Goyal, 1706.02677
    root, sqrt      sqrt(k)                                         Krizhevsky, arXiv 1404.5997; Hoffer, 1705.08741
    linear-warmup   k, reached gradually after each rise            Goyal, arXiv 1706.02677, section 2.2
    adam-sqrt       sqrt(k); 1 - beta by k, epsilon by 1 / sqrt(k)  Malladi, arXiv 2205.10287, definition 5.3
    legw            sqrt(k), after k times the warm-up epochs       You, arXiv 1901.08256
    adascale        gain, from the gradients' noise                 Johnson, arXiv 2007.05105
    adamscale       the square root of the gain, for Adam           Qiao, AdaptDL

An optimizer's velocity may hold lr x gradient, as in Keras's SGD but not in PyTorch's. The code that applies a rule
then also scales the velocity by the change of the factor (``Scaling.velocity``; Goyal, section 2.1, momentum
correction).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from edt_runner.errors import UsageError
from edt_runner.lr_scaling.update import Moments, Scaling, Update


class Rule:
    """One learning-rate rule, and what it remembers of one training. A rule object serves one training only."""

    name = ""
    changes_betas = False
    """Whether the rule needs an optimizer with moving averages of the gradient, such as Adam."""
    remembers: ClassVar[Mapping[str, type]] = {}
    """Names and types of the attributes that are part of the training's state. The attribute of a name begins with an
    underscore."""

    def __init__(self) -> None:
        self.parameters: Mapping[str, Any] = {}
        """The rule's arguments, as plain JSON. They identify the rule, together with ``name``."""

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        """The factors of the coming update. Called once for each update, in order.

        Args:
            update: the update's samples, and what was trained on before.
            moments: the noise of the gradients, this update's included; None: no noise was measured.

        Raises:
            UsageError: a user's own function has returned no finite number, at least 0.
        """
        raise NotImplementedError

    def details(self) -> dict[str, float]:
        """Values of the last update that logs and pages show, by name (``update.DETAILS``)."""
        return {}

    def to_json_object(self) -> dict[str, Any]:
        """What the rule remembers, as plain JSON. It is part of the training's state."""
        return {name: getattr(self, f"_{name}") for name in self.remembers}

    def load(self, data: Mapping[str, Any]) -> None:
        """Continue from what ``to_json_object`` has returned."""
        for name, kind in self.remembers.items():
            setattr(self, f"_{name}", kind(data[name]))

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{type(self).__name__}({given})"


class Constant(Rule):
    """The learning rate does not change."""

    name = "constant"

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        return Scaling()


class Linear(Rule):
    """lr x k, the linear scaling rule (Goyal, arXiv 1706.02677, section 2.1; Krizhevsky, arXiv 1404.5997)."""

    name = "linear"

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        return Scaling(lr=update.scale)


class Root(Rule):
    """lr x sqrt(k), which keeps the variance of an update (Krizhevsky, arXiv 1404.5997; Hoffer, 1705.08741)."""

    name = "root"

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        return Scaling(lr=math.sqrt(update.scale))


class AdamSqrt(Rule):
    """The square-root rule for Adam and RMSProp: lr x sqrt(k), 1 - beta_i -> k x (1 - beta_i), epsilon / sqrt(k)
    (Malladi, arXiv 2205.10287, definition 5.3).

    The optimizer corrects the bias of its averages' first steps with the present betas. If k changes within the first
    1 / (1 - beta_2) updates, this correction is wrong by as much as the betas differ.
    """

    name = "adam-sqrt"
    changes_betas = True

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        root = math.sqrt(update.scale)
        return Scaling(lr=root, beta=update.scale, eps=1.0 / root)


class LinearWarmup(Rule):
    """lr x k. After each rise of k the factor grows linearly over ``epochs``; after a fall it follows k at once
    (gradual warm-up: Goyal, arXiv 1706.02677, section 2.2).

    A single smaller update, such as an epoch's last, is scaled by its own k and does not count as a fall: the next
    update continues where the warm-up was. The first update has the reference's learning rate, or less if k is below 1.

    Args:
        epochs: passes over the training set until a rise of k is reached.
    """

    name = "linear-warmup"
    remembers: ClassVar[Mapping[str, type]] = {"from": float, "target": float, "since": int, "before": float}

    def __init__(self, epochs: float = 5.0) -> None:
        self.parameters = {"epochs": _number("epochs", epochs, least=0.0)}
        self._epochs = float(epochs)
        self._from, self._target, self._since = 1.0, 1.0, 0
        self._before = 1.0
        """k of the previous update."""

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        scale = update.scale
        lasting = scale if update.index == 0 else max(scale, self._before)
        self._before = scale
        reached = self._reached(update)
        if lasting > self._target:
            self._from, self._target, self._since = reached, lasting, update.samples
            reached = self._reached(update)
        elif lasting <= reached:
            self._from = self._target = reached = lasting
        return Scaling(lr=min(scale, reached))

    def _reached(self, update: Update) -> float:
        length = self._epochs * update.epoch_samples
        done = min(1.0, (update.samples - self._since) / length) if length else 1.0
        return self._from + (self._target - self._from) * done


class Legw(Rule):
    """lr x sqrt(k), which grows linearly from 0 over k x ``epochs``: linear-epoch gradual warm-up (You, arXiv
    1901.08256).

    Args:
        epochs: passes over the training set that the warm-up takes at the reference batch.
    """

    name = "legw"

    def __init__(self, epochs: float = 1.0) -> None:
        self.parameters = {"epochs": _number("epochs", epochs, least=0.0)}
        self._epochs = float(epochs)

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        length = update.scale * self._epochs * update.epoch_samples
        done = min(1.0, (update.samples + update.batch) / length) if length else 1.0
        return Scaling(lr=math.sqrt(update.scale) * done)


class AdaScale(Rule):
    """lr x gain, where the gain follows from the noise of the gradients (Johnson, arXiv 2007.05105).

    gain = (variance + square) / (variance / S + square), with S = batch / reference. The variance is that of a gradient
    over the reference batch, and square is the squared norm of the true gradient (paper, equation 2); both come from
    ``Moments``. The gain lies between 1 and S, and is 1 if the batch is the reference batch.

    The sum of the gains is tau, the scale-invariant iterations: the updates so far are worth tau steps at the
    reference batch. According to the paper, learning-rate schedules and the end of training should follow tau.

    Args:
        power: exponent of the factor; 0.5 gives AdamScale, for adaptive optimizers.
        base: "reference", or "micro_batch" as in ``variable_batch_size``. With the latter, the linear rule first takes
            the learning rate to one micro-batch, and the gain counts from there:
            lr x micro_batch / reference x gain, 1 <= gain <= batch / micro_batch.
    """

    name = "adascale"
    remembers: ClassVar[Mapping[str, type]] = {"gain": float, "iterations": float}

    def __init__(self, power: float = 1.0, base: str = "reference") -> None:
        if base not in ("micro_batch", "reference"):
            raise UsageError(f"base: got {base!r}, takes 'micro_batch' or 'reference'")
        self.parameters = {"power": _number("power", power, least=0.0), "base": base}
        self._power, self._base = float(power), base
        self._gain, self._iterations = 1.0, 0.0

    @property
    def gain(self) -> float:
        """The gain of the last update, a mean over parameter groups."""
        return self._gain

    @property
    def scale_invariant_iterations(self) -> float:
        """tau: the sum of all gains."""
        return self._iterations

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        gains = self._gains(update, moments)
        self._gain = float(np.mean(gains))
        self._iterations += self._gain
        first = update.micro_batch / update.reference if self._base == "micro_batch" else 1.0
        factors = tuple(float(first * gain) ** self._power for gain in gains)
        return Scaling(lr=factors[0]) if len(factors) == 1 else Scaling(sum(factors) / len(factors), groups=factors)

    def _gains(self, update: Update, moments: Moments | None) -> Any:
        if moments is None:
            return np.ones(1)
        gains = moments.gain(update.micro_batches)
        if self._base == "reference":
            return gains / moments.gain(update.reference / update.micro_batch)
        return gains

    def details(self) -> dict[str, float]:
        return {"gain": self._gain, "scale_invariant_iterations": self._iterations}


class AdamScale(AdaScale):
    """AdaScale's gain to the power of one half, for adaptive optimizers (Qiao, AdaptDL)."""

    name = "adamscale"

    def __init__(self, power: float = 0.5, base: str = "reference") -> None:
        super().__init__(power, base)


class Own(Rule):
    """A rule that a user has written as a function.

    Args:
        function: (batch, reference), both in samples -> factor on the learning rate, finite and at least 0.
    """

    def __init__(self, function: Callable[[int, int], float]) -> None:
        super().__init__()
        self.name = getattr(function, "__qualname__", type(function).__qualname__)
        self._function = function

    def scaling(self, update: Update, moments: Moments | None) -> Scaling:
        factor = self._function(update.batch, update.reference)
        if not _is_number(factor) or not 0 <= factor < math.inf:
            raise UsageError(
                f"lr_rule: {self.name}({update.batch}, {update.reference}) returned {factor!r}, takes a finite number, "
                "at least 0: the factor on the learning rate"
            )
        return Scaling(lr=float(factor))


_KINDS: tuple[type[Rule], ...] = (Constant, Linear, Root, LinearWarmup, AdamSqrt, Legw, AdaScale, AdamScale)
RULES: Mapping[str, Callable[[], Rule]] = {kind.name: kind for kind in _KINDS}
"""Rule names, and what makes a new rule of each name with its defaults."""
_ALIASES = {"sqrt": "root"}


def by_name(rule: str | Rule | Callable[[int, int], float]) -> Rule:
    """Make a rule.

    Args:
        rule: a rule's name, or its class, for a new rule with its defaults; a rule, which is returned as it is; or a
            function (batch, reference) -> factor, both in samples.

    Raises:
        UsageError: there is no rule of that name; the message lists all names.
    """
    if isinstance(rule, str):
        if (made := RULES.get(_ALIASES.get(rule, rule))) is not None:
            return made()
    elif isinstance(rule, type):
        if rule in _KINDS:
            return rule()
    elif isinstance(rule, Rule):
        return rule
    elif callable(rule):
        return Own(rule)
    names = ", ".join(sorted([*RULES, *_ALIASES]))
    raise UsageError(
        f"lr_rule: got {rule!r}, takes one of {names}, a rule such as LinearWarmup(epochs=5), or a function "
        "(batch, reference) -> factor"
    )


def described(rule: Rule, reference: int) -> str:
    """A text that is equal for two trainings if their rules are the same. ``reference`` is in samples."""
    given = ", ".join(f"{name}={value!r}" for name, value in rule.parameters.items())
    return f"{rule.name}({given}) of {reference}"


def _number(name: str, value: Any, *, least: float) -> float:
    if not _is_number(value) or not least <= value < math.inf:
        raise UsageError(f"{name}: got {value!r}, takes a number, at least {least:g}")
    return float(value)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool | np.bool_)
