import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import wraps
from typing import (
    Annotated,
    Any,
    NoReturn,
    ParamSpec,
    TypedDict,
    TypeVar,
    TypeVarTuple,
    Unpack,
)
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.authoring.signature import Signature
from perdure.core.codec import JsonCodec
from perdure.core.errors import InputError, NotDecodable

codec = JsonCodec()

T = TypeVar("T")
Bound = TypeVar("Bound", bound=int)
Ts = TypeVarTuple("Ts")
P = ParamSpec("P")


@dataclass
class Item:
    name: str
    price: Decimal


class Node(msgspec.Struct):
    value: int
    next: "Node | None" = None


class Plain:
    pass


class Box(msgspec.Struct):
    content: Plain


class Options(TypedDict, total=False):
    at: datetime
    retries: int


ITEM = Item("b", Decimal(1))
THREE = UUID(int=3)


Seen = dict[str, Any]


def two(a: int, b: str) -> Seen:
    return locals()


def with_defaults(a: int, b: Item = ITEM, c: UUID | None = None) -> Seen:
    return locals()


def every_kind(
    a: int,
    b: Decimal = Decimal(2),
    /,
    c: UUID = THREE,
    *d: Decimal,
    e: int,
    f: int = 6,
    **g: Item,
) -> Seen:
    return locals()


def keyword_only(*, a: Decimal, b: int = 2) -> Seen:
    return locals()


def keyword_required(a: int, b: int = 2, *, c: int) -> Seen:
    return locals()


def positional_defaults(a: int = 1, b: int = 2, /) -> Seen:
    return locals()


def nothing() -> Seen:
    return locals()


def catch_all(*args: int, **kwargs: int) -> Seen:
    return locals()


def unannotated(a, b=2):  # type: ignore[no-untyped-def]
    return locals()


def awkward_names(self: int, __struct_fields__: int, type: int, UNSET: int, p0: int) -> Seen:  # noqa: A002, N803
    return locals()


SHAPES: list[Callable[..., Any]] = [
    two,
    with_defaults,
    every_kind,
    keyword_only,
    keyword_required,
    positional_defaults,
    nothing,
    catch_all,
    unannotated,
    awkward_names,
]


def there_and_back(
    fn: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    signature = Signature(fn)
    return signature.unpack(codec, codec.encode(signature.pack(args, kwargs)))


def test_arguments_are_packed_by_name() -> None:
    assert Signature(two).pack((1, "x"), {}) == {"a": 1, "b": "x"}
    assert Signature(two).pack((1,), {"b": "x"}) == {"a": 1, "b": "x"}
    assert Signature(two).pack((), {"b": "x", "a": 1}) == {"a": 1, "b": "x"}
    assert Signature(keyword_only).pack((), {"a": Decimal(1)}) == {"a": Decimal(1)}


def test_defaults_that_were_not_passed_are_left_out() -> None:
    assert Signature(with_defaults).pack((1,), {}) == {"a": 1}
    assert Signature(with_defaults).pack((1,), {"c": None}) == {"a": 1, "c": None}
    assert Signature(every_kind).pack((1,), {"e": 5}) == {"a": 1, "e": 5}


def test_caught_arguments_are_a_list_and_a_dict_under_their_own_names() -> None:
    packed = Signature(every_kind).pack((1, 2, 3, 4, 5), {"e": 6, "x": 7, "a": 8})
    assert packed == {"a": 1, "b": 2, "c": 3, "d": [4, 5], "e": 6, "g": {"x": 7, "a": 8}}
    assert type(packed["d"]) is list


def test_missing_keyword_is_refused_though_the_count_of_arguments_is_right() -> None:
    with pytest.raises(TypeError, match=r"keyword_required\(\) is missing .* 'c'"):
        Signature(keyword_required).pack((1, 2), {})


def test_packing_does_not_change_what_was_passed() -> None:
    kwargs = {"b": "x"}
    Signature(two).pack((1,), kwargs)["c"] = 3
    assert kwargs == {"b": "x"}


@given(
    st.sampled_from(SHAPES),
    st.lists(st.integers(), max_size=5).map(tuple),
    st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e", "g", "self", "args"]), st.integers()),
)
def test_packing_refuses_exactly_what_python_refuses(
    fn: Callable[..., Any], args: tuple[int, ...], kwargs: dict[str, Any]
) -> None:
    signature = Signature(fn)
    try:
        seen = fn(*args, **kwargs)
    except TypeError:
        with pytest.raises(TypeError, match=f"^{fn.__name__}\\(\\) "):
            signature.pack(args, kwargs)
    else:
        again = signature.arguments(signature.pack(args, kwargs))
        assert fn(*again[0], **again[1]) == seen


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        pytest.param((1,), {}, "missing the required argument 'b'", id="missing"),
        pytest.param((1, "x", 2), {}, "takes 2 positional arguments, not 3", id="superfluous"),
        pytest.param((1,), {"a": 2, "b": "x"}, "multiple values for argument 'a'", id="twice"),
        pytest.param((1, "x"), {"c": 2}, "unexpected keyword argument 'c'", id="unknown"),
    ],
)
def test_refusal_names_the_function_and_the_argument(
    args: tuple[Any, ...], kwargs: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError, match=rf"^two\(\) .*{text}"):
        Signature(two).pack(args, kwargs)


