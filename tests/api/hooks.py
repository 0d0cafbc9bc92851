"""What is asked may wait no longer than a test does: a call that nobody can take waits as long as it is told to."""

import schemathesis

WAITS = ("wait_ms", "budget_ms", "timeout_ms", "accept_timeout_ms")


@schemathesis.hook
def map_query(context, query):
    for name in WAITS:
        if isinstance((query or {}).get(name), int):
            query[name] = min(query[name], 50)
    return query
