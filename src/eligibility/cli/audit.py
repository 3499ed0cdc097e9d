"""``eligibility audit FILE``: does this program compute the policy gradient?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def audit(
    file: Annotated[Path, typer.Argument(help="The script that trains a policy, unmodified.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The script's own arguments, after `--`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write the report as one page.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Write SARIF, for editors and CI.")] = None,
    junit: Annotated[Path | None, typer.Option(help="Write JUnit XML, for CI.")] = None,
    discount: Annotated[
        float | None, typer.Option(help="γ of the return; default: inferred from the program.")
    ] = None,
    max_paths: Annotated[int, typer.Option(help="Maximum number of paths to enumerate.")] = 600,
    samples: Annotated[
        int, typer.Option(help="Number of paths to sample if there are more than that.")
    ] = 200,
    time_limit: Annotated[float, typer.Option(help="Time limit for one run, in seconds.")] = 20.0,
    memory_limit: Annotated[
        int, typer.Option(help="Memory limit for one run, in megabytes.")
    ] = 2048,
) -> int:
    """Run a script on a problem whose policy gradient is known, and compare the two.

    Exit status: 0 no fault, 1 a fault was found, 2 bad usage or nothing could be judged, 3 no known
    rule explains what was measured.
    """
    from eligibility.audit.running.progress import shown_progress
    from eligibility.audit.scripts import audit_script
    from eligibility.files import check_writable, write_atomically

    for path in (html, sarif, junit):
        if path is not None:
            check_writable(path)
    with shown_progress() as progress:
        report = audit_script(
            file,
            arguments or (),
            discount=discount,
            max_paths=max_paths,
            samples=samples,
            time_limit=time_limit,
            memory_limit=memory_limit,
            progress=progress,
        )
    for path, render in ((html, report.html), (sarif, report.sarif), (junit, report.junit)):
        if path is not None:
            write_atomically(path, render())
    if as_json:
        typer.echo(report.to_json())
    else:
        from rich.console import Console

        from eligibility.audit.reporting.terminal import renderable

        Console().print(renderable(report))
    return report.exit_status
