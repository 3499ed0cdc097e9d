"""What Griffe reads differently from how it is meant here: sections and the shapes of tensors."""

from __future__ import annotations

import re
from typing import Any

import griffe


class SectionNames(griffe.Extension):
    """Docstrings here say "Example:"; Griffe's parser knows the section as "Examples:"."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )


class Shapes(griffe.Extension):
    """A shape such as ``"T *batch"`` in an annotation is a text, not a product."""

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        func.returns = _with_shapes(func.returns)
        for parameter in func.parameters:
            parameter.annotation = _with_shapes(parameter.annotation)


def _with_shapes(annotation: Any) -> Any:
    if isinstance(annotation, griffe.ExprSubscript):
        annotation.slice = _with_shapes(annotation.slice)
    elif isinstance(annotation, griffe.ExprTuple):
        annotation.elements = [_text_of_shape(element) for element in annotation.elements]
    elif isinstance(annotation, griffe.ExprBinOp):  # a | b
        annotation.left = _with_shapes(annotation.left)
        annotation.right = _with_shapes(annotation.right)
    return annotation


def _text_of_shape(element: Any) -> Any:
    if isinstance(element, griffe.ExprBinOp) and element.operator == "*":
        return f'"{str(element).replace(" * ", " *")}"'
    return _with_shapes(element)
