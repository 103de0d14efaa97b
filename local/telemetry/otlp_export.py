"""Sends the telemetry of a session over OTLP by HTTP, in threads of the OpenTelemetry SDK, which never delay a turn.

It needs the extra `ccb[otel]`, and 150 ms to be imported: only sessions that export import it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from requests import Response, Session

from ccb import __version__
from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.tasks import cancelled

from ..config.log import Redactor
from ..config.settings import Settings
from ..terminal.stdio import in_thread
from .session_telemetry import SessionTelemetry

log = logging.getLogger(__name__)

_LAST_S = 2.0  # for what is left at the end
_SWITCHES = ("OTEL_SDK_DISABLED", "OTEL_TRACES_SAMPLER")  # they switch an export off: no owner's policy lets them


class _Collector(Session):
    """What takes the data, as threads of the SDK reach it. The person is told once if it does not."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        super().__init__()
        self.stream = True  # an answer may have no end; none is read
        self._warn = warn
        self._loop = asyncio.get_running_loop()
        self._told = False

    def request(self, method: str, url: str, *args: Any, **options: Any) -> Response:  # type: ignore[override]
        try:
            response = super().request(method, url, *args, **options)
        except OSError as error:  # also without the file of certificates
            self._failed(url, f"no answer ({type(error).__name__})")
            raise
        response.close()
        if response.status_code // 100 != 2:  # redirects are not followed
            self._failed(url, f"it answers {response.status_code}")
        return response

    def _failed(self, url: str, why: str) -> None:
        log.warning("the collector takes no telemetry: %s", why)
        if not self._told:
            self._told = True
            place = one_line(urlsplit(url).netloc.rpartition("@")[2]) or "its receiver"
            said = f"Telemetry does not reach {place}: {why}. The session goes on without it; this is said once."
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._warn, said)


@asynccontextmanager
async def exporting(
    settings: Settings, environ: Mapping[str, str], warn: Callable[[str], None]
) -> AsyncIterator[SessionTelemetry]:
    """Yield what follows one session. Leaving sends what is left, for two seconds at most."""
    for name in _SWITCHES if settings.is_managed("otel") else ():
        os.environ.pop(name, None)  # the SDK reads it itself
    own, base = settings.otel, settings.telemetry_receiver(environ)
    collector = _Collector(warn)
    ca = environ.get("OTEL_EXPORTER_OTLP_CERTIFICATE") or settings.network.over(environ).get("SSL_CERT_FILE")
    urls = [f"{base}/v1/{name}" if base else None for name in ("traces", "metrics")]
    spans = OTLPSpanExporter(urls[0], certificate_file=ca, session=collector)
    points = OTLPMetricExporter(urls[1], certificate_file=ca, session=collector)
    identity = {"service.name": "ccb", "service.version": __version__, "service.instance.id": str(uuid4())}
    resource = Resource.create(identity)  # a program may have several sessions, whose sums are not one
    resource = resource.merge(OTELResourceDetector().detect())
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(spans))
    readers = [PeriodicExportingMetricReader(points)] if own.metrics else []
    meters = MeterProvider(readers, resource, shutdown_on_exit=False)
    redact = Redactor(environ).public
    telemetry = SessionTelemetry(
        tracers.get_tracer("ccb", __version__),
        meters.get_meter("ccb", __version__),
        {name: each.kind or name for name, each in settings.providers.items()},
        (lambda text: redact(neutralise(text))) if own.content else None,
        # the first metrics, at once: a run that lasts seconds must hear that nothing takes them
        lambda: threading.Thread(target=meters.force_flush, daemon=True).start(),
    )
    try:
        yield telemetry
    finally:
        telemetry.close()
        last = asyncio.gather(in_thread(tracers.shutdown), in_thread(meters.shutdown), return_exceptions=True)
        await asyncio.wait([last], timeout=_LAST_S)
        for each in () if last.done() else (spans, points):
            each.shutdown()  # nothing is tried again
        await cancelled(last)
