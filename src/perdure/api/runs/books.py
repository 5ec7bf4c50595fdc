"""The books of a run: its ledger with a trial balance, an audit, and the acts that its journal records."""

import msgspec

from perdure.api.exchange import Exchange
from perdure.api.registered_programs import kind_of, registered_program
from perdure.api.runs.step_cache import steps_of_chain
from perdure.client.runs.history import LedgerAccount
from perdure.core import books as of_one_run
from perdure.core.books import AuditFinding
from perdure.core.errors import InvalidId
from perdure.core.ids import RunId, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import AccountId, digits_of, layout_of, read, step_account
from perdure.core.runs.step_records import StepRecord, StepRecords
from perdure.store.rows.records import Run

PAGE = 1000


class DigitField(msgspec.Struct, frozen=True):
    """A group of digits of an account: what it counts, and how much."""

    name: str
    position: int
    digits: str
    value: int
    meaning: str


class SpelledAccount(LedgerAccount, frozen=True, kw_only=True):
    """An account with its digits one by one. `name` is what its step calls."""

    digits: str
    name: str
    fields: list[DigitField]


class OpenObligation(msgspec.Struct, frozen=True):
    """What the run still has to do: `what` is a kind of step, or `program`. `count` is its part of the semaphore."""

    account: AccountId
    what: str
    name: str
    count: int


class TrialBalance(msgspec.Struct, frozen=True):
    """The semaphore of the run, and the obligations that make it. `balances` if they add up to it."""

    semaphore: int
    open: list[OpenObligation]
    balances: bool


class LedgerOfRun(msgspec.Struct, frozen=True):
    """Both ends of the books: the accounts with their trial balance, and the end of the hash chain."""

    accounts: list[SpelledAccount]
    trial_balance: TrialBalance
    head: str
    entries: int


class AuditOfRun(msgspec.Struct, frozen=True):
    """The books of a run, recomputed, and its hash chain, followed to its end. `entries` were read."""

    run_id: RunId
    entries: int
    accounts: int
    head: str
    findings: list[AuditFinding]
    is_clean: bool


class ShownDecision(msgspec.Struct, frozen=True, kw_only=True):
    """An act that the journal records, accepted or rejected."""

    run_id: RunId
    seq: int
    at_ms: int
    type: str
    signal_id: str
    actor: str
    role: str
    reason: str
    step: StepId | None
    is_accepted: bool
    code: str


class Decisions(msgspec.Struct, frozen=True):
    """The acts of a run and its chain, in order."""

    decisions: list[ShownDecision]


async def ledger(exchange: Exchange) -> LedgerOfRun:
    chain = await exchange.chain()
    steps = await steps_of_chain(exchange, chain)
    accounts = await (await exchange.handle()).ledger()
    names = {(each.run_id, step_account(each.step)): each.name for each in steps.records}
    shown = [_spelled(each, names.get((each.run_id, each.account), "")) for each in accounts]
    last = chain[-1]
    program = registered_program(exchange.host, last)
    balance = _trial(last, steps, is_graph=kind_of(program) == "graph")
    return LedgerOfRun(shown, balance, last.head.hex(), last.seq)


def _spelled(account: LedgerAccount, name: str) -> SpelledAccount:
    try:
        layout = layout_of(account.account)
    except InvalidId:
        fields = []
    else:
        digits = digits_of(account.balance)
        fields = [
            DigitField(
                each.name,
                each.position,
                digits[each.position - 1 : each.last_position],
                read(account.balance, each),
                each.meaning,
            )
            for each in layout.fields
        ]
    return SpelledAccount(
        run_id=account.run_id,
        account=account.account,
        balance=account.balance,
        text=account.text,
        digits=digits_of(account.balance),
        name=name,
        fields=fields,
    )


def _trial(run: Run, steps: StepRecords, *, is_graph: bool) -> TrialBalance:
    """The open obligations. In a graph a step's pass to those that it spawns, so the open steps are named."""
    own = [each for each in steps.records if each.run_id == run.run_id]
    total = steps.run_obligations + sum(each.obligations for each in own)
    shown = []
    if not is_graph:
        if steps.run_obligations > 0:
            program = AccountId(f"run:{run.run_id}")
            shown.append(OpenObligation(program, "program", run.program, steps.run_obligations))
        shown += [_obligation(each, each.obligations) for each in own if each.obligations > 0]
    elif not run.is_over:
        shown += [_obligation(each, 1) for each in own if each.is_open]
    return TrialBalance(run.semaphore, shown, total == run.semaphore)


def _obligation(record: StepRecord, count: int) -> OpenObligation:
    return OpenObligation(step_account(record.step), record.kind, record.name, count)


async def audit(exchange: Exchange) -> AuditOfRun:
    run = await exchange.run()
    books = await exchange.store.books_of(run.run_id)
    findings = of_one_run.audit_books(books, exchange.now_ms)
    findings += of_one_run.verify_books(books)
    head = books.entries[-1].hash.hex() if books.entries else ""
    return AuditOfRun(
        run.run_id, len(books.entries), len(books.balances), head, findings, not findings
    )


async def decisions(exchange: Exchange) -> Decisions:
    found = []
    for run in await exchange.chain():
        for first in range(0, run.seq, PAGE):
            for entry in await exchange.store.entries(run.run_id, first, first + PAGE):
                if not entry.body.startswith('{"type":"Signal'):
                    continue
                event = entry.event
                if isinstance(event, e.SignalAccepted | e.SignalRejected):
                    found.append(_decision(run.run_id, entry.seq, entry.at_ms, event))
    return Decisions(found)


def _decision(
    run_id: RunId, seq: int, at_ms: int, event: e.SignalAccepted | e.SignalRejected
) -> ShownDecision:
    return ShownDecision(
        run_id=run_id,
        seq=seq,
        at_ms=at_ms,
        type=event.signal_type,
        signal_id=event.signal_id,
        actor=event.by,
        role=event.role,
        reason=event.reason,
        step=event.step,
        is_accepted=isinstance(event, e.SignalAccepted),
        code=event.code if isinstance(event, e.SignalRejected) else "",
    )
