"""Room: api, CLI. Commands about container images: list, allow, forbid."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from edt_api.schemas import Image, ImagePage
from edt_cli import output
from edt_cli.output import Format, FormatOption
from edt_cli.session import OURS, session

app = typer.Typer(help="Container images that jobs may name.", invoke_without_command=True)

_ImageArgument = Annotated[str, typer.Argument(metavar="IMAGE", help="REGISTRY/NAME:TAG or NAME@DIGEST.")]


@app.callback()
def images(context: typer.Context, form: FormatOption = Format.TABLE) -> None:
    """List the images that jobs may name, and which nodes have them ready."""
    if context.invoked_subcommand is not None:
        return
    with session(context.obj) as api:
        pages = list(api.pages(ImagePage, f"{OURS}/images"))
    if form is Format.JSON:
        output.as_json([image for page in pages for image in page.items])
        return
    rows = [(pattern, "EDT_IMAGES", "", "") for pattern in pages[0].patterns]
    rows += [
        (image.name, image.allowed_by, output.ago(image.allowed_at), _readiness(image))
        for page in pages
        for image in page.items
    ]
    failures = [_failures(image) for page in pages for image in page.items]
    remarks = [""] * len(pages[0].patterns) + failures
    output.table(("IMAGE", "ALLOWED BY", "AGE", "READY"), rows, "Jobs may name no image.", remarks=remarks)


@app.command()
def allow(
    context: typer.Context,
    image: _ImageArgument,
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Every node that starts containers fetches it before a job comes.")
    ] = False,
) -> None:
    """Let every job name an image. What an admin submits with is allowed by that.

    Again without --everywhere, and nodes need not have it ready any more.
    """
    with session(context.obj) as api:
        # As it was typed: whether it is an image's name is for the API to say, in a sentence.
        answer = api.ask("POST", f"{OURS}/images", json={"name": image, "everywhere": everywhere})
        allowed = api.read(Image, answer)
    fetched = "; nodes that start containers fetch it now, and `edt images` shows which have it" if everywhere else ""
    typer.echo(f"{allowed.name} is allowed{fetched}")


@app.command()
def forbid(context: typer.Context, image: _ImageArgument) -> None:
    """Let no new job name an image. Jobs that have it go on."""
    with session(context.obj) as api:
        api.ask("DELETE", f"{OURS}/images/{quote(image)}")
    typer.echo(f"{image} is no longer allowed")


def _readiness(image: Image) -> str:
    if not image.everywhere:
        return ""
    ready = sum(node.done_at is not None and node.error is None for node in image.nodes)
    return f"on {ready} of {len(image.nodes)} node{'' if len(image.nodes) == 1 else 's'}"


def _failures(image: Image) -> str:
    return "; ".join(f"{node.node}: {node.error}" for node in image.nodes if node.error)
