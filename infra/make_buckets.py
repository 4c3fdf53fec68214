"""Create the buckets named on the command line in the object store of AWS_ENDPOINT_URL, unless they exist."""

import sys

import boto3

store = boto3.client("s3")
existing = {bucket["Name"] for bucket in store.list_buckets()["Buckets"]}
for name in sys.argv[1:]:
    if name not in existing:
        store.create_bucket(Bucket=name)
    print(f"bucket {name}: {'there' if name in existing else 'made'}")
