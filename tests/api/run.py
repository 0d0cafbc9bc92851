"""The HTTP API of a hub against its own description: schemathesis makes requests of /openapi.json, good and bad ones, and holds
the answers against it.

    python tests/api/run.py AGENT_REACH SCHEMATHESIS [SECONDS]

starts a hub of its own on free ports of 127.0.0.1, with an agent-less policy: what is called is answered by the hub or by nobody.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import hooks

# A call that nobody can take is a 503, and a failed handler a 502: these are answers, and no faults of the server. That the
# description allows no other status is checked. What a valid request asks for need not be there. That wrong tokens are refused
# is not asked here: after ten in a minute nobody of this address is let in (tests/http_openapi.rs).
CHECKS = ",".join(
    [
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "unsupported_method",
    ]
)

# Without these the requests were not those that are meant.
EXPECTED = [
    "POST /v1/session 204",
    "POST /v1/session 422",
    "GET /v1/session 200",
    "DELETE /v1/session 204",
    "GET /v1/connect 101",
    "GET /v1/connect 400",
    "POST /v1/call/{capability} 404",
    "GET /v1/agents 200",
]


def main() -> int:
    hub, schemathesis = (os.path.abspath(path) for path in sys.argv[1:3])
    seconds = sys.argv[3] if len(sys.argv) > 3 else "60"
    with tempfile.TemporaryDirectory() as folder:
        return run(hub, schemathesis, seconds, Path(folder))


def run(hub: str, schemathesis: str, seconds: str, folder: Path) -> int:
    subprocess.run([hub, "certs", "init", "--dir", folder / "certs"], check=True, stdout=subprocess.DEVNULL)
    (folder / "policy.toml").write_text('version = 1\n[[rules]]\nidentity = "*"\nprovide = ["*"]\ncall = ["*"]\n')
    config = folder / "agent-reach.toml"
    config.write_text(
        'version = 1\n[agents]\nlisten = "127.0.0.1:0"\ncert = "certs/hub.pem"\nkey = "certs/hub-key.pem"\n'
        'client_ca = "certs/ca.pem"\n[http]\nlisten = "127.0.0.1:0"\n[policy]\nfile = "policy.toml"\n'
    )
    token, page = (token_of(hub, name, config) for name in ("api", "page"))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([hub, "serve", "--config", config], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["http"]
            code = requests_of(schemathesis, address, token, page, seconds, folder)
            if process.poll() is not None:
                print(f"the hub ended: {(folder / 'log').read_text()[-4000:]}", file=sys.stderr)
                return 1
            return code
        finally:
            process.terminate()
            process.wait(timeout=30)


def token_of(hub: str, name: str, config: Path) -> str:
    add = [hub, "token", "add", name, "--role", "operator", "--config", config]
    return subprocess.run(add, check=True, capture_output=True, text=True).stdout.strip()


def requests_of(schemathesis: str, address: str, token: str, page: str, seconds: str, folder: Path) -> int:
    """
    Everything with a token, then what sessions are for with one, as a page of the hub's own origin. That session is another
    token's: so many are opened here that the oldest of one token end.
    """
    with_token = ["--header", f"Authorization: Bearer {token}"]
    as_page = ["--header", f"Origin: {address}", "--include-path-regex", "^/v1/(session|connect|agents)$"]
    code = 0
    for who, session in ((with_token, ""), (as_page, hooks.log_in(address, page))):
        code = code or subprocess.run(
            [
                schemathesis, "run", f"{address}/openapi.json", *who,
                "--checks", CHECKS,
                "--max-time", seconds,
                "--request-timeout", "60",
                "--seed", "1",
                "--generation-database", "none",
                "--warnings", "off",
            ],
            cwd=folder,
            env={
                **os.environ,
                "SCHEMATHESIS_HOOKS": str(Path(hooks.__file__)),
                "API_ADDRESS": address,
                "API_TOKEN": token,
                "API_SESSION": session,
                "API_SEEN": str(folder / "seen"),
            },
            check=False,
        ).returncode
    seen = Counter((folder / "seen").read_text().splitlines())
    for answer, times in sorted(seen.items()):
        print(f"{times:6} {answer}")
    missing = [answer for answer in EXPECTED if not seen[answer]]
    if missing:
        print(f"no request came as far as this: {missing}", file=sys.stderr)
    return code or int(bool(missing))


if __name__ == "__main__":
    sys.exit(main())
