"""A build hook of hatchling that puts the worker bundle into the wheel, so every installed ccb has the same bytes.

It runs at build time only, outside the package, so it loads `bundle_build.py` by its path.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WorkerBundleHook(BuildHookInterface[Any]):
    """Adds `ccb/deploy/worker.zip`."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundle before the wheel is put together. An editable install builds it when it is needed."""
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        init = (root / "src" / "ccb" / "__init__.py").read_text(encoding="utf-8")
        found = re.search(r'__version__ = "([^"]+)"', init)
        if found is None:
            raise ValueError("src/ccb/__init__.py names no version")
        build = _load(root / "deploy" / "bundle_build.py").build
        out = Path(self.directory) / "worker.zip"
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_bytes(build(root / "remote", root / "tunnel" / "wire", found.group(1)))
        build_data["force_include"][str(out)] = "ccb/deploy/worker.zip"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file: it is in the wheel now."""
        (Path(self.directory) / "worker.zip").unlink(missing_ok=True)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("worker_bundle", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["worker_bundle"] = module
    spec.loader.exec_module(module)
    return module