def test_arguments_are_decoded_by_their_annotations() -> None:
    item = Item("x", Decimal("0.10"))
    args, kwargs = there_and_back(with_defaults, 1, item, c=UUID(int=9))
    assert (args, kwargs) == ((1, item, UUID(int=9)), {})


def test_every_kind_of_parameter_comes_back() -> None:
    item = Item("x", Decimal("0.10"))
    given_args = (1, Decimal(2), UUID(int=4), Decimal(5), Decimal(6))
    given_kwargs = {"e": 7, "f": 8, "x": item, "a": item}
    assert there_and_back(every_kind, *given_args, **given_kwargs) == (given_args, given_kwargs)


@pytest.mark.parametrize(
    ("fn", "args", "kwargs"),
    [
        pytest.param(with_defaults, (1,), {}, id="all left out"),
        pytest.param(with_defaults, (1,), {"c": UUID(int=2)}, id="gap"),
        pytest.param(every_kind, (1,), {"e": 1}, id="positional-only left out"),
        pytest.param(every_kind, (1,), {"c": UUID(int=2), "e": 1}, id="positional-only gap"),
        pytest.param(positional_defaults, (), {}, id="nothing passed"),
        pytest.param(nothing, (), {}, id="no parameters"),
        pytest.param(catch_all, (), {}, id="nothing caught"),
        pytest.param(awkward_names, (1, 2, 3, 4, 5), {}, id="names that a struct refuses"),
    ],
)
def test_unpacked_arguments_equal_those_of_a_direct_call(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    again = there_and_back(fn, *args, **kwargs)
    assert fn(*again[0], **again[1]) == fn(*args, **kwargs)


def test_missing_argument_takes_the_default_of_the_running_code() -> None:
    assert Signature(with_defaults).unpack(codec, b'{"a":1}') == ((1,), {})
    assert Signature(keyword_only).unpack(codec, b'{"a":"1"}') == ((), {"a": Decimal(1)})


def test_positional_arguments_keep_their_places_when_one_before_them_is_new() -> None:
    assert Signature(positional_defaults).unpack(codec, b'{"b":5}') == ((1, 5), {})
    assert Signature(every_kind).unpack(codec, b'{"a":1,"d":["4"],"e":5}') == (
        (1, Decimal(2), THREE, Decimal(4)),
        {"e": 5},
    )


def test_parameter_that_the_code_has_dropped_is_ignored() -> None:
    assert Signature(two).unpack(codec, b'{"a":1,"b":"x","old":[{}]}') == ((1, "x"), {})


def test_parameter_that_is_missing_is_refused_by_name() -> None:
    with pytest.raises(NotDecodable, match=r"call of two\(\).*missing required field `a`"):
        Signature(two).unpack(codec, b'{"b":"x"}')


def test_argument_of_another_type_is_refused_by_name() -> None:
    with pytest.raises(NotDecodable, match=r"Expected `str`, got `int` - at `\$.b`"):
        Signature(two).unpack(codec, b'{"a":1,"b":2}')


def test_null_is_a_value_and_not_an_absence() -> None:
    assert there_and_back(unannotated, 1, None) == ((1, None), {})


def test_parameter_without_annotation_comes_back_as_json() -> None:
    assert there_and_back(unannotated, Item("x", Decimal(1))) == (
        ({"name": "x", "price": "1"},),
        {},
    )


def test_annotation_metadata_is_enforced() -> None:
    def bounded(a: Annotated[int, msgspec.Meta(le=3)]) -> None: ...

    with pytest.raises(NotDecodable, match="Expected `int` <= 3"):
        Signature(bounded).unpack(codec, b'{"a":4}')


def test_type_variables_are_read_as_anything() -> None:
    def takes(wrapped: Callable[P, T]) -> Callable[..., T]:
        def generic(a: T, b: Bound, c: list[T], *args: P.args, **kwargs: P.kwargs) -> T:
            return a

        return generic

    generic = takes(silent)

    signature = Signature(generic)
    values = ({"x": 1}, "not an int", [1, "a"], 4.5)
    assert there_and_back(generic, *values, k=[None]) == (values, {"k": [None]})
    assert signature.unpack_result(codec, b"[1]") == [1]


def test_unpacked_args_and_kwargs_are_decoded_by_their_types() -> None:
    def typed(*args: *tuple[int, Decimal], **kwargs: Unpack[Options]) -> None: ...
    def variadic(*args: *Ts) -> None: ...

    at = datetime(2024, 1, 1, tzinfo=UTC)
    assert there_and_back(typed, 1, Decimal(2), at=at) == ((1, Decimal(2)), {"at": at})
    assert there_and_back(variadic, 1, "x") == ((1, "x"), {})


def test_object_is_read_as_anything() -> None:
    def takes(a: object, b: dict[str, object]) -> None: ...

    assert there_and_back(takes, [1], {"x": None}) == (([1], {"x": None}), {})


def made() -> Item:
    return Item("x", Decimal(1))


def silent() -> None: ...


async def fetched() -> Item:
    return Item("x", Decimal(1))


def test_result_is_decoded_by_the_return_annotation() -> None:
    item = Item("x", Decimal("0.10"))
    payload = codec.encode(item)
    assert Signature(made).unpack_result(codec, payload) == item
    assert Signature(fetched).unpack_result(codec, payload) == item
    assert Signature(unannotated).unpack_result(codec, payload) == {"name": "x", "price": "0.10"}


def test_result_type_of_a_function_that_returns_an_awaitable() -> None:
    def later() -> Awaitable[Item]:
        return fetched()

    def coroutine() -> Coroutine[Any, Any, Item]:
        return fetched()

    payload = codec.encode(Item("x", Decimal(1)))
    for fn in (later, coroutine):
        assert Signature(fn).unpack_result(codec, payload) == Item("x", Decimal(1))


def test_none_comes_back_from_a_function_that_returns_none() -> None:
    assert Signature(silent).unpack_result(codec, b"null") is None
    with pytest.raises(NotDecodable):
        Signature(silent).unpack_result(codec, b"1")


def test_function_that_never_returns_is_accepted() -> None:
    def fails() -> NoReturn:
        raise ValueError

    Signature(fails).check()


def test_annotation_may_name_what_is_defined_later() -> None:
    # Python 3.14 defers annotations by itself.
    lead = "" if sys.version_info >= (3, 14) else "from __future__ import annotations\n"
    module: dict[str, Any] = {}
    exec(f"{lead}def early(a: list[Later]) -> Later: ...", module)
    signature = Signature(module["early"])
    with pytest.raises(InputError, match=r"parameter 'a' of early\(\) .*'Later' is not defined"):
        signature.check()
    module["Later"] = Item
    assert signature.unpack(codec, b'{"a":[{"name":"x","price":"1"}]}') == (
        ([Item("x", Decimal(1))],),
        {},
    )
    signature.check()


def test_annotation_may_name_a_local_that_the_function_uses() -> None:
    @dataclass
    class Local:
        x: int

    def uses(a: "Local") -> "Local":
        return Local(a.x)

    assert there_and_back(uses, Local(1)) == ((Local(1),), {})
    assert Signature(uses).unpack_result(codec, b'{"x":1}') == Local(1)


def test_local_without_a_value_yet_does_not_prevent_resolution() -> None:
    def uses(a: "Item") -> object:
        return unassigned

    Signature(uses).check()
    unassigned = 1


@pytest.mark.parametrize("place", ["parameter 'b'", "the result"])
def test_annotation_that_can_not_be_resolved_is_refused_by_its_place(place: str) -> None:
    def broken(a: int, b: Any) -> int:
        return a

    broken.__annotations__["return" if place == "the result" else "b"] = "Missing"
    signature = Signature(broken)
    assert signature.pack((1, 2), {}) == {"a": 1, "b": 2}
    for use in (
        signature.check,
        lambda: signature.unpack(codec, b'{"a":1,"b":1}'),
        lambda: signature.unpack_result(codec, b"1"),
    ):
        with pytest.raises(InputError) as refused:
            use()
        assert f"the annotation of {place} of " in refused.value.what
        assert "broken() can't be resolved (name 'Missing' is not defined)" in refused.value.what
        assert "module level" in refused.value.remedy


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        pytest.param(Plain, "'Plain' has no JSON form", id="class"),
        pytest.param(list[dict[str, Plain]], "'Plain' has no JSON form", id="nested"),
        pytest.param(Box, "'Plain' has no JSON form", id="in a struct"),
        pytest.param(Plain | None, "'Plain' has no JSON form", id="optional"),
        pytest.param(Plain | int, "custom type", id="union"),
        pytest.param(Node | Item, "more than one", id="ambiguous union"),
        pytest.param(complex, "'complex' has no JSON form", id="complex"),
        pytest.param(Callable[[], int], "'Callable' has no JSON form", id="callable"),
        pytest.param(Annotated[Plain, "x"], "'Plain' has no JSON form", id="annotated"),
    ],
)
def test_annotation_without_a_json_form_is_refused_by_its_place(
    annotation: Any, reason: str
) -> None:
    def takes(a: int, b: Any) -> None: ...
    def gives() -> Any: ...

    takes.__annotations__["b"] = gives.__annotations__["return"] = annotation
    for fn, place in ((takes, "parameter 'b'"), (gives, "the result")):
        with pytest.raises(InputError) as refused:
            Signature(fn).check()
        assert refused.value.what.startswith(f"{place} of ")
        assert f"{fn.__qualname__}() has an annotation" in refused.value.what
        assert reason in refused.value.what
        assert "dataclasses" in refused.value.remedy


