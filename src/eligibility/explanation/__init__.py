"""Where every entry of a gradient comes from: by rule, by graph, by script.

`derivation` is the frozen record of one explanation; `by_rule` and `by_graph` build it, and
`terminal` and `latex` render it. Renderers compute nothing.
"""
