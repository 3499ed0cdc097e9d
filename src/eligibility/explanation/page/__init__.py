"""The record as HTML: one self-contained page, and a compact form for notebooks."""

from eligibility.explanation.page.document import render_notebook, render_page, render_script

__all__ = ["render_notebook", "render_page", "render_script"]
