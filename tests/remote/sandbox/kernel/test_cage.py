"""Parts of the cage that only older kernels need."""

from __future__ import annotations

import pytest

from ccb.remote.sandbox.kernel.cage import unescaped


@pytest.mark.parametrize(
    ("written", "path"),
    [
        (b"/", b"/"),
        (b"/a\\040b\\011c\\012d", b"/a b\tc\nd"),
        (b"/back\\134040slash\\134", b"/back\\040slash\\"),
        ("/ü\\0401".encode(), "/ü 1".encode()),
    ],
)
def test_a_mount_point_is_read_as_the_kernel_writes_it(written: bytes, path: bytes) -> None:
    assert unescaped(written) == path
