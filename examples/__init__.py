"""Apps to try Penstock with: `penstock up examples.quickstart:app`."""
