"""A receiver of OTLP over HTTP, as a collector is one: it keeps the spans and points that programs send."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from tests.support.network.http_server import serving

Value = str | int | float | bool


@dataclass(frozen=True)
class ReceivedSpan:
    name: str
    kind: str
    attributes: Mapping[str, Value]
    resource: Mapping[str, Value]
    trace: str
    id: str
    parent: str
    seconds: float
    failed: bool


@dataclass
class OtlpReceiver:
    """`bodies` is all that came, `points` the newest sum or count for each metric and its attributes."""

    url: str = ""
    status: int = 200
    spans: list[ReceivedSpan] = field(default_factory=list)
    points: dict[tuple[str, tuple[tuple[str, Value], ...]], float] = field(default_factory=dict)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    bodies: bytes = b""

    async def take(self, request: web.Request) -> web.Response:
        self.headers.append(dict(request.headers))
        body = await request.read()
        if self.status == 200:
            self.bodies += body
            assert request.content_type == "application/x-protobuf"
            assert request.path in ("/v1/traces", "/v1/metrics"), request.path
            self._spans(body) if request.path == "/v1/traces" else self._points(body)
        return web.Response(status=self.status, content_type="application/x-protobuf")

    def _spans(self, body: bytes) -> None:
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            for span in (span for scope in group.scope_spans for span in scope.spans):
                self.spans.append(
                    ReceivedSpan(
                        span.name, span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
                        _values(span.attributes), _values(group.resource.attributes),
                        span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(),
                        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9, span.status.code == 2,
                    )
                )  # fmt: skip

    def _points(self, body: bytes) -> None:
        for group in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (metric for scope in group.scope_metrics for metric in scope.metrics):
                kind = str(metric.WhichOneof("data"))
                for point in getattr(metric, kind).data_points:
                    value = point.sum if kind == "histogram" else point.as_int or point.as_double
                    self.points[metric.name, tuple(sorted(_values(point.attributes).items()))] = value

    def named(self, start: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name.startswith(start)]

    def total(self, metric: str) -> float:
        return sum(value for (name, _), value in self.points.items() if name == metric)


def _values(pairs: Iterable[KeyValue]) -> dict[str, Value]:
    return {pair.key: getattr(pair.value, str(pair.value.WhichOneof("value"))) for pair in pairs}


@asynccontextmanager
async def otlp_receiver() -> AsyncIterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    async with serving(receiver.take) as receiver.url:
        yield receiver
