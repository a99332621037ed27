"""The conformance hook that names who served."""

from __future__ import annotations

import pytest

from pointsman.kernel.model import Headers
from pointsman.kernel.testing import decide, endpoints, pool, wired
from pointsman.plugins.served_verifier import MISSING, SERVED, ServedEndpointVerifier


@pytest.mark.parametrize(
    ("served", "said"), [("10.0.0.2:8000", "10.0.0.2:8000"), (None, MISSING), ("", MISSING)]
)
def test_the_response_says_who_served_it(served: str | None, said: str) -> None:
    text = "plugins: [{type: destination-endpoint-served-verifier}]"
    wiring = wired(text, ServedEndpointVerifier)
    assert wiring.processing.response_headers
    outcome = decide(wiring, pool(endpoints("a", "b")))
    added = wiring.director.response_headers(outcome, Headers({}), lambda: served)
    assert added == {SERVED: said}
