"""A build hook of hatchling that puts the worker's bundles into the wheel. It runs outside the package."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WorkerBundleHook(BuildHookInterface[Any]):
    """Adds `ccb/deploy/worker.bundle` and `commands.bundle`, and what they are packed in for the transfer."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the bundles before the wheel is put together. An editable install builds them when they are needed."""
        if self.target_name != "wheel" or version == "editable":
            return
        root = Path(self.root)
        init = (root / "src" / "ccb" / "__init__.py").read_text(encoding="utf-8")
        found = re.search(r'__version__ = "([^"]+)"', init)
        if found is None:
            raise ValueError("src/ccb/__init__.py names no version")
        sys.path.insert(0, str(root))
        builder = importlib.import_module("deploy.build_bundle")
        files: dict[str, bytes] = {}
        for part, bundle in builder.build(root / "remote", root / "tunnel" / "wire", found.group(1)).items():
            files |= {f"{part}.{form}": builder.pack(bundle, form) for form in builder.FORMS}
            files[f"{part}.bundle"] = bundle
        self._out.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (self._out / name).write_bytes(content)
            build_data["force_include"][str(self._out / name)] = f"ccb/deploy/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._out, ignore_errors=True)

    @property
    def _out(self) -> Path:
        return Path(self.directory) / ".worker"
