"""``eligibility explain``: where does every entry of this gradient come from?"""

from __future__ import annotations

from collections.abc import Mapping
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eligibility.errors import InvalidValueError
from eligibility.files import check_writable, write_atomically

if TYPE_CHECKING:
    from eligibility.explanation.derivation import Explanation
    from eligibility.explanation.script import ScriptExplanation


def explain(
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="DISTRIBUTION|SCRIPT|NOTEBOOK",
            help="categorical, multinomial, bernoulli, normal, … or a Python script or notebook.",
        ),
    ] = None,
    arguments: Annotated[
        list[str] | None, typer.Argument(help="The script's own arguments, after `--`.")
    ] = None,
    probs: Annotated[
        str | None,
        typer.Option(help="Probabilities, separated by commas; weights need not sum to 1."),
    ] = None,
    logits: Annotated[
        str | None, typer.Option(help="Logits, separated by commas, instead of probabilities.")
    ] = None,
    action: Annotated[
        str | None, typer.Option(help="The category that was drawn, counted from 0.")
    ] = None,
    counts: Annotated[
        str | None, typer.Option(help="How often each category was drawn (multinomial).")
    ] = None,
    value: Annotated[
        str | None, typer.Option(help="What was drawn: 0 or 1 (bernoulli), the count (binomial).")
    ] = None,
    total_count: Annotated[
        str | None, typer.Option(help="The number of trials (binomial; checked for multinomial).")
    ] = None,
    param: Annotated[
        list[str] | None,
        typer.Option(help="A parameter of any other distribution: loc=0, or matrix=1,0;0,1."),
    ] = None,
    wrt: Annotated[
        list[str] | None,
        typer.Option(help="The parameter to differentiate with respect to; default: all given."),
    ] = None,
    of: Annotated[str, typer.Option(help="What is differentiated: log_prob or prob.")] = "log_prob",
    coordinates: Annotated[
        str | None,
        typer.Option(help="The convention for probs: weights, ambient, free or tangent."),
    ] = None,
    line: Annotated[
        int | None, typer.Option(help="Script: only the backward pass called on this line.")
    ] = None,
    tensor: Annotated[
        str | None, typer.Option(help="Script: only backward passes of this variable.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Script: time limit in seconds.")] = 120.0,
    memory: Annotated[float, typer.Option(help="Script: memory limit in GiB.")] = 8.0,
    question: Annotated[
        bool,
        typer.Option(
            "--question", help="List the worked questions; with a number, answer that one."
        ),
    ] = False,
    full: Annotated[
        bool, typer.Option("--full", help="Script: every section of every backward pass.")
    ] = False,
    section: Annotated[
        list[str] | None,
        typer.Option(help="Only this section: table, why, steps, rule, checks, expected or notes."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the record as JSON.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a LaTeX document.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write a self-contained HTML page to this path.")
    ] = None,
) -> None:
    """Show where every entry of a gradient comes from.

    Runs a script or notebook unmodified, and explains each of its backward passes and every .grad
    that it reads as None. The script's own output goes to standard error.

    With --question and a number, answer that worked question.

    Examples: eligibility explain categorical --probs 0.69,0.1,0.2,0.01 --action 0 --of prob;
    eligibility explain normal --param loc=0 --param scale=1 --value 0.3;
    eligibility explain train.py --line 40 -- --seed 1; eligibility explain --question 6
    """
    if json and latex:
        raise InvalidValueError("`--json`, `--latex`", "both", "one of them", "choose one format")
    is_script = subject is not None and subject.endswith((".py", ".ipynb")) and not question
    if is_script:
        outcome_and_parameters = {
            "--probs": probs, "--logits": logits, "--action": action, "--counts": counts,
            "--value": value, "--total-count": total_count, "--param": param, "--wrt": wrt,
            "--coordinates": coordinates,
        }  # fmt: skip
        _refuse_idle(outcome_and_parameters, "a script")
    else:
        _refuse_idle({"--line": line, "--tensor": tensor, "--full": full or None}, "a distribution")
        _refuse_surplus(arguments or [])
    if html is not None:
        check_writable(html)
    found: Explanation | ScriptExplanation
    if question:
        found = _answer(subject, json)
    elif subject is None:
        raise InvalidValueError(
            "the subject",
            "nothing",
            "a distribution or a script",
            "see `eligibility explain --help`",
        )
    elif is_script:
        from eligibility.explanation.script import explain_script

        found = explain_script(
            subject, arguments or [], line=line, tensor=tensor, timeout=timeout, memory=memory
        )
        typer.echo(found.output, err=True, nl=False)
    else:
        from eligibility.cli.problems import read_assignments, read_problem
        from eligibility.explanation.by_rule import explain_problem
        from eligibility.explanation.problem import check_of

        parameters = {"probs": probs, "logits": logits, **read_assignments(param or ())}
        outcome = {"--action": action, "--counts": counts, "--value": value}
        problem = read_problem(subject, parameters, outcome, total_count)
        found = explain_problem(problem, tuple(wrt) if wrt else None, coordinates, check_of(of))
    if html is not None:
        write_atomically(html, found.html())
    _show(found, json, latex, _sections(full, section))
    if getattr(found, "failure", ""):
        raise typer.Exit(1)


def _sections(full: bool, chosen: list[str] | None) -> tuple[str, ...]:
    """The sections that were asked for; nothing means those that are shown by default."""
    from eligibility.explanation.terminal import FULL

    for name in chosen or ():
        if name not in FULL:
            raise InvalidValueError("`--section`", repr(name), " or ".join(FULL), "choose one")
    return FULL if full else tuple(chosen or ())


def _refuse_idle(options: Mapping[str, object], subject: str) -> None:
    """Raise for an option that would do nothing."""
    for name, value in options.items():
        if value is not None:
            raise InvalidValueError(
                f"`{name}`", str(value), f"no such option for {subject}", "omit it"
            )


def _refuse_surplus(arguments: list[str]) -> None:
    """Raise for words that nothing would read; only scripts have arguments."""
    if arguments:
        raise InvalidValueError(
            "the command",
            f"the extra argument `{arguments[0]}`",
            "one distribution, or one question, and options",
            "separate numbers by commas, without spaces",
        )


def _answer(number: str | None, json: bool) -> Explanation:
    """The answer to one worked question; without a number, the list of them, and the end."""
    from eligibility.explanation.questions import QUESTIONS, answer_question

    if number is not None:
        if not (number.isascii() and number.isdecimal()):
            raise InvalidValueError(
                "`--question`", repr(number), "a number", "`--question` alone lists them"
            )
        return answer_question(int(number))
    if json:
        listed = [{"number": q.number, "asked": q.asked, "where": q.where} for q in QUESTIONS]
        typer.echo(dumps(listed, ensure_ascii=False))
    else:
        typer.echo("\n".join(f"{q.number:>3}. {q.asked}" for q in QUESTIONS))
    raise typer.Exit


def _show(
    explanation: Explanation | ScriptExplanation, json: bool, latex: bool, sections: tuple[str, ...]
) -> None:
    """The explanation on standard output: coloured and as wide as the terminal, or plain."""
    if json:
        typer.echo(explanation.to_json())
    elif latex:
        typer.echo(explanation.latex(), nl=False)
    else:
        from rich.console import Console

        console = Console(highlight=False)
        if console.is_terminal:
            console.print(explanation.renderable(sections))
        else:
            typer.echo(explanation.text(sections=sections), nl=False)
