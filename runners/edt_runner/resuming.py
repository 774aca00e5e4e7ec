"""How a training goes on from a checkpoint: one of its own, or one of another job (``edt submit --resume-from``). Pure.

Of a checkpoint the state is taken: parameters, optimizer, and what callbacks remember. Its place in the schedule is
taken, too, if this training has the same steps. The number of epochs and the validation may differ then.

The settings of the optimizer are part of the state, since a schedule may have moved them. But the script has the last
word: a setting that this script begins with another value than the script of the checkpoint did gets this script's
value. For this the checkpoint holds the settings with which its training began.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from edt_contract.checkpoints import Checkpoint
from edt_contract.encoding import from_json_object
from edt_runner.adapter import State
from edt_runner.errors import UsageError
from edt_runner.protocol.data import ReplicaHistory
from edt_runner.schedule import Schedule, StepKind

EPOCHS, SETTINGS = "epochs", "optimizer settings"
_CALLBACKS, _OF_CALLBACKS = "callbacks", "callback."
"""The key of ``State.meta`` under which callbacks remember, and how the names of their tensors begin."""
_COMPANIONS, _OF_COMPANIONS = "companions", "companion."
"""The same of schedulers, averages of weights, and whatever else is bound to an optimizer."""
_TENSOR = "tensor "
"""How the names of settings begin that are tensors."""
_NO_SETTINGS = frozenset({"plain", "scaling", "keras", "optimizer", _CALLBACKS})
"""Keys of ``State.meta`` that hold no settings: state, and what a model is made with."""
_STEPS = (
    "train_samples",
    "micro_batches",
    "batch_size",
    "step_samples",
    "shuffled",
    "seed",
    "batch_scaling",
    "emulated widths",
    "first training sample",
)
"""What decides which samples a step has. If one of these differs, there is no same step."""
_VALIDATION = ("test_samples", "test samples", "validation_freq")
_NEED_NOT_BE_EQUAL = frozenset({EPOCHS, SETTINGS, "arguments", *_STEPS, *_VALIDATION})
_DEFAULTS: Mapping[str, Any] = {
    "user_callback": [],
    "step_samples": 0,
    "shuffled": True,
    "batch_scaling": "fixed",
    SETTINGS: {},
}
"""Values of fields that a checkpoint of an earlier release does not contain."""

Edit = Callable[[dict[str, Tensor]], dict[str, Tensor]]


@dataclass(frozen=True)
class Start:
    """Where a training begins, and with what."""

    offset: int
    """How far it is in its own schedule."""
    resumed: bool
    """Whether the place was taken from the checkpoint; if not, only the state was."""
    metric_sums: Mapping[str, Any]
    meta: Mapping[str, Any]
    """``State.meta`` of the state."""
    edit: Edit
    """Changes the tensors of the checkpoint before they are taken."""
    history: ReplicaHistory
    notes: Sequence[str]
    """Sentences for the user."""


def identity(facts: Mapping[str, Any], state: State) -> dict[str, Any]:
    """What a checkpoint says of the training that writes it.

    Args:
        facts: ``Training.identity``.
        state: the state before the first step.
    """
    return {**facts, SETTINGS: dict(_settings(state))}


def difference(now: Mapping[str, Any], then: Mapping[str, Any], *, extended: bool) -> str:
    """Why a checkpoint in the job's own folder does not belong to this training; empty: it does.

    Args:
        now: identity of this training.
        then: identity of the checkpoint.
        extended: whether the job was given another number of epochs.
    """
    for name, value in now.items():
        if name == SETTINGS or (name == EPOCHS and extended):
            continue
        before = then.get(name, _DEFAULTS.get(name))
        if before != value:
            return f"the checkpoint is of another training ({name} was {before}, is {value})"
    return ""


def from_own(found: Checkpoint, now: Mapping[str, Any], schedule: Schedule) -> Start:
    """Go on from a checkpoint of this job.

    Args:
        found: the checkpoint.
        now: identity of this training.
        schedule: of this training.

    Raises:
        UsageError: the training has passed the number of epochs that the job was given since.
    """
    then = found.manifest["identity"]
    if found.offset > schedule.length:
        raise UsageError(
            f"edt extend: got {schedule.epochs} epochs in all, takes more: the training has done "
            f"{_before(then).steps_before(found.offset)} steps, and an epoch has {schedule.steps_per_epoch}"
        )
    changed = _changed(then, now)
    meta = _with_settings(found.manifest["meta"], changed)
    if _longer(then, now):
        meta = _not_stopped(meta)
    steps = f"step {schedule.steps_before(found.offset)} of {schedule.steps}"
    notes = (f"Resuming from {steps}.", *_told("the checkpoint", "this script", changed))
    history = _history(found)
    return Start(found.offset, True, found.manifest["metric_sums"], meta, _edit(changed), history, notes)


def from_another(job: str, found: Checkpoint, now: Mapping[str, Any], schedule: Schedule, state: State) -> Start:
    """Begin from the checkpoint of another job.

    Args:
        job: name of the other job.
        found: its checkpoint.
        now: identity of this training.
        schedule: of this training.
        state: of this process, before the first step.

    Raises:
        UsageError: the state does not fit this script, or nothing is left to train.
    """
    then = found.manifest["identity"]
    _refuse_another_state(job, then, now)
    others = [name for name in _STEPS if _of(then, name) != now[name]]
    if others:
        return _anew(job, found, now, state, others)
    changed = _changed(then, now)
    meta = _not_stopped(_with_settings(found.manifest["meta"], changed))
    before = _before(then)
    offset = moved(before, found.offset, schedule)
    step = before.steps_before(found.offset)
    if offset >= schedule.length:
        raise UsageError(
            f"--resume-from {job}: nothing is left to train: it has done {step} steps, and this script's "
            f"{schedule.epochs} epochs have {schedule.steps}; takes more epochs (edt extend {job} --epochs N), or "
            "other data, batch_size or seed, with which the training begins at step 0 from its weights"
        )
    notes = [f"Resuming from step {step} of {schedule.steps}, with the state of {job}."]
    notes += _told(job, "this script", changed)
    differ = [name for name in now if name not in _NEED_NOT_BE_EQUAL and _of(then, name) != now[name]]
    notes += [f"{name} was {_of(then, name)} in {job}, is {now[name]} here." for name in differ]
    sums = dict(found.manifest["metric_sums"])
    history = _history(found)
    if offset != found.offset:
        sums.pop(StepKind.VALIDATE.value, None)
        known = history.equal_at >= found.offset
        history = replace(history, equal_at=offset if known else 0)
    left_out: tuple[str, ...] = ()
    if _of(then, "user_callback") != now["user_callback"]:
        meta, left_out = {**meta, _CALLBACKS: None}, (_OF_CALLBACKS,)
    return Start(offset, True, sums, meta, _edit(changed, left_out), history, notes)


def _anew(job: str, found: Checkpoint, now: Mapping[str, Any], state: State, others: Sequence[str]) -> Start:
    """Begin at step 0 with the parameters of another job and what its optimizer remembers. Settings and schedules are
    those with which this script begins, since a schedule begins anew, too.
    """
    then = found.manifest["identity"]
    differ = ", ".join(f"{name} was {_of(then, name)}, is {now[name]}" for name in others)
    note = f"Beginning at step 0 with the weights and the optimizer of {job}, since its steps were others ({differ})."
    there = found.manifest["meta"]
    meta = {**there, **{key: value for key, value in state.meta.items() if key not in _NO_SETTINGS}, _CALLBACKS: None}
    settings = {name: (None, value) for name, value in now[SETTINGS].items()}
    left_out, added = [_OF_CALLBACKS], dict[str, Tensor]()
    if _kinds(there) != _kinds(state.meta):
        left_out.append(_OF_COMPANIONS)
        added = {name: t.detach().cpu().clone() for name, t in state.tensors.items() if name.startswith(_OF_COMPANIONS)}
        meta[_COMPANIONS] = state.meta.get(_COMPANIONS) or []
    return Start(0, False, {}, meta, _edit(settings, left_out, added), ReplicaHistory(), (note,))


def _kinds(meta: Mapping[str, Any]) -> list[Any]:
    return [kind for kind, _ in meta.get(_COMPANIONS) or []]


def moved(before: Schedule, offset: int, after: Schedule) -> int:
    """The offset in ``after`` of the step that is at ``offset`` in ``before``.

    The two have the same training steps. Their epochs and validations may differ. Of a validation that is not the same
    in both, the first step is meant.
    """
    if offset >= before.length:
        return after.offset_of(before.epochs)
    step = before.at(offset)
    begin = after.offset_of(step.epoch)
    if step.kind is StepKind.TRAIN:
        return begin + step.index
    same = all(getattr(before, name) == getattr(after, name) for name in ("test_samples", "validation_freq"))
    return begin + after.steps_per_epoch + (step.index if same else 0)


# ── what the state needs ──────────────────────────────────────────────────────────────────────────────────────────────
def _refuse_another_state(job: str, then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for name in ("optimizer", "lr_rule"):
        before = _of(then, name)
        if before != now[name] and (name != "lr_rule" or now[name] is not None):
            raise UsageError(f"--resume-from {job}: {name} was {before} there and is {now[name]} in this script")


def _of(then: Mapping[str, Any], name: str) -> Any:
    return then.get(name, _DEFAULTS.get(name))


def _before(then: Mapping[str, Any]) -> Schedule:
    """The schedule of the training that wrote a checkpoint."""
    return Schedule.from_json_object({**then, "follows_engines": _of(then, "batch_scaling") == "per_engine"})


def _history(found: Checkpoint) -> ReplicaHistory:
    """What is known about the replicas that the checkpoint's engines had."""
    manifest = found.manifest
    # the field of an earlier release; its ``threads`` were those that the agent assigned, not those in use
    before = {"CPU capability": manifest.get("cpu_capability")}
    computing = manifest.get("computing") or {name: value for name, value in before.items() if value is not None}
    return replace(from_json_object(ReplicaHistory, manifest.get("replicas") or {}), computing=computing)


