"""Measurements: speed, memory and exactness. Run by hand, each by the command in its docstring."""
