"""Pydantic models as arguments, results, signals, chunks and published values: read back equal, or refused."""

import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Generic, TypeVar
from uuid import UUID

import pytest
from pydantic import (
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    RootModel,
    SecretStr,
    computed_field,
    field_serializer,
    model_validator,
)

import perdure
from perdure import Engine, InputError, Signal, task, upcaster, workflow
from perdure.authoring.signature import Signature
from perdure.core.codec import JsonCodec
from perdure.core.errors import NotDecodable, NotEncodable

codec = JsonCodec()
T = TypeVar("T")


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Address(BaseModel):
    street: str
    number: int = 1


class Order(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    id: UUID
    at: datetime
    price: Decimal
    size: Size
    to: list[Address]
    note: str | None = None
    parts: tuple[int, str] = (1, "a")
    counts: dict[int, float] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def doubled(self) -> Decimal:
        return self.price * 2


class Aliased(BaseModel):
    item: str = Field(validation_alias="in", serialization_alias="out")


class Page(BaseModel, Generic[T]):
    items: list[T]


class Tree(BaseModel):
    leaves: list["Tree"] = []


class Names(RootModel[list[str]]):
    pass


class Linked(BaseModel):
    model_config = ConfigDict(extra="allow")

    url: AnyUrl


ORDER = Order(
    id=UUID(int=7),
    at=datetime(2026, 1, 2, 3, 4, 5, 678, UTC),
    price=Decimal("9.90"),
    size=Size.LARGE,
    to=[Address(street="Elm"), Address(street="Oak", number=3)],
    counts={3: 0.5},
)

WHOLE = [
    (Order, ORDER),
    (Aliased, Aliased.model_validate({"in": "lamp"})),
    (Page[Address], Page[Address](items=[Address(street="Elm")])),
    (Tree, Tree(leaves=[Tree(), Tree(leaves=[Tree()])])),
    (Names, Names(["ann", "bob"])),
    (Linked, Linked.model_validate({"url": "https://perdure.example/a", "more": [1]})),
    (list[Order], [ORDER]),
    (dict[str, Address], {"home": Address(street="Elm")}),
    (Address | None, None),
    (Address | None, Address(street="Elm")),
]


@pytest.mark.parametrize(("wanted", "value"), WHOLE, ids=str)
def test_model_comes_back_equal(wanted: Any, value: Any) -> None:
    payload = codec.encode(value)
    again = codec.decode(payload, wanted)
    assert again == value
    assert type(again) is type(value)
    assert codec.encode(again) == payload


class WithSet(BaseModel):
    names: set[str]


class WithSecret(BaseModel):
    word: SecretStr


class WithExcluded(BaseModel):
    seen: int
    unseen: int = Field(default=0, exclude=True)


class Inside(BaseModel):
    inner: list[WithExcluded]


class WithObject(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    what: Callable[[], int]


LOSSY = [WithSet, WithSecret, WithExcluded, Inside, WithObject, Address | Tree, list[WithSet]]


@pytest.mark.parametrize("wanted", LOSSY, ids=str)
def test_model_that_would_lose_something_is_refused_at_decoration(wanted: Any) -> None:
    async def wrong(given: wanted) -> None:
        raise NotImplementedError

    for decorate in (task, workflow):
        with pytest.raises(InputError, match=r"parameter 'given' of .* can't be stored"):
            decorate(wrong)
    with pytest.raises(InputError, match="can't be stored"):
        Signal("wrong", wanted)


class Rounded(BaseModel):
    price: float

    @field_serializer("price")
    def round(self, price: float) -> int:
        return int(price)


class WithPrivate(BaseModel):
    name: str
    _seal: int = PrivateAttr(default=0)


def marked() -> WithPrivate:
    value = WithPrivate(name="ann")
    value._seal = 1
    return value


@pytest.mark.parametrize(
    "value",
    [
        WithSet(names={"a"}),
        WithSecret(word=SecretStr("s")),
        WithExcluded(seen=1),
        Rounded(price=1.5),
        marked(),
        Page[float](items=[float("nan")]),
        Address.model_construct(street=5),
        Page[Any](items=[object()]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_model_that_would_come_back_otherwise_is_refused_where_it_is_stored(value: Any) -> None:
    with pytest.raises(NotEncodable):
        codec.encode(value)
    with pytest.raises(NotEncodable):
        codec.encode({"inside": [value]})


def test_stored_json_that_does_not_fit_the_model_is_refused() -> None:
    with pytest.raises(NotDecodable, match="street"):
        codec.decode(b'{"number":1}', Address)


def test_model_that_names_a_later_class_is_checked_when_that_is_there() -> None:
    class Early(BaseModel):
        later: "Later"  # type: ignore[name-defined] # noqa: F821

    async def early(given: Early) -> None:
        raise NotImplementedError

    signature = Signature(early)
    signature.check_early()
    with pytest.raises(InputError, match="can't be resolved"):
        signature.check()
    Early.model_rebuild(_types_namespace={"Later": Address})
    signature.check()


def test_model_reads_its_old_shapes_itself() -> None:
    class Modern(BaseModel):
        cents: int

        @model_validator(mode="before")
        @classmethod
        def from_euros(cls, old: Any) -> Any:
            return {"cents": old["euros"] * 100} if "euros" in old else old

    assert codec.decode(b'{"euros":2}', Modern) == Modern(cents=200)
    with pytest.raises(InputError, match="is a Pydantic model, and can't have an upcaster"):
        upcaster(Modern)


addresses = Signal("models.addresses", Address)


class Special(Address):
    door: int


@task(name="models.ship")
async def ship(order: Order) -> Page[Address]:
    perdure.stream("seen").append(order.to[0])
    return Page[Address](items=order.to)


@workflow(name="models.send")
async def send(order: Order) -> Order:
    page = await ship(order)
    perdure.publish("first", page.items[0])
    more = await addresses.receive()
    return order.model_copy(update={"to": [*page.items, more]})


async def test_models_pass_through_a_run(engine: Engine) -> None:
    run = await engine.start(send(ORDER), key="k")
    with pytest.raises(InputError, match="can't carry"):
        await run.signal(addresses, Tree())  # type: ignore[misc]
    with pytest.raises(
        NotEncodable, match="annotated as Address: it would come back without 'door'"
    ):
        await run.signal(addresses, Special(street="Ash", door=2))
    last = Address(street="Ash")
    await run.signal(addresses, last)
    assert await run.result(60) == ORDER.model_copy(update={"to": [*ORDER.to, last]})
    assert (await run.published())["first"] == {"street": "Elm", "number": 1}
    chunks = [chunk.value async for chunk in run.stream("seen", of=Address, completed_only=True)]
    assert chunks == [Address(street="Elm")]
    assert (await engine.start(send(ORDER), key="k")).run_id == run.run_id


async def test_start_refuses_a_model_that_does_not_fit(engine: Engine) -> None:
    with pytest.raises(InputError, match="can't begin with these arguments"):
        await engine.start(send({"id": 1}))  # type: ignore[arg-type]
    assert (await engine.audit()).runs == 0


class Card(BaseModel):
    holder: str
    number: int


@task(name="models.debit")
async def debit(card: Any) -> None: ...


@workflow(name="models.debit_wrongly")
async def debit_wrongly() -> None:
    await debit(Card.model_construct(holder="Ada", number="4111-1111"))


async def test_a_model_that_can_not_be_stored_is_named_by_its_field_and_not_by_its_value(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    run = await engine.start(debit_wrongly())
    with pytest.raises(NotEncodable, match="'number' of a Card is not what its annotation says"):
        await run.result(timeout=60)
    assert "4111-1111" not in caplog.text


def test_a_model_that_can_not_be_read_is_named_by_its_field_and_not_by_its_value() -> None:
    stored = JsonCodec().encode({"holder": "Ada", "number": "4111" + "-1111"})
    with pytest.raises(
        NotDecodable, match="not a Card: number: Input should be a valid int"
    ) as caught:
        codec.decode(stored, Card)
    assert "4111-1111" not in "".join(traceback.format_exception(caught.value))