def _longer(then: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    return bool(_of(then, EPOCHS) != now[EPOCHS])


def _not_stopped(meta: Mapping[str, Any]) -> dict[str, Any]:
    """``meta`` of a training that a callback had ended, without that: the user wants more."""
    record = meta.get(_CALLBACKS)
    if not record or not record["stopped"]:
        return dict(meta)
    return {**meta, _CALLBACKS: {**record, "stopped": False, "asked": False}}


# ── settings of the optimizer ─────────────────────────────────────────────────────────────────────────────────────────
def _settings(state: State) -> Iterator[tuple[str, Any]]:
    """All plain settings of the optimizer and of what is bound to it, and learning rates and the like that are tensors,
    by name."""
    for path, value in _leaves(state.meta, ()):
        if path[0] not in _NO_SETTINGS:
            yield ".".join(path), value
    for name, tensor in state.tensors.items():
        is_rate = "learning_rate" in state.names.get(name, "")  # Keras has it in a variable
        if (name.startswith("group.") or is_rate) and tensor.numel() == 1:
            yield f"{_TENSOR}{name}", tensor.reshape(-1)[0].item()


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """(path, value) of everything in ``value`` that is no mapping, and no list of other things than plain values."""
    if isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], (*path, str(key)))
    elif _is_nested(value):
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, str(index)))
    else:
        yield path, list(value) if isinstance(value, tuple) else value


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | tuple) and any(isinstance(item, Mapping | list | tuple) for item in value)


