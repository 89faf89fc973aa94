-- admission_pkey. In a database that was never looked at, by this or by older code, there is nothing to compare with.
UPDATE penstock.admission SET lineage = penstock.lineage()
WHERE id = 1 AND lineage IS NULL AND penstock.lineage() IS NOT NULL
