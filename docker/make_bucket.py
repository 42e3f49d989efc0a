"""Make a bucket that may be there already: ``make_bucket.py NAME``, with the variables that every AWS client reads."""

from __future__ import annotations

import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError


def make_bucket(name: str) -> str:
    """Make the bucket, or find that it is ours."""
    patient = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 8, "mode": "standard"})
    client = boto3.client("s3", config=patient)
    try:
        client.create_bucket(Bucket=name)
    except ClientError as error:
        if error.response["Error"]["Code"] != "BucketAlreadyOwnedByYou":
            raise
        return f"{name} is there"
    return f"{name} is made"


if __name__ == "__main__":
    print(make_bucket(sys.argv[1]))
