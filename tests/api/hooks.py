"""What requests need that no description can say: a token that is good, a session that may be ended, waits that are short."""

import http.client
import json
import os
import urllib.request

try:
    import schemathesis
except ImportError:
    # Who starts it all needs the log-in alone.
    schemathesis = None

WAITS = ("wait_ms", "budget_ms", "timeout_ms", "accept_timeout_ms")
SESSION = "/v1/session"


_closes = http.client.HTTPResponse._check_close
# Behind 101 there are no more answers: the next request needs another connection.
http.client.HTTPResponse._check_close = lambda answer: answer.status == 101 or _closes(answer)


def log_in(address, token):
    """The cookie of a new session."""
    body = json.dumps({"token": token}).encode()
    headers = {"Content-Type": "application/json", "Origin": address}
    with urllib.request.urlopen(urllib.request.Request(address + SESSION, body, headers)) as answer:
        return answer.headers["Set-Cookie"].split(";")[0]


def map_query(context, query):
    """A call that nobody can take waits as long as it is told to, and a test no longer than this. A token is a good one."""
    if query and "token" in query:
        query["token"] = os.environ["API_TOKEN"]
    for name in WAITS:
        if isinstance((query or {}).get(name), int):
            query[name] = min(query[name], 50)
    return query


def map_body(context, body):
    """What has the form of a log-in is one: ten wrong tokens in a minute, and nobody is let in any more."""
    is_log_in = context.operation.path == SESSION and isinstance(body, dict) and isinstance(body.get("token"), str)
    return {**body, "token": os.environ["API_TOKEN"]} if is_log_in else body


def map_headers(context, headers):
    """Of a page of the hub's own, where it is of one: others are refused, which tests of the hub itself show. No made-up token."""
    for name in [name for name in headers or {} if name.lower() == "authorization"]:
        del headers[name]
    if headers and "Origin" in headers:
        headers["Origin"] = os.environ["API_ADDRESS"]
    return headers


def map_cookies(context, cookies):
    """The session of the run, if it has one. Who logs out is somebody else than who makes all other requests."""
    name, _, value = os.environ.get("API_SESSION", "").partition("=")
    if not name:
        return {}
    if context.operation.path == SESSION and context.operation.method.upper() == "DELETE":
        value = log_in(os.environ["API_ADDRESS"], os.environ["API_TOKEN"]).partition("=")[2]
    return {name: value}


def after_call(context, case, response):
    """What was answered to what, for who looks whether the requests came as far as they should."""
    with open(os.environ["API_SEEN"], "a") as seen:
        print(case.method.upper(), case.operation.path, response.status_code, file=seen)


if schemathesis is not None:
    for hook in (map_query, map_body, map_headers, map_cookies, after_call):
        schemathesis.hook(hook)
