-- Waits for every transaction that has submitted and not ended; those that come later wait behind it. So not for long.
LOCK TABLE penstock.admission IN ACCESS EXCLUSIVE MODE
