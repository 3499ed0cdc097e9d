"""From the records of the runs to the verdict: evidence, matching, rules, conventions, lines."""
