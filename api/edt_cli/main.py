"""All commands of ``edt`` with their names, and the exit status of each end."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from edt_cli import (
    answers,
    cluster,
    doctor,
    emulate,
    events,
    frameworks,
    jobs,
    lives,
    login,
    logs,
    pools,
    queues,
    submit,
    tokens,
)
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
app.command("kubernetes")(up.kubernetes)
app.command("slurm")(up.slurm)
app.command("doctor")(doctor.doctor)
app.command("submit")(submit.submit)
app.command("ls")(jobs.ls)
app.command("get")(jobs.get)
app.command("logs")(logs.logs)
app.command("events")(events.events)
app.command("explain")(answers.explain)
app.command("whatif")(answers.whatif)
app.command("pause")(lives.pause)
app.command("resume")(lives.resume)
app.command("extend")(lives.extend)
app.command("resize")(queues.resize)
app.command("priority")(queues.priority)
app.command("stop")(jobs.stop)
app.command("rm")(jobs.rm)
app.command("result")(jobs.result)
app.command("emulate", context_settings={"allow_interspersed_args": False})(emulate.emulate)
app.command("queues")(queues.queues)
app.add_typer(queues.queue_app, name="queue")
app.command("pools")(pools.pools)
app.add_typer(pools.pool_app, name="pool")
app.command("replay")(queues.replay)
app.add_typer(cluster.nodes_app, name="nodes")
app.add_typer(cluster.images_app, name="images")
app.add_typer(frameworks.frameworks_app, name="frameworks")
app.add_typer(cluster.users_app, name="users")
app.add_typer(tokens.tokens_app, name="tokens")
app.command("login")(login.login)
app.command("logout")(login.logout)


def main() -> None:
    """Run the command line and exit.

    The exit status is 0 if the command worked, 1 if it did not, 2 for wrong use, 130 after Ctrl-C, and 141 if the
    reader of the output is gone. A command that follows a job exits with 0, 1 or 130, depending on the job's end.
    """
    try:
        app()
    except CliError as error:
        typer.secho(f"edt: {error}", fg=typer.colors.RED if sys.stderr.isatty() else None, err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output is gone (`edt logs | head`), so nothing more can be written.
        sys.stderr.close()
        sys.exit(141)