def _changed(then: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Settings with which the two trainings began differently: name to (before, now)."""
    before, after = _of(then, SETTINGS), now[SETTINGS]
    return {name: (before[name], after[name]) for name in after if name in before and before[name] != after[name]}


def _told(there: str, here: str, changed: Mapping[str, tuple[Any, Any]]) -> tuple[str, ...]:
    shown = {_plain(name): pair for name, pair in changed.items() if not name.startswith(f"{_COMPANIONS}.")}
    if not shown:
        return ()
    each = ", ".join(f"{name} {before} → {after}" for name, (before, after) in shown.items())
    return (f"Settings that {here} begins with otherwise than {there}, and which are {here}'s from now on: {each}.",)


def _plain(name: str) -> str:
    match name.removeprefix(_TENSOR).split("."):
        case ["groups" | "group", number, key]:
            return f"{key} of group {number}"
        case ["optimizer", _]:
            return "learning_rate"
        case [_, *rest]:
            return ".".join(rest)
        case _:
            return name


def _with_settings(meta: Mapping[str, Any], changed: Mapping[str, tuple[Any, Any]]) -> dict[str, Any]:
    """``meta`` with this script's values of the changed settings."""

    def taken(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, Mapping):
            return {key: taken(item, (*path, str(key))) for key, item in value.items()}
        if _is_nested(value):
            return [taken(item, (*path, str(index))) for index, item in enumerate(value)]
        return changed[name][1] if (name := ".".join(path)) in changed else value

    return {key: value if key in _NO_SETTINGS else taken(value, (key,)) for key, value in meta.items()}


def _edit(
    changed: Mapping[str, tuple[Any, Any]], left_out: Sequence[str] = (), added: Mapping[str, Tensor] | None = None
) -> Edit:
    """A function that gives tensors this script's values of the changed settings.

    Args:
        changed: name to (before, now).
        left_out: beginnings of the names of tensors that are not taken.
        added: tensors that are taken beside those of the checkpoint.
    """
    rates = {name.removeprefix(_TENSOR): value for name, (_, value) in changed.items() if name.startswith(_TENSOR)}

    def edit(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        taken = {name: tensor for name, tensor in tensors.items() if not name.startswith(tuple(left_out))}
        for name, value in rates.items():
            if name in taken:
                taken[name].fill_(value)
        return {**taken, **(added or {})}

    return edit