def test_class_that_refers_to_itself_is_accepted() -> None:
    def takes(a: Node) -> None: ...

    assert there_and_back(takes, Node(1, Node(2))) == ((Node(1, Node(2)),), {})


def test_parameters_are_those_of_the_wrapped_function() -> None:
    @dataclass
    class Local:
        x: int

    def plain(a: "Local", b: int = 2) -> "Local":
        return Local(a.x)

    @wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    assert Signature(wrapper).pack((1,), {"b": 3}) == {"a": 1, "b": 3}
    assert there_and_back(wrapper, Local(1)) == ((Local(1),), {})


def test_bound_method_is_packed_without_its_object() -> None:
    class Shop:
        def sell(self, item: Item) -> None: ...

    item = Item("x", Decimal(1))
    assert Signature(Shop().sell).pack((1,), {}) == {"item": 1}
    assert there_and_back(Shop().sell, item) == ((item,), {})


def test_callable_without_readable_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="has no readable signature"):
        Signature(max)


names = st.sampled_from(["a", "b", "class_", "type", "p0", "p1", "self", "return_"])
json = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text("x\u00e9\x00", max_size=5)


@given(st.dictionaries(names, json))
def test_any_names_and_values_come_back(passed: dict[str, Any]) -> None:
    def fn(*args: Any) -> None: ...

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    fn.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, kind) for name in passed]
    )
    values = tuple(passed.values())
    assert there_and_back(fn, *values) == (values, {})
    assert there_and_back(fn, **passed) == (values, {})
