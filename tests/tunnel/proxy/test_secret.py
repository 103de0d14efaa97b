"""A Secret gives its value to `reveal()` and to nothing else."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import traceback
from dataclasses import asdict, dataclass

import pytest

from ccb.tunnel.secret import Secret

VALUE = "sk-ant-very-secret"


@pytest.fixture
def secret() -> Secret:
    return Secret(VALUE)


def test_no_textual_form_shows_the_value(secret: Secret, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").warning("using %s and %r", secret, secret)
    old_style = "%s %r" % (secret, secret)  # noqa: UP031
    forms = [str(secret), repr(secret), f"{secret}", f"{secret!r:>80}", f"{secret:>80}", f"{[secret]} {(secret,)}"]
    assert all(VALUE not in form for form in (*forms, old_style, caplog.text))
    assert "Secret(…)" in caplog.text


def test_it_cannot_be_serialised_or_copied(secret: Secret) -> None:
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy, json.dumps):
        with pytest.raises(TypeError) as caught:
            attempt(secret)
        assert VALUE not in str(caught.value)

    @dataclass
    class Holder:
        secret: Secret

    with pytest.raises(TypeError):
        asdict(Holder(secret))


def test_it_has_no_dict_and_is_no_key_and_a_traceback_does_not_show_it(secret: Secret) -> None:
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        {secret: 1}  # noqa: B018
    try:
        raise ValueError(secret)
    except ValueError:
        assert VALUE not in traceback.format_exc()


def test_it_compares_by_value_and_only_with_its_like(secret: Secret) -> None:
    assert secret == Secret(VALUE) and secret != Secret("other") and secret != VALUE
    assert secret.matches(VALUE) and not secret.matches("") and not secret.matches(VALUE + "x")
    assert not secret.matches("\ud800"), "what came over the wire may be any text"
    assert secret.reveal() == VALUE
    assert not Secret("")
