"""Where a process listens, as text and as a value."""

import pytest

from cpuplan.process.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "address"),
    [("0.0.0.0:9466", Address("0.0.0.0", 9466)), (":9466", Address("", 9466)), ("[::1]:0", Address("::1", 0))],
)
def test_an_address_reads_back_as_it_is_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9466", "localhost", "host:", "host:http", "host:70000", "host:-1", "host:\N{SUPERSCRIPT TWO}"]
)
def test_what_is_no_address_is_refused_with_the_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not an address: expected HOST:PORT such as 0\.0\.0\.0:9465"):
        parse_address(text)
