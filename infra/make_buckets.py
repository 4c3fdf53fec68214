"""Make the buckets named on the command line in the object store of AWS_ENDPOINT_URL, if they are not
there.
"""

import sys

import boto3

store = boto3.client("s3")
known = {bucket["Name"] for bucket in store.list_buckets()["Buckets"]}
for name in sys.argv[1:]:
    if name not in known:
        store.create_bucket(Bucket=name)
    print(f"bucket {name}: {'there' if name in known else 'made'}")
