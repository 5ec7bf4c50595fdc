"""Types of expressions, as far as they are known without evaluation."""

import ast
from collections.abc import Iterable, Mapping
from typing import Final

from perdure.core.graph.model import FieldType, Type
from perdure.core.syntax import parse_expression

_CONSTANTS: Final[dict[type, Type]] = {
    str: "str",
    int: "int",
    float: "float",
    bool: "bool",
    type(None): "none",
}
_CALLS: Final[dict[str, Type]] = {
    "len": "int",
    "str": "str",
    "int": "int",
    "float": "float",
    "bool": "bool",
    "any": "bool",
    "all": "bool",
    "sorted": "list",
    "list": "list",
    "range": "list",
    "dict": "dict",
}
_DISPLAYS: Final[dict[type[ast.AST], Type]] = {
    ast.JoinedStr: "str",
    ast.List: "list",
    ast.Tuple: "list",
    ast.ListComp: "list",
    ast.Dict: "dict",
    ast.DictComp: "dict",
    ast.Compare: "bool",
}
_NUMBERS: Final = frozenset(("int", "float", "bool"))

Types = Mapping[str, Type]


def type_of(text: str, scope: Types) -> Type:
    """The type of an expression's value; `any` if unknown."""
    return _type(expression_tree(text), scope)


def expression_tree(text: str) -> ast.expr:
    """The syntax tree of a valid expression."""
    return parse_expression(text.strip())


def attributes_of(name: str, text: str) -> list[str]:
    """The attributes of a variable that a valid expression reads: `batch` of `params.batch`."""
    return [
        each.attr
        for each in ast.walk(expression_tree(text))
        if isinstance(each, ast.Attribute)
        and isinstance(each.value, ast.Name)
        and each.value.id == name
    ]


def clashes(given: Type, wanted: Type) -> bool:
    """Whether the types are certainly incompatible. An int counts as a float."""
    if "any" in {given, wanted} or given == wanted:
        return False
    return not (given == "int" and wanted == "float")


def field_clashes(given: Type, field: FieldType) -> bool:
    if given == "none" and not field.required:
        return False
    return clashes(given, field.type)


def common(types: Iterable[Type]) -> Type:
    """The common type, or `any`."""
    found = set(types)
    return found.pop() if len(found) == 1 else "any"


def dict_field_types(text: str, scope: Types) -> dict[str, Type] | None:
    """The types of a dict's values by key, if the expression spells the dict out."""
    tree = expression_tree(text)
    if not isinstance(tree, ast.Dict):
        return None
    found: dict[str, Type] = {}
    for key, value in zip(tree.keys, tree.values, strict=True):
        if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
            return None
        found[key.value] = _type(value, scope)
    return found


def _type(tree: ast.expr, scope: Types) -> Type:
    display = _DISPLAYS.get(type(tree))
    if display is not None:
        return display
    if isinstance(tree, ast.Constant):
        return _CONSTANTS.get(type(tree.value), "any")
    if isinstance(tree, ast.Name):
        return scope.get(tree.id, "any")
    if isinstance(tree, ast.IfExp):
        return common((_type(tree.body, scope), _type(tree.orelse, scope)))
    if isinstance(tree, ast.BoolOp):
        return common(_type(value, scope) for value in tree.values)
    if isinstance(tree, ast.Call):
        return _CALLS.get(tree.func.id, "any") if isinstance(tree.func, ast.Name) else "any"
    return _type_of_arithmetic(tree, scope)


def _type_of_arithmetic(tree: ast.expr, scope: Types) -> Type:
    if isinstance(tree, ast.UnaryOp):
        inner = _type(tree.operand, scope)
        if isinstance(tree.op, ast.Not):
            return "bool"
        return inner if inner in {"int", "float"} else "any"
    if not isinstance(tree, ast.BinOp):
        return "any"
    left, right = _type(tree.left, scope), _type(tree.right, scope)
    if isinstance(tree.op, ast.Mod) and left == "str":
        return "str"
    if isinstance(tree.op, ast.Add) and left == right and left in {"str", "list"}:
        return left
    if not (left in _NUMBERS and right in _NUMBERS) or isinstance(tree.op, ast.Pow):
        return "any"
    if isinstance(tree.op, ast.Div) or "float" in {left, right}:
        return "float"
    return "int" if isinstance(tree.op, ast.Add | ast.Sub | ast.Mult | ast.FloorDiv) else "any"
