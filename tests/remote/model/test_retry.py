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


def test_jitter_never_passes_36_seconds() -> None:
    delays = _delays(RetryPolicy(10, lambda: 1.0), ModelError("x"))
    assert max(delays) == 36
    assert delays[0] == pytest.approx(0.5625)


@pytest.mark.parametrize("status", [None, 408, 409, 429, 500, 502, 503, 529])
def test_passing_failures_are_retried(status: int | None) -> None:
    assert RetryPolicy(10).delay(ModelError("x", status=status)) is not None


@pytest.mark.parametrize("status", [400, 402, 403, 404, 407, 413, 422, 424, 425, 451])
def test_failures_of_the_request_are_not(status: int) -> None:
    assert RetryPolicy(10).delay(ModelError("x", status=status)) is None


def test_a_refused_credential_is_tried_once_more() -> None:
    assert len(_delays(RetryPolicy(10), ModelError("x", status=401))) == 1


@pytest.mark.parametrize(
    ("failure", "retries"),
    [
        (ModelError("x"), 10),
        (ModelError("x", status=401), 1),
        (ModelError("x", status=401, retry=Retry.YES), 10),
        (ModelError("x", silent=True), 1),
        (ModelError("x", wrong_format=True), 1),
    ],
)
def test_as_many_retries_are_announced_as_there_will_be(failure: ModelError, retries: int) -> None:
    assert _announced(RetryPolicy(10), failure) == [(attempt, retries) for attempt in range(1, retries + 1)]


def test_where_another_model_takes_over_fewer_retries_are_announced() -> None:
    assert _announced(RetryPolicy(10, max_overloads=3), ModelError("x", status=529)) == [(1, 2), (2, 2)]


def _announced(policy: RetryPolicy, failure: ModelError) -> list[tuple[int, int]]:
    announced = []
    while policy.delay(failure) is not None:
        announced.append((policy.attempt, policy.max_retries_for(failure)))
    return announced


def test_the_answer_decides_about_itself() -> None:
    assert RetryPolicy(10).delay(ModelError("x", status=400, retry=Retry.YES)) is not None
    assert RetryPolicy(10).delay(ModelError("x", status=529, retry=Retry.NO)) is None


def test_retry_after_replaces_the_pause_unless_it_is_too_long() -> None:
    assert RetryPolicy(10).delay(ModelError("x", status=429, retry_after=7)) == 7
    assert RetryPolicy(10).delay(ModelError("x", status=429, retry_after=600)) == 600
    assert RetryPolicy(10).delay(ModelError("x", status=429, retry_after=601)) is None


def test_retry_after_is_a_number_or_a_date() -> None:
    assert retry_after("12", 0) == 12
    assert retry_after("1.5", 0) == 1.5
    assert retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 40) == 60
    assert retry_after("Thu, 01 Jan 1970 00:01:40 GMT", 400) == 0
    assert retry_after("soon", 0) is None
    assert retry_after("nan", 0) is None
    assert retry_after(None, 0) is None


def test_a_provider_that_wants_never_to_be_asked_again_gets_a_date() -> None:
    for value in ("inf", "1e300", "9" * 400):
        failure = ModelError("x", status=429, retry_after=retry_after(value, 0))
        assert RetryPolicy(10).delay(failure) is None
        assert "send it again in" in failure.prose("m")


def test_settings_come_from_the_environment() -> None:
    settings = RetrySettings().over({"CCB_MAX_RETRIES": "0", "CCB_STREAM_IDLE_TIMEOUT_MS": "2500"})
    assert (settings.max_retries, settings.silence) == (0, 2.5)
    assert RetrySettings().over({"CCB_MAX_RETRIES": "many", "CCB_STREAM_IDLE_TIMEOUT_MS": "-1"}) == RetrySettings()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (None, "unknown"),
        (400, "invalid_request"),
        (401, "authentication_failed"),
        (403, "authentication_failed"),
        (404, "model_not_found"),
        (413, "invalid_request"),
        (418, "unknown"),
        (422, "invalid_request"),
        (503, "server_error"),
    ],
)
def test_an_error_has_the_public_protocols_name(status: int | None, kind: str) -> None:
    assert ModelError("x", status=status).kind == kind
