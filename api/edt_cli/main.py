"""All commands of ``edt`` under their names, and how they end."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edt_cli import cluster, doctor, emulate, jobs, login
from edt_cli.errors import CliError
from edt_cli.up import command as up

app = typer.Typer(
    name="edt",
    help="OpenEDT: elastic distributed training. `edt up` starts the platform, `edt submit main.py` hands in a job.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    context: typer.Context,
    api: Annotated[str | None, typer.Option(help="URL of the API (EDT_API); default: where you are logged in.")] = None,
) -> None:
    """OpenEDT: elastic distributed training."""
    context.obj = api


app.command("up")(up.up)
app.command("agent")(up.agent)
app.command("doctor")(doctor.doctor)
app.command("submit")(jobs.submit)
app.command("ls")(jobs.ls)
app.command("get")(jobs.get)
app.command("logs")(jobs.logs)
app.command("stop")(jobs.stop)
app.command("rm")(jobs.rm)
app.command("result")(jobs.result)
app.command("emulate", context_settings={"allow_interspersed_args": False})(emulate.emulate)
app.add_typer(cluster.nodes_app, name="nodes")
app.add_typer(cluster.images_app, name="images")
app.add_typer(cluster.users_app, name="users")
app.command("login")(login.login)
app.command("logout")(login.logout)


def main() -> None:
    """Exit status: 0 it worked; 1 it did not; 2 wrong use; following a job, that of the job."""
    try:
        app()
    except CliError as error:
        typer.secho(f"edt: {error}", fg=typer.colors.RED if sys.stderr.isatty() else None, err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read our output has gone (`edt logs | head`); nothing more can be said to them.
        sys.stderr.close()
        sys.exit(141)
