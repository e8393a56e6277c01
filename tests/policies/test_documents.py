"""What the documentation shows of the policies is what they say."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
REFUSED = Path(__file__).parent / "pairs" / "refused-setting-a-word" / "refused.txt"


def test_the_documented_refusal_is_the_real_one() -> None:
    said = REFUSED.read_text().partition("Pod demo/p: ")[2].strip()
    document = " ".join((ROOT / "docs" / "annotations.md").read_text().split())
    assert said
    assert f"Pod demo/llm-0: {said}" in document
