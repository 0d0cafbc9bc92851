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
from pathlib import Path

# A call that nobody can take is a 503, and a failed handler a 502: these are answers, and no faults of the server. That the
# description allows no other status is checked. What a valid request asks for need not be there.
CHECKS = ",".join(
    [
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "ignored_auth",
        "unsupported_method",
    ]
)


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
    add = [hub, "token", "add", "api", "--role", "operator", "--config", config]
    token = subprocess.run(add, check=True, capture_output=True, text=True).stdout.strip()
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([hub, "serve", "--config", config], stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["http"]
            code = subprocess.run(
                [
                    schemathesis, "run", f"{address}/openapi.json",
                    "--header", f"Authorization: Bearer {token}",
                    "--checks", CHECKS,
                    "--max-time", seconds,
                    "--request-timeout", "60",
                    "--seed", "1",
                    "--generation-database", "none",
                    # It needs an upgrade, which no request of a description makes; logging in costs argon2 and is bounded.
                    "--exclude-path", "/v1/connect",
                    "--exclude-path", "/v1/session",
                    "--warnings", "off",
                ],
                cwd=folder,
                env={**os.environ, "SCHEMATHESIS_HOOKS": str(Path(__file__).with_name("hooks.py"))},
                check=False,
            ).returncode
            if process.poll() is not None:
                print(f"the hub ended: {(folder / 'log').read_text()[-4000:]}", file=sys.stderr)
                return 1
            return code
        finally:
            process.terminate()
            process.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
