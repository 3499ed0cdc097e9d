"""Where every entry of a gradient comes from: by rule, by graph, by script.

`elements` are what an explanation is made of, `derivation` is the frozen record of them; `by_rule`
and `by_graph` build it, and `terminal`, `latex` and `page` render it. Renderers compute nothing.
"""
