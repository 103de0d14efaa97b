"""The auth proxy against its upstream without it, in the same run: first byte, 50 streams, throughput, memory."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from tests.support.proxy.proxy_bench import MB, bench, drain, event_latency, first_bytes

ROUNDS = 200  # with those to warm up, fewer calls than the proxy holds back


async def _main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with bench(Path(directory)) as made:
            direct, proxied = await first_bytes(made, ROUNDS)
            print(
                f"first byte, median of {ROUNDS}: direct {direct:.2f} ms, proxied {proxied:.2f} ms, "
                f"added {proxied - direct:.2f} ms (limit 2), ratio {proxied / direct:.2f}"
            )
            direct = await event_latency(made.direct, 50, 100, 5)
            proxied = await event_latency(made.proxied, 50, 100, 5)
            print(
                f"50 streams, event every 5 ms: latency direct {direct:.2f} ms, proxied {proxied:.2f} ms, "
                f"ratio {proxied / direct:.2f}"
            )
            for name, sent, received in (("30 MB request", 30 * MB, 0), ("100 MB response", 0, 100 * MB)):
                took = []
                for session in (made.direct, made.proxied):
                    start = time.perf_counter()
                    async with made.memory() as memory:
                        await drain(session, sent, f"bytes={received}")
                    took.append(time.perf_counter() - start)
                print(
                    f"{name}, HTTP front: direct {took[0] * 1000:.0f} ms, proxied {took[1] * 1000:.0f} ms, "
                    f"ratio {took[1] / took[0]:.2f}; proxy grew by {memory.growth:.1f} MB (limit 20)"
                )
                start = time.perf_counter()
                async with made.memory() as memory:
                    await made.inband(sent, f"bytes={received}")
                spent = time.perf_counter() - start
                print(
                    f"{name}, in-band: {spent * 1000:.0f} ms, ratio {spent / took[0]:.2f}; "
                    f"proxy and worker end grew by {memory.growth:.1f} MB (limit 20)"
                )


if __name__ == "__main__":
    asyncio.run(_main())
