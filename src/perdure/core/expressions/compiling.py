"""Compiles a checked tree to nested functions, once; an evaluation only calls them."""

import ast
from collections.abc import Callable, Mapping
from typing import Any

from perdure.core.expressions.budget import Code, Evaluation
from perdure.core.expressions.functions import FUNCTIONS
from perdure.core.expressions.looping import (
    ForClause,
    evaluate_dict,
    evaluate_lazily,
    evaluate_list,
    item_assigner,
)
from perdure.core.expressions.methods import method_of
from perdure.core.expressions.operators import BINARY, COMPARISONS, UNARY, Operator
from perdure.core.expressions.plain import (
    SIZED,
    collected,
    pay_for_key,
    public_fields,
    require_plain,
)
from perdure.core.expressions.texts import (
    ascii_representation,
    formatted,
    representation,
    text_form,
)

VariableSlots = Mapping[str, int]
"""The slots of the loop variables that a part can read."""

_CONVERSIONS = {ord("s"): text_form, ord("r"): representation, ord("a"): ascii_representation}


class Compiler:
    """Compiles one tree. `variables` counts the slots that its loops need."""

    def __init__(self) -> None:
        self.variables = 0
        self._rules: dict[type[ast.expr], Callable[[Any, VariableSlots], Code]] = {
            ast.Attribute: self._attribute,
            ast.BinOp: self._binary,
            ast.BoolOp: self._logical,
            ast.Call: self._call,
            ast.Compare: self._comparison,
            ast.Constant: self._constant,
            ast.Dict: self._dict,
            ast.DictComp: self._dict_comprehension,
            ast.FormattedValue: self._field,
            ast.GeneratorExp: self._generator,
            ast.IfExp: self._conditional,
            ast.JoinedStr: self._text,
            ast.Lambda: self._key,
            ast.List: self._list,
            ast.ListComp: self._list_comprehension,
            ast.Name: self._name,
            ast.Slice: self._slice,
            ast.Subscript: self._subscript,
            ast.Tuple: self._tuple,
            ast.UnaryOp: self._unary,
        }

    def code(self, node: ast.expr, variables: VariableSlots) -> Code:
        return self._rules[type(node)](node, variables)

    def _codes(self, nodes: list[ast.expr], variables: VariableSlots) -> tuple[Code, ...]:
        return tuple(self.code(node, variables) for node in nodes)

    def _constant(self, node: ast.Constant, _variables: VariableSlots) -> Code:
        value = node.value
        return lambda _work: value

    def _name(self, node: ast.Name, variables: VariableSlots) -> Code:
        name = node.id
        if name in variables:
            place = variables[name]
            return lambda work: work.variables[place]

        def read(work: Evaluation) -> Any:
            try:
                return work.scope[name]
            except KeyError:
                raise NameError(f"name {name!r} is not defined", name=name) from None

        return read

    def _attribute(self, node: ast.Attribute, variables: VariableSlots) -> Code:
        of = self.code(node.value, variables)
        name = node.attr

        def attribute(work: Evaluation) -> Any:
            value = of(work)
            if isinstance(value, dict):
                try:
                    return value[name]
                except KeyError:
                    raise _no_field(name, value) from None
            if name in public_fields(value):
                return getattr(value, name)
            raise _no_field(name, value)

        return attribute

    def _subscript(self, node: ast.Subscript, variables: VariableSlots) -> Code:
        of = self.code(node.value, variables)
        at = self.code(node.slice, variables)

        def subscript(work: Evaluation) -> Any:
            value = of(work)
            index = at(work)
            if isinstance(value, dict):
                pay_for_key(work, index, len(value))
            else:
                require_plain(value)
                if isinstance(index, slice) and isinstance(value, SIZED):
                    work.spend(len(value) >> 4)
            return value[index]

        return subscript

    def _slice(self, node: ast.Slice, variables: VariableSlots) -> Code:
        bounds = [node.lower, node.upper, node.step]
        codes = [self.code(bound, variables) if bound else _nothing for bound in bounds]
        lower, upper, step = codes
        return lambda work: slice(lower(work), upper(work), step(work))

    def _unary(self, node: ast.UnaryOp, variables: VariableSlots) -> Code:
        operand = self.code(node.operand, variables)
        operate = UNARY[type(node.op)]
        return lambda work: operate(work, operand(work))

    def _binary(self, node: ast.BinOp, variables: VariableSlots) -> Code:
        left = self.code(node.left, variables)
        right = self.code(node.right, variables)
        operate = BINARY[type(node.op)]
        return lambda work: operate(work, left(work), right(work))

    def _logical(self, node: ast.BoolOp, variables: VariableSlots) -> Code:
        *first, last = self._codes(node.values, variables)
        stops_at = isinstance(node.op, ast.Or)

        def logical(work: Evaluation) -> Any:
            for part in first:
                value = part(work)
                if bool(value) is stops_at:
                    return value
            return last(work)

        return logical

    def _comparison(self, node: ast.Compare, variables: VariableSlots) -> Code:
        left = self.code(node.left, variables)
        compares: list[Operator] = [COMPARISONS[type(op)] for op in node.ops]
        sides = self._codes(node.comparators, variables)
        if len(sides) == 1:
            compare, right = compares[0], sides[0]
            return lambda work: compare(work, left(work), right(work))
        rest = tuple(zip(compares, sides, strict=True))

        def chain(work: Evaluation) -> Any:
            a = left(work)
            answer: Any = True
            for compare, side in rest:
                b = side(work)
                answer = compare(work, a, b)
                if not answer:
                    break
                a = b
            return answer

        return chain

    def _conditional(self, node: ast.IfExp, variables: VariableSlots) -> Code:
        test = self.code(node.test, variables)
        then = self.code(node.body, variables)
        otherwise = self.code(node.orelse, variables)
        return lambda work: then(work) if test(work) else otherwise(work)

    def _list(self, node: ast.List | ast.Tuple, variables: VariableSlots) -> Code:
        if any(isinstance(item, ast.Starred) for item in node.elts):
            return self._unpacked_list(node, variables)
        items = self._codes(node.elts, variables)
        return lambda work: [item(work) for item in items]

    def _unpacked_list(self, node: ast.List | ast.Tuple, variables: VariableSlots) -> Code:
        parts = [
            (isinstance(item, ast.Starred), self.code(_unstarred(item), variables))
            for item in node.elts
        ]

        def unpacked(work: Evaluation) -> list[Any]:
            made: list[Any] = []
            for starred, code in parts:
                if starred:
                    made += collected(work, code(work))
                else:
                    made.append(code(work))
                work.require_items(len(made))
            return made

        return unpacked

    def _tuple(self, node: ast.Tuple, variables: VariableSlots) -> Code:
        items = self._list(node, variables)
        return lambda work: tuple(items(work))

    def _dict(self, node: ast.Dict, variables: VariableSlots) -> Code:
        parts = [
            (self.code(key, variables) if key else None, self.code(value, variables))
            for key, value in zip(node.keys, node.values, strict=True)
        ]

        def made(work: Evaluation) -> dict[Any, Any]:
            result: dict[Any, Any] = {}
            for key, value in parts:
                if key is None:
                    more = value(work)
                    if not isinstance(more, dict):
                        raise TypeError(f"{type(more).__name__!r} object is not a mapping")
                    work.require_items(len(result) + len(more))
                    result.update(more)
                else:
                    name = key(work)
                    item = value(work)
                    pay_for_key(work, name, len(result))
                    result[name] = item
            return result

        return made

    def _text(self, node: ast.JoinedStr, variables: VariableSlots) -> Code:
        parts = self._codes(node.values, variables)

        def text(work: Evaluation) -> str:
            made = [part(work) for part in parts]
            work.require_text(sum(map(len, made)))
            return "".join(made)

        return text

    def _field(self, node: ast.FormattedValue, variables: VariableSlots) -> Code:
        value = self.code(node.value, variables)
        convert = _CONVERSIONS.get(node.conversion)
        spec = self.code(node.format_spec, variables) if node.format_spec else None

        def field(work: Evaluation) -> str:
            shown = value(work)
            if convert:
                shown = convert(work, shown)
            return formatted(work, shown, spec(work) if spec else "")

        return field

    def _call(self, node: ast.Call, variables: VariableSlots) -> Code:
        arguments = self._codes(node.args, variables)
        options = [(kw.arg, self.code(kw.value, variables)) for kw in node.keywords if kw.arg]
        if isinstance(node.func, ast.Attribute):
            return self._method_call(node.func, arguments, options, variables)
        if not isinstance(node.func, ast.Name):
            raise TypeError(f"a call of {type(node.func).__name__}, which no check lets pass")
        run = FUNCTIONS[node.func.id].run
        if len(arguments) == 1 and not options:
            only = arguments[0]
            return lambda work: run(work, only(work))

        def call(work: Evaluation) -> Any:
            given = [argument(work) for argument in arguments]
            return run(work, *given, **{name: option(work) for name, option in options})

        return call

    def _method_call(
        self,
        node: ast.Attribute,
        arguments: tuple[Code, ...],
        options: list[tuple[str, Code]],
        variables: VariableSlots,
    ) -> Code:
        of = self.code(node.value, variables)
        name = node.attr

        def call(work: Evaluation) -> Any:
            value = of(work)
            run = method_of(value, name)
            given = [argument(work) for argument in arguments]
            return run(work, value, *given, **{name: option(work) for name, option in options})

        return call

    def _key(self, node: ast.Lambda, variables: VariableSlots) -> Code:
        place = self._place()
        body = self.code(node.body, {**variables, node.args.args[0].arg: place})
        cost = _size(node.body)

        def key(work: Evaluation) -> Callable[[Any], Any]:
            def keyed(item: Any) -> Any:
                work.spend(cost)
                work.variables[place] = item
                return body(work)

            return keyed

        return key

    def _list_comprehension(self, node: ast.ListComp, variables: VariableSlots) -> Code:
        loop = self._loop(node.generators, [node.elt], variables)
        return lambda work: evaluate_list(work, loop)

    def _generator(self, node: ast.GeneratorExp, variables: VariableSlots) -> Code:
        loop = self._loop(node.generators, [node.elt], variables)
        return lambda work: evaluate_lazily(work, loop)

    def _dict_comprehension(self, node: ast.DictComp, variables: VariableSlots) -> Code:
        loop = self._loop(node.generators, [node.key, node.value], variables)
        return lambda work: evaluate_dict(work, loop)

    def _loop(
        self, clauses: list[ast.comprehension], results: list[ast.expr], variables: VariableSlots
    ) -> ForClause:
        """The first clause, with the clauses after it and the results inside."""
        clause, *inner = clauses
        source = self.code(clause.iter, variables)
        inside = dict(variables)
        target = item_assigner(clause.target, inside, self._place)
        conditions = self._codes(clause.ifs, inside)
        cost = 1 + sum(map(_size, [*clause.ifs, *([] if inner else results)]))
        if inner:
            return ForClause(source, target, conditions, self._loop(inner, results, inside), cost)
        made = self._codes(results, inside)
        if len(made) == 1:
            return ForClause(source, target, conditions, made[0], cost)
        key, value = made
        return ForClause(source, target, conditions, lambda work: (key(work), value(work)), cost)

    def _place(self) -> int:
        self.variables += 1
        return self.variables - 1


def _nothing(_work: Evaluation) -> None:
    return None


def _unstarred(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Starred) else node


def _size(node: ast.expr) -> int:
    """Operations of one evaluation of the part; loops inside count their own iterations."""
    return sum(isinstance(part, ast.expr) for part in ast.walk(node))


def _no_field(name: str, value: object) -> AttributeError:
    known = value if isinstance(value, dict) else sorted(public_fields(value))
    shown = ", ".join(repr(field) for field in list(known)[:10]) or "none"
    return AttributeError(
        f"a value of type {type(value).__name__!r} has no field {name!r} (there are: {shown})"
    )
