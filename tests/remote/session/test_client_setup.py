"""Which options hold after another client process begins to drive."""

from __future__ import annotations

from ccb.remote.session.client_setup import ClientLaunches
from ccb.tunnel.wire.session_options import SessionOptions


def test_the_models_of_an_earlier_client_are_kept_where_the_next_one_names_none() -> None:
    first = SessionOptions(model_aliases={"quick": "lab/small-1"}, small_model="lab/s-1", compact_model="lab/c-1")
    launches = ClientLaunches(first)
    launches.use(launches.merge({}, SessionOptions(model_aliases={"deep": "lab/big-1"}), "default"))
    options = launches.options
    assert options.model_aliases == {"quick": "lab/small-1", "deep": "lab/big-1"}
    assert (options.small_model, options.compact_model) == ("lab/s-1", "lab/c-1")
    launches.use(launches.merge({}, SessionOptions(small_model="lab/s-2", compact_model="lab/c-2"), "default"))
    assert (launches.options.small_model, launches.options.compact_model) == ("lab/s-2", "lab/c-2")
