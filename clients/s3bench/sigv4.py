"""SigV4 for S3 requests, also of S3 Express sessions.

Owns signing only; opens no socket. **Source** "Authenticating Requests (AWS Signature Version 4)" and
"CreateSession" in the S3 API reference.
"""

import datetime
import hashlib
import hmac
import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

UNSIGNED = "UNSIGNED-PAYLOAD"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class Keys:
    access_key: str
    secret_key: str
    region: str = "us-east-1"
    # "s3", or "s3express" for directory buckets.
    service: str = "s3"
    # Of CreateSession (s3express), or of temporary keys.
    token: str | None = None


def headers(keys, method, url, query="", payload=UNSIGNED, extra=(), when=None):
    """Header fields of a signed request, as a list of `Name: value` lines.

    `url` has no query string; its path is percent-encoded. `query` is canonical already.
    """
    when = when or datetime.datetime.now(datetime.timezone.utc)
    stamp, day = f"{when:%Y%m%dT%H%M%SZ}", f"{when:%Y%m%d}"
    parts = urlsplit(url)
    signed = {"host": parts.netloc, "x-amz-date": stamp, "x-amz-content-sha256": payload}
    if keys.token:
        session = keys.service == "s3express"
        signed["x-amz-s3session-token" if session else "x-amz-security-token"] = keys.token
    signed |= {name.lower(): value for name, value in extra}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name].strip()}\n" for name in sorted(signed))
    canonical = f"{method}\n{parts.path or '/'}\n{query}\n{lines}\n{names}\n{payload}"
    scope = f"{day}/{keys.region}/{keys.service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = ("AWS4" + keys.secret_key).encode()
    for part in (day, keys.region, keys.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    out = [f"{name}: {value}" for name, value in signed.items() if name != "host"]
    out.append(f"Authorization: AWS4-HMAC-SHA256 Credential={keys.access_key}/{scope}, "
               f"SignedHeaders={names}, Signature={signature}")
    return out


def object_url(endpoint, bucket, key):
    """Path style."""
    return f"{endpoint.rstrip('/')}/{bucket}/{quote(key, safe='-_.~/')}"


def session_keys(answer, region):
    """The keys in the answer to CreateSession."""
    def field(name):
        found = re.search(rf"<{name}>([^<]+)</{name}>", answer)
        if not found:
            raise ValueError(f"no {name} in the answer to CreateSession: {answer[:300]}")
        return found[1]
    return Keys(field("AccessKeyId"), field("SecretAccessKey"), region, "s3express",
                field("SessionToken"))
