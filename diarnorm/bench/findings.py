"""What a check found: a figure, and whether it keeps its bar."""

from collections.abc import Iterable
from typing import NamedTuple


class Finding(NamedTuple):
    """One measured figure; `passed` is None where there is no bar. Of a result, which is right or wrong, or a speed."""

    what: str
    figure: str
    bar: str = ""
    passed: bool | None = None
    is_result: bool = False


def tell(findings: Iterable[Finding]) -> bool:
    """Print findings as they come; whether all results are right."""
    right = True
    for finding in findings:
        print(line(finding), flush=True)
        right &= not (finding.is_result and finding.passed is False)
    return right


def line(finding: Finding) -> str:
    """A finding as a line of text."""
    verdict = {None: "", True: "ok", False: "WRONG" if finding.is_result else "BELOW THE BAR"}[finding.passed]
    return f"{finding.what:44} {finding.figure:>28}  {finding.bar:24} {verdict}".rstrip()
