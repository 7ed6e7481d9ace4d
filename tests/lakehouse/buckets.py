"""A lake in a bucket of the local S3."""

from __future__ import annotations

import urllib.request
from dataclasses import replace

from millrace import local
from millrace.config import Settings


def in_bucket(settings: Settings, path: str) -> Settings:
    """The same project with its lake in `s3://BUCKET/…`; the S3 is started, and the bucket made, if need be."""
    endpoint = local.up(settings, ("s3proxy",))["s3proxy"]
    request = urllib.request.Request(f"{endpoint}/{path.partition('/')[0]}", method="PUT")
    with urllib.request.urlopen(request) as answer:
        answer.read()
    return replace(settings, lake=replace(settings.lake, bucket=f"s3://{path}", endpoint=endpoint))
