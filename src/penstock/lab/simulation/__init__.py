"""The scaling policy on a virtual clock, compared with other scalers on generated or recorded traces."""
