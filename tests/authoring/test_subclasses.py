"""Values of a subclass where an annotation names the base class."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import pytest

from perdure.authoring.signature import Signature
from perdure.authoring.values.subclasses import classes_in, require_lossless
from perdure.core.codec import JsonCodec
from perdure.core.errors import InputError, NotEncodable

if TYPE_CHECKING:
    from uuid import UUID


@dataclass
class Animal:
    name: str


@dataclass
class Dog(Animal):
    tricks: int = 0


@dataclass
class Cat(Animal):
    """Adds nothing that is stored."""

    is_content: bool = field(init=False, default=True)

    def purr(self) -> str:
        return "purr"


class Point(msgspec.Struct):
    x: int


class Point3(Point):
    z: int = msgspec.field(default=0, name="depth")


class Circle(msgspec.Struct, tag=True):
    radius: int


class Ring(Circle, tag=True):
    inner: int = 0


class Twig:
    __attrs_attrs__ = ()


@dataclass
class Odd(Animal):
    what: "UUID | None" = None


@pytest.mark.parametrize(
    ("hint", "value", "lost"),
    [
        (Animal, Dog("rex"), "'tricks'"),
        (Animal | None, Dog("rex"), "'tricks'"),
        (Annotated[Animal | int, "pet"], Dog("rex"), "'tricks'"),
        (Point, Point3(1, 2), "'depth'"),
        (Circle, Ring(2, 1), "'inner'"),
        (Animal, Odd("it"), "'what'"),
    ],
)
def test_a_value_that_would_lose_fields_is_refused(hint: Any, value: Any, lost: str) -> None:
    with pytest.raises(NotEncodable) as caught:
        require_lossless("argument 'pet' of walk()", value, classes_in(hint))
    kind = type(value).__qualname__
    assert f"argument 'pet' of walk() is a {kind}, and annotated as " in caught.value.what
    assert caught.value.what.endswith(f"it would come back without {lost}")
    assert f"annotate it as {kind}" in caught.value.remedy


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Animal, Animal("rex")),
        (Animal, Cat("tom")),
        (Animal | None, None),
        (Dog, Dog("rex")),
        (Dog, Animal("no dog")),  # decoding reports it
        (Circle | Ring, Ring(2, 1)),
        (list[Animal], [Dog("rex")]),
        (dict[str, Any], Dog("rex")),
        (Any, Dog("rex")),
        (object, Dog("rex")),
        (int, True),
        (Twig, Twig()),
    ],
)
def test_a_value_that_loses_no_fields_is_accepted(hint: Any, value: Any) -> None:
    require_lossless("it", value, classes_in(hint))


def test_a_signature_judges_arguments_and_results() -> None:
    def walk(first: Animal, *others: Animal, pace: Point | None = None) -> Animal:
        return first

    signature = Signature(walk)
    signature.require_whole(signature.pack((Animal("rex"), Dog("pug")), {"pace": Point(1)}))
    with pytest.raises(NotEncodable, match=r"argument 'first' of .*walk\(\) is a Dog"):
        signature.require_whole(signature.pack((Dog("rex"),), {}))
    with pytest.raises(NotEncodable, match=r"argument 'pace' of .*walk\(\) is a Point3"):
        signature.require_whole(signature.pack((Animal("rex"),), {"pace": Point3(1, 2)}))
    with pytest.raises(NotEncodable, match=r"the result of .*walk\(\) is a Dog"):
        signature.require_whole_result(Dog("rex"))
    signature.require_whole_result(Animal("rex"))


def test_unresolvable_annotations_do_not_fail_the_subclass_check() -> None:
    def walk(pet: "UUID") -> "UUID":
        return pet

    signature = Signature(walk)
    signature.require_whole({"pet": Dog("rex")})
    signature.require_whole_result(Dog("rex"))
    with pytest.raises(InputError, match="can't be resolved"):
        signature.unpack(JsonCodec(), b"{}")
