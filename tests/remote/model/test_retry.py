"""Which failures are tried again, and when."""

from __future__ import annotations

import pytest

from ccb.remote.model.retry import ModelError, Retry, RetryPolicy, RetrySettings, retry_after


def _delays(policy: RetryPolicy, failure: ModelError) -> list[float]:
    delays: list[float] = []
    while True:
        delay = policy.delay(failure)
        if delay is None:
            return delays
        delays.append(delay)


def test_the_pauses_double_up_to_32_seconds() -> None:
    assert _delays(RetryPolicy(10, lambda: 0.0), ModelError("x")) == [0.5, 1, 2, 4, 8, 16, 32, 32, 32, 32]
    assert _delays(RetryPolicy(10, lambda: 1.0), ModelError("x"))[::9] == [0.5625, 36]


def _announced(policy: RetryPolicy, failure: ModelError) -> list[tuple[int, int]]:
    announced = []
    while policy.delay(failure) is not None:
        announced.append((policy.attempt, policy.max_retries_for(failure)))
    return announced


_NAMES = {
    "unknown": (None, 408, 409, 407, 418, 424, 425, 451),
    "invalid_request": (400, 413, 422),
    "authentication_failed": (401, 403),
    "billing_error": (402,),
    "model_not_found": (404,),
    "rate_limit": (429,),
    "server_error": (500, 502, 503),
    "overloaded": (529,),
}
_RETRIED = {None: 10, 408: 10, 409: 10, 429: 10, 500: 10, 502: 10, 503: 10, 529: 10}
_FAILURES = [(ModelError("x", status=each), kind) for kind, statuses in _NAMES.items() for each in statuses]


@pytest.mark.parametrize(("failure", "kind"), _FAILURES)
def test_each_status_has_a_public_name_and_as_many_retries_as_are_announced(failure: ModelError, kind: str) -> None:
    assert failure.kind == kind
    retries = _RETRIED.get(failure.status, 0)
    assert _announced(RetryPolicy(10), failure) == [(attempt, retries) for attempt in range(1, retries + 1)]


@pytest.mark.parametrize(
    ("failure", "retries"),
    [
        (ModelError("x", status=401, retry=Retry.YES), 10),
        (ModelError("x", status=400, retry=Retry.YES), 10),
        (ModelError("x", status=529, retry=Retry.NO), 0),
        (ModelError("x", silent=True), 1),
        (ModelError("x", wrong_format=True), 1),
    ],
)
def test_an_answer_may_decide_about_itself(failure: ModelError, retries: int) -> None:
    assert _announced(RetryPolicy(10), failure) == [(attempt, retries) for attempt in range(1, retries + 1)]
    assert _announced(RetryPolicy(10, max_overloads=3), ModelError("x", status=529)) == [(1, 2), (2, 2)]


def test_retry_after_replaces_the_pause_unless_it_is_too_long() -> None:
    assert RetryPolicy(10).delay(ModelError("x", status=429, retry_after=7)) == 7
    assert RetryPolicy(10).delay(ModelError("x", status=429, retry_after=600)) == 600
    assert RetryPolicy(10).delay(ModelError("x", status=429, retry_after=601)) is None


def test_retry_after_is_a_number() -> None:
    given = ("12", 12), ("1.5", 1.5), ("-1", 0), ("soon", None), ("nan", None), (None, None)
    assert [retry_after(each) for each, _ in given] == [seconds for _, seconds in given]


def test_a_provider_that_wants_never_to_be_asked_again_gets_a_date() -> None:
    for value in ("inf", "1e300", "9" * 400):
        failure = ModelError("x", status=429, retry_after=retry_after(value))
        assert RetryPolicy(10).delay(failure) is None
        assert "send it again in" in failure.prose("m")


def test_settings_come_from_the_environment() -> None:
    settings = RetrySettings().over({"CCB_MAX_RETRIES": "0", "CCB_STREAM_IDLE_TIMEOUT_MS": "2500"})
    assert (settings.max_retries, settings.silence) == (0, 2.5)
    assert RetrySettings().over({"CCB_MAX_RETRIES": "many", "CCB_STREAM_IDLE_TIMEOUT_MS": "-1"}) == RetrySettings()
