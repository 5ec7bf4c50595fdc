"""One event of each type, with its JSON form, which stored journals may contain for ever."""

from typing import Final

from perdure.core.ids import Guid, RunId, SetId, StepId
from perdure.core.journal import events as e
from perdure.core.ledger import AccountId

GUID: Final = Guid("m_" + "1" * 32 + "_" + "2" * 32)
NEXT_RUN: Final = RunId("r_" + "3" * 32)
STEP: Final = StepId("root.1")
SET: Final = SetId("root.2")

SPECIMENS: Final[tuple[tuple[e.Event, str], ...]] = (
    (
        e.ExecutionStarted(
            "checkout", "d1", "ab", "2", "root.7", "order-42", StepId("t"), GUID, payload=b"in"
        ),
        '{"type":"ExecutionStarted","program":"checkout","component_digest":"d1","root":"ab",'
        '"version":"2","parent_id":"root.7","idempotency_key":"order-42","trigger":"t",'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222",'
        '"payload":"aW4="}',
    ),
    (
        e.ExecutionCompleted(released=1, guid=GUID, step=STEP, payload=b"out"),
        '{"type":"ExecutionCompleted","payload":"b3V0","released":1,'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222",'
        '"step":"root.1"}',
    ),
    (
        e.ExecutionFailed(released=2, payload=b"why"),
        '{"type":"ExecutionFailed","payload":"d2h5","released":2}',
    ),
    (
        e.CancelRequested("enough", GUID),
        '{"type":"CancelRequested","reason":"enough",'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222"}',
    ),
    (
        e.ExecutionCancelled("enough", released=3),
        '{"type":"ExecutionCancelled","reason":"enough","released":3}',
    ),
    (
        e.InvokeScheduled(
            STEP, "charge", e.InvokeKind.HTTP, e.RetryPolicy(5, 10, 1.5, 20), True, payload=b"in"
        ),
        '{"type":"InvokeScheduled","promise_id":"root.1","function_name":"charge",'
        '"kind":"http","retry_policy":{"attempts":5,"first_ms":10,"factor":1.5,'
        '"ceiling_ms":20},"staged":true,"payload":"aW4="}',
    ),
    (
        e.InvokeStarted(STEP, 1),
        '{"type":"InvokeStarted","promise_id":"root.1","attempt":1}',
    ),
    (
        e.InvokeCompleted(STEP, 2, False, GUID, True, 3, payload=b"out"),
        '{"type":"InvokeCompleted","promise_id":"root.1","attempt":2,"ok":false,'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222",'
        '"staged":true,"claim":3,"payload":"b3V0"}',
    ),
    (
        e.InvokeRetrying(STEP, 1, 1700000000000, payload=b"why"),
        '{"type":"InvokeRetrying","promise_id":"root.1","failed_attempt":1,'
        '"retry_at_ms":1700000000000,"payload":"d2h5"}',
    ),
    (
        e.RandomGenerated(STEP, 18446744073709551615),
        '{"type":"RandomGenerated","promise_id":"root.1","value":18446744073709551615}',
    ),
    (
        e.TimeRecorded(STEP, 1700000000000000),
        '{"type":"TimeRecorded","promise_id":"root.1","time_us":1700000000000000}',
    ),
    (
        e.TimerScheduled(STEP, 1000, 1700000001000, True),
        '{"type":"TimerScheduled","promise_id":"root.1","duration_ms":1000,'
        '"fire_at_ms":1700000001000,"staged":true}',
    ),
    (
        e.TimerFired(STEP, GUID, True),
        '{"type":"TimerFired","promise_id":"root.1",'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222",'
        '"staged":true}',
    ),
    (
        e.SignalDelivered("approval", 1, GUID, payload=b"true"),
        '{"type":"SignalDelivered","signal_name":"approval","delivery_id":1,'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222",'
        '"payload":"dHJ1ZQ=="}',
    ),
    (
        e.SignalReceived(STEP, "approval", 1, payload=b"true"),
        '{"type":"SignalReceived","promise_id":"root.1","signal_name":"approval",'
        '"delivery_id":1,"payload":"dHJ1ZQ=="}',
    ),
    (
        e.ExecutionAwaiting((STEP,), e.AwaitKind.SIGNAL, e.AwaitSignal("approval", STEP)),
        '{"type":"ExecutionAwaiting","waiting_on":["root.1"],"kind":"signal",'
        '"signal":{"name":"approval","promise_id":"root.1"}}',
    ),
    (
        e.ExecutionResumed(),
        '{"type":"ExecutionResumed"}',
    ),
    (
        e.JoinSetCreated(SET),
        '{"type":"JoinSetCreated","join_set_id":"root.2"}',
    ),
    (
        e.JoinSetSubmitted(SET, STEP),
        '{"type":"JoinSetSubmitted","join_set_id":"root.2","promise_id":"root.1"}',
    ),
    (
        e.JoinSetAwaited(SET, STEP),
        '{"type":"JoinSetAwaited","join_set_id":"root.2","promise_id":"root.1"}',
    ),
    (
        e.RunApproved("ops"),
        '{"type":"RunApproved","by":"ops"}',
    ),
    (
        e.RunPaused("look"),
        '{"type":"RunPaused","reason":"look"}',
    ),
    (
        e.RunResumed(),
        '{"type":"RunResumed"}',
    ),
    (
        e.StepSkipped(STEP, "lost", 1),
        '{"type":"StepSkipped","promise_id":"root.1","reason":"lost","released":1}',
    ),
    (
        e.SignalAccepted("s1", "PAUSE", "ops"),
        '{"type":"SignalAccepted","signal_id":"s1","signal_type":"PAUSE","by":"ops"}',
    ),
    (
        e.SignalRejected("s1", "PAUSE", "ops", "no role"),
        '{"type":"SignalRejected","signal_id":"s1","signal_type":"PAUSE","by":"ops",'
        '"reason":"no role"}',
    ),
    (
        e.StepSkipped(STEP, "known", 0, "s2", GUID, True, payload=b"7"),
        '{"type":"StepSkipped","promise_id":"root.1","reason":"known","signal_id":"s2",'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222",'
        '"staged":true,"payload":"Nw=="}',
    ),
    (
        e.SignalAccepted("s2", e.ActType.RETRY_STEP, "ops", GUID, "engineer", STEP, "fixed"),
        '{"type":"SignalAccepted","signal_id":"s2","signal_type":"RETRY_STEP","by":"ops",'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222",'
        '"role":"engineer","step":"root.1","reason":"fixed"}',
    ),
    (
        e.SignalRejected("s3", "SKIP_STEP", "ops", "why", GUID, "viewer", STEP, "DENIED"),
        '{"type":"SignalRejected","signal_id":"s3","signal_type":"SKIP_STEP","by":"ops",'
        '"reason":"why",'
        '"guid":"m_11111111111111111111111111111111_22222222222222222222222222222222",'
        '"role":"viewer","step":"root.1","code":"DENIED"}',
    ),
    (
        e.RunContinued(NEXT_RUN, released=1, payload=b"in"),
        '{"type":"RunContinued","next_run":"r_33333333333333333333333333333333",'
        '"payload":"aW4=","released":1}',
    ),
    (
        e.Posted("attempt", (e.Posting(AccountId("step:root.1"), 1000000000000),), -1),
        '{"type":"Posted","label":"attempt","postings":[["step:root.1",1000000000000]],'
        '"semaphore":-1}',
    ),
)
