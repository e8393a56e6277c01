"""The agent's own pages by their names: it serves them beside the metrics, and commands ask for them."""

from __future__ import annotations

from typing import Final

AUDIT_PAGE: Final = "audit"
"""The node's last audit."""

EXPLAIN_PAGE: Final = "explain"
"""Why a pod's plan is what it is."""
