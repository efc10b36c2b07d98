"""Addresses for a package index: links of the project and absolute links of the README.

The address of the repository is the environment variable PROJECT_URL, which the host's workflows
set. Without it the README keeps its relative links, and the archives name no address.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

# The target of a link or picture of Markdown that is a path in the repository.
PATH = re.compile(r"(!?\[[^\]]*\]\()(?![a-z]+:|#)([^)\s]+)")


def absolute(text: str, address: str, version: str) -> str:
    """Return Markdown whose paths are addresses of the files at the tag of a version."""

    def replace(link: re.Match[str]) -> str:
        view = "raw" if link[1].startswith("!") else "blob"
        return f"{link[1]}{address}/{view}/v{version}/{link[2]}"

    return PATH.sub(replace, text)


class IndexMetadata(MetadataHookInterface):
    """The README and the addresses of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the fields `readme` and `urls`."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        address = os.environ.get("PROJECT_URL")
        if address:
            version = metadata["version"]
            text = absolute(text, address, version)
            metadata["urls"] = {
                "Source": address,
                "Documentation": f"{address}/tree/v{version}/docs",
                "Changelog": f"{address}/blob/v{version}/CHANGELOG.md",
                "Issues": f"{address}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
