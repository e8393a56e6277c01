"""An API server of our own for tests: objects in memory, real HTTP on loopback, faults on request.

It knows any collection under /api/v1 and /apis/GROUP/VERSION: create, get, replace, merge-patch, delete, list
(with selectors, chunks and resourceVersion) and watch (with bookmarks and a history that can expire); and it answers
what clients ask before they work. What a test wants to go wrong it asks for: `fail`, `expire_history`,
`freeze_watches`, `send_in_watches`, `end_watches`.
"""

from tests.fakeapi.objects import JsonObject
from tests.fakeapi.server import FakeApi
from tests.fakeapi.serving import Request

__all__ = ["FakeApi", "JsonObject", "Request"]
