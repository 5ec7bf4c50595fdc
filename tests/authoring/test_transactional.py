import pytest

from perdure import InputError, Transaction, task
from perdure.core.codec import JsonCodec
from perdure.core.errors import OutsideRun


@task(transactional=True)
async def book_seat(tx: Transaction, seat: int, guest: str = "nobody") -> str:
    return f"{tx} {seat} {guest}"


@task(transactional=True)
async def book_seats(tx: Transaction, /, *seats: int, **guests: str) -> int:
    return len(seats) + len(guests)


def test_the_transaction_is_not_among_the_arguments() -> None:
    call = book_seat(4, guest="ann")
    call.use()
    assert call.arguments == {"seat": 4, "guest": "ann"}
    codec = JsonCodec()
    args, kwargs = book_seat.signature.unpack(codec, codec.encode(call.arguments))
    assert (args, kwargs) == ((4, "ann"), {})
    assert book_seat.is_transactional


def test_catch_all_parameters_of_a_transactional_task_follow_the_transaction() -> None:
    call = book_seats(1, 2, tx="a name like any other")
    call.use()
    codec = JsonCodec()
    args, kwargs = book_seats.signature.unpack(codec, codec.encode(call.arguments))
    assert (args, kwargs) == ((1, 2), {"tx": "a name like any other"})


def test_a_wrong_call_is_judged_without_the_transaction() -> None:
    with pytest.raises(TypeError, match="takes 2 positional arguments, not 3"):
        book_seat(1, "ann", "bob")  # type: ignore[call-arg, unused-awaitable]
    with pytest.raises(TypeError, match="missing the required argument 'seat'"):
        book_seat()  # type: ignore[call-arg, unused-awaitable]
    with pytest.raises(TypeError, match="unexpected keyword argument 'tx'"):
        book_seat(1, tx=None)  # type: ignore[call-arg, unused-awaitable]


def test_a_plain_task_is_not_transactional() -> None:
    @task
    async def local_plain() -> None: ...

    assert not local_plain.is_transactional


async def not_decorated(tx: Transaction) -> None: ...


def not_async(tx: Transaction) -> None: ...


async def without_parameters() -> None: ...


async def by_keyword_only(*, tx: Transaction) -> None: ...


async def catching_all(*tx: Transaction) -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "words"),
    [
        (not_async, {}, ["'not_async' is not async", "not to a thread"]),
        (without_parameters, {}, ["no parameter for", "tx: perdure.Transaction"]),
        (by_keyword_only, {}, ["no parameter for"]),
        (catching_all, {}, ["no parameter for"]),
        (not_decorated, {"queue": "slow"}, ["queue 'slow'", "owns the run"]),
    ],
)
def test_invalid_transactional_tasks_are_refused(
    fn: object, options: dict[str, object], words: list[str]
) -> None:
    with pytest.raises(InputError) as error:
        task(transactional=True, **options)(fn)  # type: ignore[call-overload]
    assert all(word in str(error.value) for word in words)


def test_transactional_is_true_or_false() -> None:
    with pytest.raises(InputError, match="transactional is 1"):
        task(transactional=1)  # type: ignore[call-overload]


async def test_outside_a_workflow_there_is_no_transaction() -> None:
    with pytest.raises(OutsideRun, match=r"book_seat\.fn\(tx"):
        await book_seat(1)


async def test_the_plain_function_takes_any_transaction() -> None:
    assert await book_seat.fn("tx", 1) == "tx 1 nobody"
