"""The report for other programs: SARIF for editors and code hosts, JUnit XML for CI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.etree import ElementTree

import eligibility
from eligibility.files import relative_to_here

if TYPE_CHECKING:
    from eligibility.audit.reporting.report import AuditReport, Finding


def render_sarif(report: AuditReport) -> str:
    """SARIF 2.1.0: one result a finding, on its line."""
    rules = [
        {
            "id": finding.rule,
            "shortDescription": {"text": finding.title},
            "fullDescription": {"text": finding.means},
            "help": {"text": finding.fix},
        }
        for finding in report.findings
    ]
    driver = {
        "name": "eligibility audit",
        "version": eligibility.__version__,
        "rules": list({rule["id"]: rule for rule in rules}.values()),
    }
    run = {"tool": {"driver": driver}, "results": [_result(f) for f in report.findings]}
    schema = "https://json.schemastore.org/sarif-2.1.0.json"
    return json.dumps({"version": "2.1.0", "$schema": schema, "runs": [run]}, indent=2)


def _result(finding: Finding) -> dict[str, Any]:
    location = {
        "physicalLocation": {
            "artifactLocation": {"uri": _address(finding.file)},
            "region": {"startLine": max(finding.line, 1)},
        }
    }
    return {
        "ruleId": finding.rule,
        "level": "error" if finding.severity == "fault" else "warning",
        "message": {"text": f"{finding.title}: {finding.means}. Fix: {finding.fix}"},
        "locations": [location],
    }


def _address(file: str) -> str:
    """A reference as SARIF wants it: relative to the working folder, or a file address."""
    path = relative_to_here(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), safe="/#")


def render_junit(report: AuditReport) -> str:
    """JUnit XML: one test case, failed by faults, and in error where the audit cannot tell."""
    failed = report.exit_status == 1
    unknown = report.exit_status > 1
    suite = ElementTree.Element(
        "testsuite",
        name="eligibility audit",
        tests="1",
        failures=str(int(failed)),
        errors=str(int(unknown)),
        skipped="0",
        time=f"{report.seconds:.3f}",
    )
    case = ElementTree.SubElement(
        suite, "testcase", name=report.program, classname="audit", time=f"{report.seconds:.3f}"
    )
    if unknown:
        ElementTree.SubElement(case, "error", message=report.summary, type=report.verdict)
    elif failed:
        faults = report.faults
        for fault in faults[:1]:
            case.set("file", str(relative_to_here(fault.file)))
            case.set("line", str(max(fault.line, 1)))
        # a test case has one failure: those who read it look at the first only
        message = "; ".join(finding.title for finding in faults) or report.summary
        kinds = " ".join(finding.rule for finding in faults) or report.verdict
        failure = ElementTree.SubElement(case, "failure", message=message, type=kinds)
        failure.text = "\n\n".join(
            f"{finding.place}\n{finding.means}\nFix: {finding.fix}" for finding in faults
        )
    ElementTree.SubElement(case, "system-out").text = report.text()
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)
