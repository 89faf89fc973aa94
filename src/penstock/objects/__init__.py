"""The ObjectStore seam: inputs, outputs, and values too large for a row."""

from penstock.objects.seam import ObjectStore

__all__ = ["ObjectStore"]
