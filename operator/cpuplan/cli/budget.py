"""A budget as output."""

from __future__ import annotations

from typing import Any

from ..planning.budget import Budget


def budget_document(budget: Budget) -> dict[str, Any]:
    """A budget as a JSON object."""
    return {
        "usable": budget.usable,
        "pinned": budget.pinned,
        "preprocess": budget.preprocess,
        "encode": budget.encode,
        "copy": budget.copy,
        "remains": budget.remains,
        "needed": budget.needed,
        "shortage": budget.shortage,
    }
