"""Objects in a bucket of S3, or of anything that speaks its protocol and honours conditional writes."""

from penstock.objects.s3.bucket import Access
from penstock.objects.s3.objects import S3Objects

__all__ = ["Access", "S3Objects"]
