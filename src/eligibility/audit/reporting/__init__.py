"""The report and its renderings: terminal, page, SARIF and JUnit."""
